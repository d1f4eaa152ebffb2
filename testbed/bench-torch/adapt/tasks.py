"""What is trained: a small convolutional net on scikit-learn's handwritten digits, a small transformer on the words of
Python's own documentation. Both come with packages; batches are a function of seed, step and rank."""

from __future__ import annotations

import pydoc_data.topics
import re
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 32
WORDS = 500


class Residual(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))
        self.short = nn.Identity() if before == width else nn.Conv2d(before, width, 1, stride=stride)

    def forward(self, state: Tensor) -> Tensor:
        own = functional.relu(self.norms[0](self.first(state)))
        return functional.relu(self.short(state) + self.norms[1](self.second(own)))


class Convolutions(nn.Module):
    """A ResNet-18 in small: four stages of two blocks, each stage twice as wide."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 16, 16, 32, 32, 64, 64, 128, 128)
        self.stem = nn.Conv2d(1, widths[0], 3, padding=1)
        self.norm = nn.GroupNorm(4, widths[0])
        strides = (1, 1, 1, 1, 2, 1, 2, 1)
        self.blocks = nn.Sequential(*map(Residual, widths, widths[1:], strides))
        self.last = nn.Linear(widths[-1], 10)

    def forward(self, images: Tensor) -> Tensor:
        state = self.blocks(functional.relu(self.norm(self.stem(images))))
        return self.last(state.mean((2, 3)))


class Block(nn.Module):
    """Attention and two dense layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, state: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = state.shape
        parts = self.attention(self.first(state)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        state = state + self.out(mixed)
        return state + self.down(functional.gelu(self.up(self.second(state))))


class Transformer(nn.Module):
    """The next word, by six blocks."""

    def __init__(self, words: int = WORDS, width: int = 64, blocks: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(CONTEXT, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, words)
        nn.init.normal_(self.words.weight, std=0.1)

    def forward(self, words: Tensor) -> Tensor:
        state = self.words(words) + self.places
        mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        for block in self.blocks:
            state = block(state, mask)
        return self.last(self.norm(state))


class Digits:
    """1797 images of 8 × 8; every fifth is held out."""

    name, steps, every, batch = "convolutions", 300, 40, 24
    score = "accuracy"

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
        labels = torch.tensor(data.target)
        held = torch.arange(len(labels)) % 5 == 0
        self._train, self._held = (images[~held], labels[~held]), (images[held], labels[held])

    def model(self) -> nn.Module:
        return Convolutions()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.03, momentum=0.9)

    def loss(self, model: Any, seed: int, step: int, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed((seed << 32) + (step << 8) + rank)
        picked = torch.randint(len(self._train[1]), (self.batch,), generator=generator)
        # Noise keeps the task from being over at once.
        images = self._train[0][picked] + 0.5 * torch.randn((self.batch, 1, 8, 8), generator=generator)
        return functional.cross_entropy(model(images), self._train[1][picked])

    def held_out(self, model: nn.Module) -> tuple[float, float]:
        """Loss and accuracy."""
        with torch.no_grad():
            scores = model(self._held[0])
            return float(functional.cross_entropy(scores, self._held[1])), float((scores.argmax(1) == self._held[1]).float().mean())


class Words:
    """Half a megabyte of text as its 500 commonest words; a tenth is held out."""

    name, steps, every, batch = "transformer", 300, 40, 8
    score = "perplexity"

    def __init__(self) -> None:
        topics = pydoc_data.topics.topics
        text = re.findall(r"\w+|[^\w\s]", "\n".join(topics[name] for name in sorted(topics)))
        known = {word: at + 1 for at, (word, _) in enumerate(Counter(text).most_common(WORDS - 1))}
        words = torch.tensor([known.get(word, 0) for word in text])
        cut = len(words) * 9 // 10
        self._train, self._held = words[:cut], words[cut:]

    def model(self) -> nn.Module:
        return Transformer()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), 2e-3)

    def _loss(self, model: Any, words: Tensor, starts: Tensor) -> Tensor:
        rows = words[starts[:, None] + torch.arange(CONTEXT + 1)]
        return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def loss(self, model: Any, seed: int, step: int, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed((seed << 32) + (step << 8) + rank)
        return self._loss(model, self._train, torch.randint(len(self._train) - CONTEXT - 1, (self.batch,), generator=generator))

    def held_out(self, model: nn.Module) -> tuple[float, float]:
        """Loss and perplexity."""
        with torch.no_grad():
            loss = float(self._loss(model, self._held, torch.linspace(0, len(self._held) - CONTEXT - 2, 64).long()))
        return loss, float(torch.tensor(loss).exp())


TASKS = {"convolutions": Digits, "transformer": Words}
