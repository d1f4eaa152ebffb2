"""Ways to average: exactly, or through THC as the ranks of a job do it, all of them in one process.

Each rank has the codec that it would have, and what the aggregator adds up is added up here: the same indices, table values, sums and means as through a
server with this seed (docs/without-a-server.md). Scales are those of a hook.
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
from thc.torch.engine.options import POWER
from thc.torch.compression.scales import Scales

BLOCK = 13
RAW = None


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
    """``bits`` of an index and ``lane`` of a sum as in a job's table; ``scales`` and ``feedback`` as in :func:`thc.torch.hook`. With ``independent`` each rank
    rounds by a seed of its own, as in the paper."""

    def __init__(
        self, model: torch.nn.Module, ranks: int, *, bits: int | None = 4, lane: int = 8, scales: bool = True, feedback: bool = False,
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
            rows = parameter.shape[0] if parameter.dim() == 2 else 1
            segments.append(Segment(name, offset, parameter.numel(), True, False, rows))
            offset += parameter.numel()
        self._layout = Layout("accuracy", segments)
        self._scales = Scales(POWER, ranks) if scales else None
        self._feedback = feedback_key("accuracy") if feedback else None
        self._table = self._codecs[0].tables()[0]["id"]
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
            self._sent += padded * (32 if choice is RAW else self._width)
        return data[0]

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        layout, scales = self._layout, self._scales
        self._coordinates += layout.length
        if scales is None:
            return self._reduce(gradients, [(layout.length, self._table)])
        scales.settle(layout, gradients[0].device)
        rows, told = scales.rows(layout), None
        if rows:
            every = [rows.tell(gradient) for gradient in gradients]
            told = self._reduce(every, [(every[0].numel(), RAW)])
        scale = None
        for gradient in gradients:
            scale = scales.apply(layout, gradient)
        mean = self._reduce(gradients, [(length, RAW if choice == "raw" else choice) for length, choice in layout.spans("raw" if scale is None else self._table)])
        if rows and told is not None:
            rows.clear(told, mean)
        scales.learn(layout, mean)
        return mean


WAYS: dict[str, dict[str, Any] | None] = {
    "exact": None,
    "thc": {},
    "independent": {"independent": True},
    "paper": {"scales": False, "feedback": True, "independent": True},
    "plain": {"scales": False},
    "wide": {"lane": 16},
    "thc5": {"bits": 5},
    "thc8": {"bits": 8, "lane": 16},
    "lanes6": {"bits": None, "lane": 6},
    "lanes8": {"bits": None, "lane": 8},
}
"""By name: exact means; the default; with independent roundings; the THC paper's way; neither scales nor feedback; the default with sums of 16 bits;
5 and 8 bits; and
sums through a process group with lanes of 6 and 8 bits."""

EMULATED: dict[str, dict[str, Any]] = {
    "nearest": {"rounding": "nearest", "kept": 1.0},
    "decayed": {"kept": 0.5},
    "ef21": {"differences": True},
}
"""By name, of 4 bits and without scales: nearest rounding with error feedback, random rounding with half of it, EF21."""


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
