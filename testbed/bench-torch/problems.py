"""What benchmarks of asynchronous training train: a transformer over bytes, and a residual network for digits."""

from __future__ import annotations

import pydoc_data.topics

import torch
from torch import Tensor, nn
from torch.nn import functional


class Predictor(nn.Module):
    """Scores for the byte after each of a row, by a transformer of two layers. ``std`` is that of the first embeddings; ``None``: 1, as
    PyTorch has it, and 0.1 for those of places."""

    def __init__(self, vocabulary: int, width: int, length: int, std: float | None) -> None:
        super().__init__()
        self.bytes = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter((0.1 if std is None else std) * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        if std is not None:
            nn.init.normal_(self.bytes.weight, std=std)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.norm(self.layers(self.bytes(rows) + self.places, mask=self.mask)))
        return scores


class Text:
    """The bytes of Python's documentation. With ``held_out`` the last tenth is not trained on, and losses are those of it."""

    length = 32

    def __init__(self, width: int = 64, rows: int = 8, evaluated: int = 200, held_out: bool = False, std: float | None = None) -> None:
        topics = pydoc_data.topics.topics
        data = "\n".join(topics[name] for name in sorted(topics)).encode()
        number = {byte: index for index, byte in enumerate(sorted(set(data)))}
        self.vocabulary, self.width, self.rows, self.evaluated, self.std = len(number), width, rows, evaluated, std
        numbers = torch.tensor([number[byte] for byte in data])
        trained = len(numbers) * 9 // 10
        self.trained, self.measured_on = (numbers[:trained], numbers[trained:]) if held_out else (numbers, numbers)

    def module(self) -> nn.Module:
        return Predictor(self.vocabulary, self.width, self.length, self.std)

    def _loss(self, module: nn.Module, data: Tensor, starts: Tensor) -> Tensor:
        places = starts[:, None] + torch.arange(self.length)
        return functional.cross_entropy(module(data[places]).transpose(1, 2), data[places + 1])

    def loss(self, module: nn.Module, generator: torch.Generator) -> Tensor:
        starts = torch.randint(len(self.trained) - self.length - 1, (self.rows,), generator=generator)
        return self._loss(module, self.trained, starts)

    def held_out_loss(self, module: nn.Module) -> float:
        starts = torch.linspace(0, len(self.measured_on) - self.length - 2, self.evaluated).long()
        return float(self._loss(module, self.measured_on, starts))


class Block(nn.Module):
    """Two convolutions beside which the input goes on."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.way(x) + self.layers(x)
        return found


class Digits:
    """A residual network of 9 layers with BatchNorm, on the 1797 images of scikit-learn. With ``held_out`` every fifth is not trained on, and
    losses are those of these."""

    def __init__(self, batch: int = 32, held_out: bool = False) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.tensor(digits.data, dtype=torch.float32).div(16).reshape(-1, 1, 8, 8)
        labels = torch.tensor(digits.target)
        apart = torch.arange(len(labels)) % 5 == 0 if held_out else torch.zeros(len(labels), dtype=torch.bool)
        self.batch = batch
        self.trained = images[~apart], labels[~apart]
        self.measured_on = (images[apart], labels[apart]) if held_out else self.trained

    def module(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
            nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def loss(self, module: nn.Module, generator: torch.Generator) -> Tensor:
        images, labels = self.trained
        chosen = torch.randint(len(labels), (self.batch,), generator=generator)
        return functional.cross_entropy(module(images[chosen]), labels[chosen])

    def held_out_loss(self, module: nn.Module) -> float:
        """With the images' own statistics in BatchNorm: running ones are each worker's own."""
        images, labels = self.measured_on
        return float(functional.cross_entropy(module(images), labels))


Problem = Text | Digits
