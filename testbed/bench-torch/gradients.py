"""Gradients of real architectures, tensor by tensor, for `thc papers --gradients DIR`: models of torchvision and transformers with random
weights, trained for some steps on data that packages ship.

    target/python-venv-newest/bin/python testbed/bench-torch/gradients.py --out DIR        # 40 s of a core; --models, --steps, --seed

Each worker's gradient is that of its own batch, by the same weights, after the last step. The sum of the means of the last half of the steps
is kept beside them: a layer-wise scheme chooses by gradients that it has seen. torchvision's models are left out where it is not installed.

DIR/index.json names all tensors with their shapes; for each model DIR has a folder with worker-0.f32, worker-1.f32, ... and seen.f32, which
are little-endian 32-bit floats, one tensor after the other.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import pydoc_data.topics
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import among, number

WORKERS = 4
CONTEXT = 64
WORDS = 2000


class Digits:
    """scikit-learn's 1797 digits as pictures of 32 × 32 in three colours, with noise."""

    name = "scikit-learn's digits, 32 × 32"

    def __init__(self) -> None:
        import torch
        from sklearn.datasets import load_digits

        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
        self.images = torch.nn.functional.interpolate(images, size=(32, 32), mode="bilinear").expand(-1, 3, -1, -1)
        self.labels = torch.tensor(data.target)

    def loss(self, model: Any, rows: int, generator: Any) -> Any:
        """The cross entropy of a batch."""
        import torch

        picked = torch.randint(len(self.labels), (rows,), generator=generator)
        images = self.images[picked] + 0.5 * torch.randn((rows, 3, 32, 32), generator=generator)
        scores = model(images)
        return torch.nn.functional.cross_entropy(getattr(scores, "logits", scores), self.labels[picked])


class Text:
    """Python's own documentation, as its 2000 commonest words; the next one, or each seventh that is hidden."""

    name = "the words of Python's documentation"

    def __init__(self, hidden: bool) -> None:
        import torch

        self.hidden = hidden
        topics = pydoc_data.topics.topics
        words = re.findall(r"\w+|[^\w\s]", "\n".join(topics[name] for name in sorted(topics)))
        known = {word: at + 2 for at, (word, _) in enumerate(Counter(words).most_common(WORDS - 2))}
        # 0 stands for all other words, 1 for one that is hidden.
        self.words = torch.tensor([known.get(word, 0) for word in words])

    def loss(self, model: Any, rows: int, generator: Any) -> Any:
        """The cross entropy of a batch."""
        import torch

        starts = torch.randint(len(self.words) - CONTEXT, (rows,), generator=generator)
        words = self.words[starts[:, None] + torch.arange(CONTEXT)]
        if not self.hidden:
            return model(input_ids=words, labels=words).loss
        hidden = torch.rand(words.shape, generator=generator) < 1 / 7
        return model(input_ids=words.masked_fill(hidden, 1), labels=words.masked_fill(~hidden, -100)).loss


def torchvision_model(name: str) -> Callable[[], Any]:
    """A model of torchvision for ten classes."""

    def make() -> Any:
        import torchvision

        return getattr(torchvision.models, name)(weights=None, num_classes=10)

    return make


def vit() -> Any:
    """A vision transformer of ViT-Tiny's width and half of its depth."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=32,
                                               patch_size=4, num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def gpt2() -> Any:
    """GPT-2 with a third of the small one's width and depth."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=CONTEXT, n_embd=256, n_layer=4, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
                                      attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))


def bert() -> Any:
    """BERT of the same width and depth."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(vocab_size=WORDS, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                                      max_position_embeddings=CONTEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


#: By name: title, package, model, data, the rows of a worker's batch, the step size of Adam.
MODELS: dict[str, tuple[str, str, Callable[[], Any], Callable[[], Any], int, float]] = {
    "resnet18": ("ResNet-18", "torchvision", torchvision_model("resnet18"), Digits, 4, 1e-3),
    "mobilenet": ("MobileNetV2", "torchvision", torchvision_model("mobilenet_v2"), Digits, 4, 1e-3),
    "vit": ("ViT", "transformers", vit, Digits, 4, 5e-4),
    "gpt2": ("GPT-2", "transformers", gpt2, lambda: Text(hidden=False), 4, 1e-3),
    "bert": ("BERT", "transformers", bert, lambda: Text(hidden=True), 4, 1e-3),
}


def write(path: Path, tensors: list[Any]) -> None:
    """Writes tensors one after the other."""
    path.write_bytes(b"".join(tensor.detach().numpy().astype("<f4").tobytes() for tensor in tensors))


def measure(name: str, steps: int, seed: int, out: Path) -> dict[str, Any]:
    """Trains a model and writes its gradients; what the index says of it."""
    import torch

    title, package, make, data_of, rows, rate = MODELS[name]
    # One thread gives the same sums on any machine.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, data = make().train(), data_of()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    batches = torch.Generator().manual_seed(1000 + seed)
    # A model that shares a tensor between two layers has it once.
    named = [(tensor, parameter) for tensor, parameter in model.named_parameters() if parameter.requires_grad]

    def gradients(count: int) -> tuple[list[Any], float]:
        optimizer.zero_grad()
        loss = data.loss(model, count, batches)
        loss.backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for _, p in named], float(loss.detach())

    seen = [torch.zeros_like(parameter) for _, parameter in named]
    losses = []
    for step in range(steps):
        mean, loss = gradients(WORKERS * rows)
        losses.append(loss)
        if 2 * step >= steps:
            for total, gradient in zip(seen, mean):
                total += gradient
        optimizer.step()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "seen.f32", seen)
    for worker in range(WORKERS):
        write(folder / f"worker-{worker}.f32", gradients(rows)[0])
    return {"name": title, "folder": name, "package": f"{package} {__import__(package).__version__}", "data": data.name, "workers": WORKERS,
            "steps": steps, "rows": rows, "losses": [losses[0], losses[-1]],
            "tensors": [{"name": tensor, "shape": list(parameter.shape)} for tensor, parameter in named]}


def main() -> int:
    """Makes all that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files, created if necessary")
    parser.add_argument("--models", type=among(MODELS), default=list(MODELS), help=f"some of {','.join(MODELS)} (all)")
    parser.add_argument("--steps", type=number(int, 2), default=24, help="steps before gradients are kept (%(default)s)")
    parser.add_argument("--seed", type=number(int, 0), default=1, help="seed of weights and batches (%(default)s)")
    arguments = parser.parse_args()
    started = time.monotonic()
    models = []
    for name in arguments.models:
        title, package = MODELS[name][:2]
        missing = [each for each in ("torch", "sklearn", package) if importlib.util.find_spec(each) is None]
        if missing:
            print(f"left out: {title}: Python has no {missing[0]} (pip install {'scikit-learn' if missing[0] == 'sklearn' else missing[0]})")
            continue
        models.append(measure(name, arguments.steps, arguments.seed, arguments.out))
        parameters = sum(math.prod(tensor["shape"]) for tensor in models[-1]["tensors"])
        first, last = models[-1]["losses"]
        print(f"{time.monotonic() - started:5.0f} s  {title}: {parameters / 1e6:.2f} M parameters in {len(models[-1]['tensors'])} tensors, "
              f"loss {first:.3f} to {last:.3f}", flush=True)
    if not models:
        print("no gradients were made", file=sys.stderr)
        return 1
    (arguments.out / "index.json").write_text(json.dumps({"seed": arguments.seed, "models": models}, indent=1) + "\n")
    print(arguments.out / "index.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
