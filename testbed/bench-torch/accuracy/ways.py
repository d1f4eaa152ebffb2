"""Ways to average: exactly, or through THC as the ranks of a job do it, all of them in one process.

Each rank has the codec that it would have, and what the aggregator adds up is added up here: the same indices, table values, sums and means as through a
server with this seed (docs/without-a-server.md), in the blocks that a hook's gradients have.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from accuracy.emulated import Emulated
from accuracy.quorum import Late
from thc import _native
from thc.arguments import feedback_key
from thc.torch.compression.layout import Layout, Segment

BLOCK = 13


class Way(Protocol):
    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Of all ranks' gradients, which it may use up."""

    bits: float
    """Of a coordinate on the way up, on average."""


def exact_mean(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(gradients).double().mean(0).float()


class Exact:
    """In f64."""

    bits = 32.0

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return exact_mean(gradients)


class Thc:
    """``bits`` of an index and ``lane`` of a sum as in a job's table; ``feedback`` as in :func:`thc.torch.hook`. With ``whole`` blocks go over the borders of parameters. With ``independent`` each rank
    rounds by a seed of its own, as in the paper."""

    def __init__(
        self, model: torch.nn.Module, ranks: int, *, bits: int | None = 4, lane: int = 8, whole: bool = False, feedback: bool = False,
        independent: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        self._codecs = [
            _native.Collective(
                rank=rank, ranks=ranks, tables=[] if bits is None else [(bits, lane, None, None)], lane=lane, block=BLOCK, job_seed=1000 + seed,
                seed=rank + 1 if independent else None, threads=1,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        segments, offset = [], 0
        for name, parameter in model.named_parameters():
            segments.append(Segment(name, offset, parameter.numel(), True))
            offset += parameter.numel()
        self._layout = Layout("accuracy", segments)
        self._feedback = feedback_key("accuracy") if feedback else None
        table = self._codecs[0].tables()[0]["id"]
        self._plan = [(self._layout.length, table)] if whole else self._layout.spans(table)
        self._sent = self._coordinates = 0.0
        self._width = bits or lane

    @property
    def bits(self) -> float:
        return self._sent / max(1.0, self._coordinates)

    def _reduce(self, data: list[torch.Tensor], plan: list[tuple[int, Any]]) -> torch.Tensor:
        """The mean of arrays, which take it; that of the first."""
        begun = [codec.begin(array.numpy(), plan, self._feedback) for codec, array in zip(self._codecs, data)]
        norms = np.maximum.reduce([norms for _, norms in begun])
        counts = [codec.settle(call, norms) for codec, (call, _) in zip(self._codecs, begun)][0]
        piece_of = 1 << 20
        for piece in range(len(counts)):
            place = slice(piece * piece_of, (piece + 1) * piece_of)
            words = [codec.compress(call, piece, array.numpy()[place]) for codec, (call, _), array in zip(self._codecs, begun, data)]
            with np.errstate(over="ignore"):
                sums = np.add.reduce([word.view(np.uint32) for word in words], dtype=np.uint32).view(np.int32)
            for codec, (call, _), array in zip(self._codecs, begun, data):
                codec.finish(call, piece, sums, array.numpy()[place])
        for codec, (call, _) in zip(self._codecs, begun):
            codec.end(call)
        for length, choice in plan:
            padded = -(-length // 1024) * 1024
            self._sent += padded * self._width
        return data[0]

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        self._coordinates += self._layout.length
        return self._reduce(gradients, self._plan)


WAYS: dict[str, dict[str, Any] | None] = {
    "exact": None,
    "thc": {},
    "independent": {"independent": True},
    "paper": {"whole": True, "feedback": True, "independent": True},
    "whole": {"whole": True},
    "wide": {"lane": 16},
    "thc5": {"bits": 5},
    "thc8": {"bits": 8, "lane": 16},
    "lanes6": {"bits": None, "lane": 6},
    "lanes8": {"bits": None, "lane": 8},
}
"""By name: exact means; the default; with independent roundings; the THC paper's way; blocks over the borders of parameters; the default with sums of 16 bits;
5 and 8 bits; and
sums through a process group with lanes of 6 and 8 bits."""

EMULATED: dict[str, dict[str, Any]] = {
    "nearest": {"rounding": "nearest", "kept": 1.0},
    "decayed": {"kept": 0.5},
    "ef21": {"differences": True},
}
"""By name, of 4 bits and in blocks over the borders of parameters: nearest rounding with error feedback, random rounding with half of it, EF21."""


LATE: dict[str, dict[str, Any]] = {
    f"late{late}{'-kept' if feedback else ''}": {"late": late, "feedback": feedback} for late in range(4) for feedback in (False, True)
}
"""By name: so many ranks are late in each step, and what they have is dropped, or kept for their next one."""


def way(name: str, model: torch.nn.Module, ranks: int, seed: int) -> Way:
    if name in EMULATED:
        return Emulated(sum(p.numel() for p in model.parameters()), ranks, seed, **EMULATED[name])
    if name in LATE:
        return Late(model, ranks, seed, **LATE[name])
    options = WAYS[name]
    return Exact() if options is None else Thc(model, ranks, seed=seed, **options)
