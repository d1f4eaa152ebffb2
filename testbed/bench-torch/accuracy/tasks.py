"""What is trained: small models of the kinds that people train, each on a CPU in a minute or less.

A task's data are what Python and scikit-learn ship, or follow from a seed. A step's examples do not depend on how many ranks divide them.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        length = q.shape[-2]
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -1e9)
    return scores.softmax(-1) @ v


class Layer(nn.Module):
    """Of a transformer, norms first."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.attention(self.ln_1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.projection(_attend(q, k, v, self.causal).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.ln_2(x))))


class Transformer(nn.Module):
    """Over bytes: GPT-2 if it is causal, else BERT, whose last token masks."""

    def __init__(self, causal: bool, width: int = 128, layers: int = 3, tokens: int = 257) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.Sequential(*[Layer(width, 4, causal) for _ in range(layers)])
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
def _text(which: str) -> torch.Tensor:
    """Bytes of Python's library: of its modules, or of its packages' modules."""
    root = Path(os.__file__).parent
    files = sorted(root.glob("*.py"))[:120] if which == "modules" else sorted((root / "test").glob("*.py")) or sorted(root.glob("asyncio/*.py"))
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


def _passages(which: str) -> tuple[Callable[[int, int, int], Examples], Callable[[], Examples]]:
    def examples(seed: int, step: int, count: int) -> Examples:
        return (_windows(_split(_text(which))[0], _generator(seed, step), count),)

    def held_out() -> Examples:
        return (_windows(_split(_text(which))[1], _generator(1 << 20, 0), 64),)

    return examples, held_out


def _next_byte(model: nn.Module, examples: Examples) -> torch.Tensor:
    (windows,) = examples
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def _mask_examples(examples: Callable[[int, int, int], Examples]) -> Callable[[int, int, int], Examples]:
    """A seventh of the bytes is to be guessed."""

    def mask(seed: int, step: int, count: int) -> Examples:
        (windows,) = examples(seed, step, count)
        windows = windows[:, :CONTEXT]
        hidden = torch.rand(windows.shape, generator=_generator(seed + 77, step)) < 0.15
        return windows.masked_fill(hidden, 256), windows, hidden

    return mask


def _guess(model: nn.Module, examples: Examples) -> torch.Tensor:
    seen, windows, hidden = examples
    return functional.cross_entropy(model(seen)[hidden], windows[hidden])


class Recurrent(nn.Module):
    """An LSTM over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.out = nn.Embedding(256, 96), nn.LSTM(96, 192, batch_first=True), nn.Linear(192, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.embedding(tokens))[0])


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


class VisionTransformer(nn.Module):
    """Patches of 2 by 2 pixels."""

    def __init__(self) -> None:
        super().__init__()
        width = 96
        self.patch, self.place = nn.Linear(4, width), nn.Parameter(0.02 * torch.randn(16, width))
        self.layers, self.norm, self.out = nn.Sequential(*[Layer(width, 4, False) for _ in range(3)]), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = functional.unfold(images, 2, stride=2).transpose(1, 2)
        return self.out(self.norm(self.layers(self.patch(patches) + self.place)).mean(1))


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


USERS, ITEMS, TASTES = 6_000, 3_000, 16


class Recommender(nn.Module):
    """Embeddings of users and items, few rows of which have a gradient in a step, and a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 32), nn.Embedding(ITEMS, 32)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)
        self.net = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        user, item = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        return self.net(torch.cat([user, item, user * item], 1)).squeeze(1)


@functools.cache
def _tastes() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(USERS, TASTES, generator=generator), torch.randn(ITEMS, TASTES, generator=generator)


def _clicks(seed: int, step: int, count: int) -> Examples:
    """Some users and items are met often, most rarely."""
    generator, (users, items) = _generator(seed, step), _tastes()
    often = torch.rand(count, 2, generator=generator) ** 3
    pairs = (often * torch.tensor([USERS, ITEMS])).long()
    liking = (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(1) / math.sqrt(TASTES)
    return pairs, (torch.rand(count, generator=generator) < torch.sigmoid(3 * liking)).float()


def _click(model: nn.Module, examples: Examples) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(model(examples[0]), examples[1])


def _tuned_model(seed: int) -> nn.Module:
    """GPT-2 after 300 steps on the modules."""
    return _checkpoint(seed)()


@functools.cache
def _checkpoint(seed: int) -> Callable[[], nn.Module]:
    task = TASKS["gpt2"]
    model = task.model(seed)
    optimizer = task.optimizer(model)
    for step in range(task.steps):
        optimizer.zero_grad()
        task.loss(model, task.examples(seed, step, task.batch)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimizer.step()
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def make() -> nn.Module:
        made = task.model(seed)
        made.load_state_dict(state)
        return made

    return make


def _adamw(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.AdamW(model.parameters(), rate)


def _sgd(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), rate, momentum=0.9)


def _language(about: str, optimizer: Callable[[nn.Module], torch.optim.Optimizer], **more: Any) -> Task:
    examples, held_out = _passages("modules")
    return Task(about, _seeded(lambda: Transformer(True)), _next_byte, examples, held_out, optimizer, 16, clip=1.0, **more)


_examples, _held_out = _passages("modules")
_others, _held_out_others = _passages("tests")

TASKS = {
    "gpt2": _language("GPT-2 on Python text, AdamW 1e-3", _adamw(1e-3)),
    "gpt2-sgd": _language("the same, SGD 0.1 with momentum 0.9", _sgd(0.1)),
    "gpt2-sgd-fast": _language("the same, SGD 0.3, near the edge of stability", _sgd(0.3)),
    "bert": Task(
        "BERT on Python text, AdamW 1e-3", _seeded(lambda: Transformer(False)), _guess, _mask_examples(_examples),
        lambda: _mask_examples(lambda *_: _held_out())(3, 0, 0), _adamw(1e-3), 32, clip=1.0,
    ),
    "tuning": Task("that GPT-2 tuned on other text, AdamW 2e-4", _tuned_model, _next_byte, _others, _held_out_others, _adamw(2e-4), 16, clip=1.0, steps=200),
    "lstm": Task("LSTM on Python text, Adam 2e-3", _seeded(Recurrent), _next_byte, _examples, _held_out, lambda m: torch.optim.Adam(m.parameters(), 2e-3), 16, clip=1.0),
    "vit": Task("ViT on digits, AdamW 1e-3", _seeded(VisionTransformer), _label, _pictures, _other_pictures, _adamw(1e-3), 64, accuracy=_right),
    "resnet": Task("ResNet with BatchNorm on digits, SGD 0.05 with momentum 0.9", _seeded(_resnet), _label, _pictures, _other_pictures, _sgd(0.05), 64, steps=150, accuracy=_right),
    "recommender": Task(
        "recommender of sparse embeddings, Adagrad 0.05", _seeded(Recommender), _click, _clicks, lambda: _clicks(99, 1 << 20, 4096),
        lambda m: torch.optim.Adagrad(m.parameters(), 0.05), 512, steps=400,
    ),
}  # fmt: skip
