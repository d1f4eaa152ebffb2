"""What is trained: two small models, each on a CPU in a minute or less.

A task's data are what Python and scikit-learn ship, or follow from a seed. A step's examples do not depend on how many ranks divide them.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

Examples = tuple[torch.Tensor, ...]

CONTEXT = 64


@dataclass(frozen=True)
class Task:
    """A model, its optimizer, and its data."""

    about: str
    model: Callable[[int], nn.Module]
    """Of a seed."""
    loss: Callable[[nn.Module, Examples], torch.Tensor]
    examples: Callable[[int, int, int], Examples]
    """Of a seed and a step, so many."""
    held_out: Callable[[], Examples]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    batch: int
    """Examples of all ranks together."""
    steps: int = 300
    clip: float = 0.0
    """Norm that gradients are clipped at, if any."""
    accuracy: Callable[[nn.Module, Examples], float] | None = None


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    length = q.shape[-2]
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -1e9)
    return scores.softmax(-1) @ v


class Layer(nn.Module):
    """Of a transformer, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.attention(self.ln_1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.projection(_attend(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.ln_2(x))))


class Transformer(nn.Module):
    """GPT-2 over bytes."""

    def __init__(self, width: int = 128, layers: int = 3, tokens: int = 257) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                last = "projection" in name or "narrow" in name
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.layers(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        return self.ln_f(found) @ self.wte.weight.T


def _seeded(build: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    def build_seeded(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return build()

    return build_seeded


@functools.cache
def _text() -> torch.Tensor:
    """Bytes of the modules of Python's library."""
    root = Path(os.__file__).parent
    files = sorted(root.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files[:120])), dtype=torch.uint8).long()


def _windows(text: torch.Tensor, generator: torch.Generator, count: int) -> torch.Tensor:
    at = torch.randint(0, len(text) - CONTEXT - 1, (count,), generator=generator)
    return text[at[:, None] + torch.arange(CONTEXT + 1)]


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed << 32) + step)


def _split(text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is trained on, and what is held out."""
    at = len(text) * 9 // 10
    return text[:at], text[at:]


def _next_byte(model: nn.Module, examples: Examples) -> torch.Tensor:
    (windows,) = examples
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def _bytes_right(model: nn.Module, examples: Examples) -> float:
    (windows,) = examples
    return float((model(windows[:, :-1]).argmax(2) == windows[:, 1:]).float().mean())


def floors() -> dict[str, dict[str, float]]:
    """The accuracy, in per cent, of guessing without a model: always the label that is most frequent among what is trained on, and for text also the
    byte that follows the one before most often."""
    text, held_out = _split(_text())[0], _other_passages()[0]
    pairs = torch.zeros(256 * 256, dtype=torch.long).scatter_add_(0, text[:-1] * 256 + text[1:], torch.ones_like(text[1:])).view(256, 256)
    before, after = held_out[:, :-1], held_out[:, 1:]
    _, labels, _, others = _images()

    def percent(guess: torch.Tensor, label: torch.Tensor) -> float:
        return 100 * float((guess == label).float().mean())

    return {
        "gpt2": {"most frequent": percent(pairs.sum(0).argmax(), after), "bigram": percent(pairs.argmax(1)[before], after)},
        "resnet": {"most frequent": percent(labels.bincount().argmax(), others)},
    }


@functools.cache
def _images() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Handwritten digits of 8 by 8 pixels: trained on, held out."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.data), generator=torch.Generator().manual_seed(5))
    images = (torch.tensor(digits.images, dtype=torch.float32)[order] / 8 - 1).unsqueeze(1)
    labels = torch.tensor(digits.target)[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def _pictures(seed: int, step: int, count: int) -> Examples:
    images, labels, _, _ = _images()
    chosen = torch.randint(0, len(images), (count,), generator=_generator(seed, step))
    return images[chosen], labels[chosen]


def _other_pictures() -> Examples:
    return _images()[2:]


def _label(model: nn.Module, examples: Examples) -> torch.Tensor:
    return functional.cross_entropy(model(examples[0]), examples[1])


def _right(model: nn.Module, examples: Examples) -> float:
    return float((model(examples[0]).argmax(1) == examples[1]).float().mean())


class Residual(nn.Module):
    """Two convolutions with BatchNorm around which the input goes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norm_2(self.second(functional.relu(self.norm_1(self.first(x)))))
        return functional.relu(found + self.around(x))


def _resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        Residual(24, 24, 1), Residual(24, 48, 2), Residual(48, 96, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10),
    )  # fmt: skip


def _adamw(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.AdamW(model.parameters(), rate)


def _sgd(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), rate, momentum=0.9)


def _passages(seed: int, step: int, count: int) -> Examples:
    return (_windows(_split(_text())[0], _generator(seed, step), count),)


def _other_passages() -> Examples:
    return (_windows(_split(_text())[1], _generator(1 << 20, 0), 512),)


TASKS = {
    "gpt2": Task("GPT-2 on Python text, AdamW 1e-3", _seeded(Transformer), _next_byte, _passages, _other_passages, _adamw(1e-3), 16, clip=1.0, accuracy=_bytes_right),
    "resnet": Task("ResNet with BatchNorm on digits, SGD 0.05 with momentum 0.9", _seeded(_resnet), _label, _pictures, _other_pictures, _sgd(0.05), 64, steps=150, accuracy=_right),
}
