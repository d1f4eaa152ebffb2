"""Hugging Face's ``Trainer``: a callback that averages gradients through THC.

::

    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.add_callback(thc.transformers.THCCallback(trainer))
    trainer.train()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc.errors import ConfigError

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ConfigError(f"thc.transformers needs transformers ({error}): pip install transformers accelerate") from error

import thc.torch as thc_torch
from thc.torch.names import unwrapped


_FILE = "thc.pt"
"""The file in a checkpoint's folder."""


class THCCallback(TrainerCallback):
    """Wraps the model that a ``Trainer`` has made a ``DistributedDataParallel`` of; ``options`` are those of :func:`thc.torch.wrap`. With one process it does
    nothing. The trainer's checkpoints have what the hooks of all ranks know, as ``thc.pt``, and training that goes on from one loads it.
    """

    def __init__(self, trainer: Any, **options: Any) -> None:
        self._trainer, self._options = trainer, options
        self.hook: thc_torch.Hook | None = None
        """The hook, from the beginning of training on."""
        self._resumed: str | None = None
        """The folder of the checkpoint that training goes on from, of which the trainer does not tell callbacks."""
        loads = trainer._load_optimizer_and_scheduler

        def load(checkpoint: str | None, *args: Any, **options: Any) -> Any:
            self._resumed = checkpoint
            return loads(checkpoint, *args, **options)

        self._folder = trainer.args.output_dir
        """Where the trainer saves checkpoints; another folder in each run of a search."""
        folder_of = trainer._get_output_dir

        def get_folder(*args: Any, **options: Any) -> Any:
            self._folder = folder_of(*args, **options)
            return self._folder

        trainer._load_optimizer_and_scheduler, trainer._get_output_dir = load, get_folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        resumed, self._resumed = self._resumed, None
        if args.world_size < 2:
            return
        model = self._trainer.model_wrapped
        if not isinstance(unwrapped(model), DistributedDataParallel):
            raise ConfigError(
                f"the trainer has made a {type(model).__name__} of the model, and THCCallback takes a DistributedDataParallel: with FSDP use "
                "thc.torch.replicate, with DeepSpeed the backend \"thc\""
            )
        # A second `train` may go on with the model that was wrapped in the first.
        before, self.hook = self.hook, thc_torch.hook_of(model if thc_torch.is_wrapped(model) else thc_torch.wrap(model, **self._options))
        if before is not None and before is not self.hook:
            before.close()
        file = None if resumed is None else Path(resumed) / _FILE
        if file is not None and file.exists():
            thc_torch.Checkpoint(model).load_state_dict(torch.load(file, weights_only=True))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.hook is None:
            return
        saved = thc_torch.Checkpoint(self._trainer.model_wrapped).state_dict()
        if dist.get_rank() == 0:
            folder = Path(self._folder) / f"checkpoint-{state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(saved, folder / _FILE)
