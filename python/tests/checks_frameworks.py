"""Frameworks on two ranks: their own packages train, save and go on, and what each rank's hook knows goes on with them."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import RANK, SIZE, same_everywhere


def lacks(*modules: str) -> str | None:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"not run: Python has no {missing[0]} (pip install {missing[0]})" if missing else None


def in_a_folder(work: Callable[[Path], None]) -> None:
    """In one that all ranks see, and that goes."""
    box = [tempfile.mkdtemp(prefix="thc-frameworks-") if RANK == 0 else None]
    dist.broadcast_object_list(box)
    try:
        work(Path(str(box[0])))
        dist.barrier()
    finally:
        if RANK == 0:
            shutil.rmtree(str(box[0]), ignore_errors=True)


def network() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))


def data(count: int = 256) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(8)
    kinds = torch.randint(10, (count,), generator=generator)
    return torch.utils.data.TensorDataset(torch.randn(count, 64, generator=generator) + 2 * torch.eye(10, 64)[kinds], kinds)


def same(one: Any, two: Any) -> bool:
    """Whether two states are."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return bool(one == two)


def check_lightning() -> str | None:
    if why := lacks("lightning"):
        return why
    import lightning
    import thc.lightning

    class Digits(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    seen: list[Any] = []

    class Look(lightning.Callback):
        def __init__(self, file: Path | None) -> None:
            self._file = file

        def on_train_start(self, trainer: Any, module: Any) -> None:
            seen.append(trainer.strategy.hook.state_dict())

        def on_train_end(self, trainer: Any, module: Any) -> None:
            seen.append(trainer.strategy.hook.state_dict())
            if self._file is not None:
                trainer.save_checkpoint(self._file)

    def train(folder: Path, steps: int, strategy: Any, saves: Path | None = None, loads: Path | None = None) -> Any:
        trainer = lightning.Trainer(
            accelerator="cpu", devices=SIZE, strategy=strategy, max_steps=steps, logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder, callbacks=[Look(saves)],
        )  # fmt: skip
        model = Digits()
        trainer.fit(model, torch.utils.data.DataLoader(data(), batch_size=16), ckpt_path=loads)
        assert same_everywhere(list(model.parameters()))
        return trainer.strategy

    def work(folder: Path) -> None:
        for options in ({"compression": thc.torch.Compression(feedback=True)}, {}):
            seen.clear()
            for steps, files in ((5, {"saves": folder / "saved.ckpt"}), (8, {"loads": folder / "saved.ckpt"})):
                train(folder, steps, thc.lightning.THCStrategy(process_group_backend="gloo", thc=options), **files)
            _, saved, loaded, ended = seen
            assert saved["steps"] == 5 and same(saved, loaded) and ended["steps"] == 8, (saved["steps"], loaded["steps"], ended["steps"])
        assert isinstance(train(folder, 3, "thc"), thc.lightning.THCStrategy)

    in_a_folder(work)
    return None


def check_accelerate() -> str | None:
    if why := lacks("accelerate"):
        return why
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)

    def prepare() -> tuple[Any, Any, Any]:
        model, optimizer, loader = accelerator.prepare(
            layers := network(), torch.optim.SGD(layers.parameters(), lr=0.05), torch.utils.data.DataLoader(data(), batch_size=16)
        )
        thc.torch.wrap(model, compression=thc.torch.Compression(feedback=True))
        accelerator.register_for_checkpointing(thc.torch.Checkpoint(model))
        return model, optimizer, loader

    def train(model: Any, optimizer: Any, loader: Any) -> None:
        for number, (inputs, kinds) in enumerate(loader):
            if number == 4:
                break
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), kinds))
            optimizer.step()

    def work(folder: Path) -> None:
        model, optimizer, loader = prepare()
        train(model, optimizer, loader)
        saved = thc.torch.hook_of(model).state_dict()
        accelerator.save_state(str(folder))
        train(model, optimizer, loader)
        accelerator.wait_for_everyone()
        accelerator.load_state(str(folder))
        assert same(saved, thc.torch.hook_of(model).state_dict()) and saved["feedback"]
        train(model, optimizer, loader)
        assert same_everywhere(list(model.parameters()))
        thc.torch.hook_of(model).group.close()

    in_a_folder(work)
    return None


def check_the_trainer_of_hugging_face() -> str | None:
    if why := lacks("transformers", "accelerate"):
        return why
    import transformers
    from thc.transformers import THCCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            scores = self.layers(x)
            return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}

    every = [{"x": x, "labels": kind} for x, kind in data()]
    looks: list[Any] = []

    class Look(transformers.TrainerCallback):
        def __init__(self, callback: THCCallback) -> None:
            self._callback = callback

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            looks.append(self._callback.hook.state_dict())

        def on_save(self, *_: Any, **__: Any) -> None:
            looks.append(self._callback.hook.state_dict())

    def work(folder: Path) -> None:
        def trainer(steps: int, output: str = "one", **options: Any) -> Any:
            arguments = transformers.TrainingArguments(
                output_dir=str(folder / output), max_steps=steps, per_device_train_batch_size=16, save_steps=5, save_strategy="steps", report_to="none",
                use_cpu=True, disable_tqdm=True, learning_rate=0.01, logging_strategy="no", **options,
            )  # fmt: skip
            made = transformers.Trainer(Model(), arguments, train_dataset=every)
            callback = THCCallback(made, compression=thc.torch.Compression(feedback=True))
            made.add_callback(callback)
            made.add_callback(Look(callback))
            return made

        trainer(5).train()
        again = trainer(8)
        again.train(resume_from_checkpoint=True)
        first, saved, loaded = looks[:3]
        assert first["steps"] == 0 and saved["steps"] == 5 and saved["feedback"] and same(saved, loaded)
        assert same_everywhere(list(again.model.parameters()))

        # The state comes from the checkpoint that was named, and a stale one in the trainer's own folder is left alone.
        looks.clear()
        other = trainer(8, "two")
        other.train(resume_from_checkpoint=str(folder / "one" / "checkpoint-5"))
        assert same(saved, looks[0]) and same_everywhere(list(other.model.parameters()))

        # Training again goes on with the model that is wrapped, and its hook.
        looks.clear()
        twice = trainer(5, "three")
        twice.train()
        twice.args.max_steps = 10
        twice.train()
        assert [look["steps"] for look in looks] == [0, 5, 5, 10, 15][: len(looks)] and len(looks) >= 4, [look["steps"] for look in looks]
        assert same_everywhere(list(twice.model.parameters()))

        # Accelerate compiles around DDP.
        looks.clear()
        compiled = trainer(5, "four", torch_compile=True, torch_compile_backend="eager")
        compiled.train()
        assert [look["steps"] for look in looks] == [0, 5] and same_everywhere(list(compiled.model.parameters()))

    in_a_folder(work)
    return None
