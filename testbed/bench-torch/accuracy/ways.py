"""Ways to average: exactly, or through THC as the ranks of a job do it, all of them in one process.

Each rank has the codec that it would have, and what the aggregator adds up is added up here: the same indices, table values, sums and means as through a
server with this seed (docs/without-a-server.md), in the blocks that a hook's gradients have.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from accuracy.quorum import Late
from thc import _native
from thc.arguments import feedback_key
from thc.torch.compression.layout import Layout, Segment

LANE = 8
DEFAULT = (4, None, None), 13
"""Bits, granularity and fraction of the table, and log2 of a block; the table is chosen for the ranks."""
PAPER = (4, 30, 1 / 32), 20


class Way(Protocol):
    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Of all ranks' gradients, which it may use up."""


def exact_mean(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(gradients).double().mean(0).float()


class Exact:
    """In f64."""

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return exact_mean(gradients)


class Thc:
    """The default of :func:`thc.torch.wrap`: 4 bits up, sums of 8. ``paper``: its method "thc-paper", with error feedback, and each rank rounds by a seed of
    its own."""

    def __init__(self, model: torch.nn.Module, ranks: int, *, paper: bool = False, seed: int = 0) -> None:
        (bits, granularity, fraction), block = PAPER if paper else DEFAULT
        lane = 16 if ranks * (granularity or 15) > 255 else LANE
        self._codecs = [
            _native.Collective(
                rank=rank, ranks=ranks, tables=[(bits, lane, granularity, fraction)], lane=lane, block=block, job_seed=1000 + seed,
                seed=rank + 1 if paper else None, threads=1,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        segments, offset = [], 0
        for name, parameter in model.named_parameters():
            segments.append(Segment(name, offset, parameter.numel(), True))
            offset += parameter.numel()
        self._layout = Layout("accuracy", segments)
        self._feedback = feedback_key("accuracy") if paper else None
        table = self._codecs[0].tables()[0]["id"]
        self._plan = self._layout.spans(table)

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        begun = [codec.begin(array.numpy(), self._plan, self._feedback) for codec, array in zip(self._codecs, gradients)]
        norms = np.maximum.reduce([norms for _, norms in begun])
        counts = [codec.settle(call, norms) for codec, (call, _) in zip(self._codecs, begun)][0]
        piece_of = 1 << 20
        for piece in range(len(counts)):
            place = slice(piece * piece_of, (piece + 1) * piece_of)
            words = [codec.compress(call, piece, array.numpy()[place]) for codec, (call, _), array in zip(self._codecs, begun, gradients)]
            with np.errstate(over="ignore"):
                sums = np.add.reduce([word.view(np.uint32) for word in words], dtype=np.uint32).view(np.int32)
            for codec, (call, _), array in zip(self._codecs, begun, gradients):
                codec.finish(call, piece, sums, array.numpy()[place])
        for codec, (call, _) in zip(self._codecs, begun):
            codec.end(call)
        return gradients[0]


def way(name: str, model: torch.nn.Module, ranks: int, seed: int) -> Way:
    """Returns the way of a name in ``WAYS`` of command.py."""
    if name.startswith("late"):
        return Late(model, ranks, seed, late=int(name.removeprefix("late")))
    return Exact() if name == "exact" else Thc(model, ranks, paper=name == "thc-paper", seed=seed)
