"""All-reduces whose compression runs where the gradients are."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from thc.base_group import BaseGroup
from thc.errors import FeedbackError
from thc.stats import Table
from thc.torch.compression.feedback import HEADER
from thc.torch.device.call import Call
from thc.torch.device.cut import Cut

PIECE = 20
"""log2 of the coordinates that are copied between device and host at a time."""


@dataclass(frozen=True)
class Grid:
    """A lookup table as kernels read it (docs/protocol.md, P31): by cell of the grid, 0 to g."""

    width: int
    """Bits of an index."""
    lane: int
    """Bits of a sum."""
    end: float
    """g."""
    cells: torch.Tensor
    """i32: the index z of the cell, T[z] · 2^8 and T[z + 1] · 2^16."""
    slopes: torch.Tensor
    """f32, 1 / (T[z + 1] - T[z]); 0 for the last index."""
    starts: torch.Tensor
    """f32, 1 - T[z] · slope; 0 for the last index."""

    @classmethod
    def from_table(cls, table: Table, device: torch.device) -> Grid:
        """A job's table."""
        values = np.array(table.values, dtype=np.int64)
        z = np.searchsorted(values, np.arange(table.granularity + 1), side="right") - 1
        low = values[z]
        last = z == len(values) - 1
        high = np.where(last, 0, values[np.minimum(z + 1, len(values) - 1)])
        gap = np.where(last, 1, high - low).astype(np.float64)
        slopes = np.where(last, 0.0, 1.0 / gap).astype(np.float32)
        starts = np.where(last, 0.0, 1.0 - low * slopes.astype(np.float64)).astype(np.float32)
        cells = (z | low << 8 | high << 16).astype(np.int32)
        told = [torch.from_numpy(each).to(device) for each in (cells, slopes, starts)]
        return cls(table.width, table.lane, float(table.granularity), told[0], told[1], told[2])


class DeviceCodec:
    """Averages tensors of one device through a group.

    ``kernels`` computes, as :mod:`thc.torch.device.compiled` does. What other ranks compute with, a CPU or another device, makes no difference: the
    bits are the same. Error feedback is kept on the device, in two buffers of f32 for each key, before and after a call, that change places when
    the call is done; it is saved and restored as that of a :class:`thc.Group`, byte for byte.
    """

    def __init__(self, group: BaseGroup, device: torch.device, kernels: ModuleType, piece: int = PIECE) -> None:
        self.group, self.device = group, device
        self.kernels: Any = kernels
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        """Where everything happens, beside what the rest of the process does on the device."""
        self._piece = piece
        self._tables = group.tables
        self._grids: dict[int, Grid | None] = {0: None, **{table.id: Grid.from_table(table, device) for table in self._tables}}
        self._cuts: dict[tuple[tuple[int, int | None], ...], Cut] = {}
        self._feedback: dict[int, list[torch.Tensor]] = {}

    def on_stream(self) -> Any:
        """Has what follows in a ``with`` block go to this stream, and to its device."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def grid(self, table: int) -> Grid | None:
        """A table of the job on the device; none of RAW."""
        return self._grids[table]

    def cut(self, plan: tuple[tuple[int, int | None], ...]) -> Cut:
        """How a plan cuts a tensor."""
        found = self._cuts.get(plan)
        if found is None:
            found = self._cuts[plan] = Cut(self.group._library, list(plan), self._piece)
        return found

    def begin(
        self,
        x: torch.Tensor,
        feedback: int | None = None,
        plan: list[tuple[int, int | str]] | None = None,
        mode: str = "compressed",
    ) -> Call:
        """Starts an all-reduce of a tensor of f32, f16 or bf16, one-dimensional and contiguous: the norms are on their way to the
        host when it returns. The tensor is there when the current stream has come so far. Other
        parameters: see :meth:`thc.Group.allreduce`. Calls must be begun, submitted and finished in the same order on all ranks,
        and the tensor must not be used until the call is finished."""
        spans: tuple[tuple[int, int | None], ...] = ((x.numel(), None if mode == "raw" else self._tables[0].id),)
        if plan is not None:
            spans = tuple((length, None if isinstance(choice, str) else choice) for length, choice in plan)
        # What goes RAW without a plan takes no error feedback along.
        key = None if plan is None and mode == "raw" else self.group._key(mode, feedback, plan)
        return Call(self, self.cut(spans), x, key)

    def allreduce(self, x: torch.Tensor, feedback: int | None = None, plan: list[tuple[int, int | str]] | None = None, mode: str = "compressed") -> Any:
        """The same to its end, but for the last kernels on a GPU: what is returned is an event after which the mean is in the
        tensor, nothing on the CPU. Raises what :meth:`thc.Group.allreduce` raises."""
        call = self.begin(x, feedback, plan, mode)
        call.submit()
        call.feed()
        return call.finish()

    # Error feedback, by key.

    def begin_feedback(self, key: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Error feedback before a call, and memory for that after it, on the current stream."""
        found = self._feedback.get(key)
        if found is None:
            found = self._feedback[key] = [torch.zeros(length, dtype=torch.float32, device=self.device)]
        if found[0].numel() != length:
            raise FeedbackError(
                f"tensor {key:#x} had {found[0].numel()} coordinates before and {length} now: give another key, or reset its error feedback"
            )
        if len(found) == 1:
            found.append(torch.empty_like(found[0]))
        return found[0], found[1]

    def commit_feedback(self, key: int) -> None:
        """The call is done: what it left holds from now on."""
        self._feedback[key].reverse()

    def save_feedback(self) -> dict[int, bytes]:
        """All of it; waits for the codec's stream."""
        with self.on_stream():
            kept = {key: buffers[0].cpu().numpy().astype("<f4") for key, buffers in sorted(self._feedback.items())}
        return {key: HEADER.pack(b"THCF", 1, len(values)) + values.tobytes() for key, values in kept.items()}

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        """What :meth:`save_feedback` returned."""
        for key, state in saved.items():
            values = np.frombuffer(state, dtype="<f4", offset=HEADER.size)
            if HEADER.unpack_from(state) != (b"THCF", 1, len(values)) or not np.isfinite(values).all():
                raise FeedbackError(f"saved error feedback of tensor {key:#x} is damaged")
            with self.on_stream():
                self._feedback[key] = [torch.from_numpy(values.astype(np.float32)).to(self.device)]

    def reset_feedback(self, key: int) -> None:
        """Forgets a tensor's."""
        self._feedback.pop(key, None)
