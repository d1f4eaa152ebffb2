"""What is trained: a language model over the bytes of a real text, whose gradients are large for what it computes.

The text is Python's own documentation as it ships with every Python (`pydoc_data.topics`), half a million bytes.
The model sees the last bytes, embedded and concatenated, and predicts the next one by residual layers. Its weights
are used once per example, so computing is cheap compared to exchanging the gradients, like in the models that the
THC paper calls network-intensive.
"""

from __future__ import annotations

import pydoc_data.topics
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 8


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, and how it is trained."""

    embedding: int
    width: int
    layers: int
    # Examples per process and step, and the learning rate of plain SGD.
    batch: int
    rate: float


SHAPES = {
    "heavy": Shape(embedding=64, width=1600, layers=4, batch=16, rate=0.03),
}


class NextByte(nn.Module):
    """Logits for the byte that follows `CONTEXT` bytes."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, shape.embedding)
        self.first = nn.Linear(CONTEXT * shape.embedding, shape.width)
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(shape.layers + 1))
        self.layers = nn.ModuleList(nn.Linear(shape.width, shape.width) for _ in range(shape.layers))
        self.last = nn.Linear(shape.width, vocabulary)
        nn.init.normal_(self.embedding.weight, std=0.5)
        nn.init.zeros_(self.last.weight)

    def forward(self, contexts: Tensor) -> Tensor:
        state = self.first(self.embedding(contexts).flatten(1))
        for norm, layer in zip(self.norms, self.layers):
            state = state + 0.5 * functional.relu(layer(norm(state)))
        return self.last(self.norms[-1](state))


class Text:
    """The text as vocabulary numbers: nine tenths to train on, the rest held out."""

    def __init__(self) -> None:
        topics = pydoc_data.topics.topics
        data = "\n".join(topics[name] for name in sorted(topics)).encode()
        number = {byte: index for index, byte in enumerate(sorted(set(data)))}
        self.vocabulary = len(number)
        self.bytes = torch.tensor([number[byte] for byte in data])
        self.training = len(data) * 9 // 10

    def _contexts_at(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        return self.bytes[ends[:, None] + torch.arange(-CONTEXT, 0)], self.bytes[ends]

    def batch(self, seed: int, step: int, rank: int, size: int) -> tuple[Tensor, Tensor]:
        """Contexts and the bytes after them: a function of the arguments alone, so all methods see the same."""
        generator = torch.Generator().manual_seed((seed << 32) + (step << 8) + rank)
        return self._contexts_at(torch.randint(CONTEXT, self.training, (size,), generator=generator))

    def held_out(self, size: int) -> tuple[Tensor, Tensor]:
        """Evenly spread places of the held-out part."""
        return self._contexts_at(torch.linspace(self.training + CONTEXT, len(self.bytes) - 1, size).long())


def build(shape: Shape, text: Text, seed: int) -> NextByte:
    """A model whose first parameters are a function of `shape` and `seed`."""
    torch.manual_seed(seed)
    return NextByte(shape, text.vocabulary)
