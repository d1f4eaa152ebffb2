"""How a tensor is cut into partitions, pieces and runs, and the memory of the host that its pieces travel through."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from thc import _native

log = logging.getLogger("thc.torch")

RAW_WORDS = 256
"""Coordinates of a RAW packet."""


@dataclass(frozen=True)
class Run:
    """Neighbouring partitions that are equally long and of one table: what one launch of a kernel does."""

    table: int
    """Its lookup table; 0 of RAW."""
    size: int
    """Coordinates of a partition, with padding."""
    first: int
    """Its first partition, as signs and roundings number them."""
    count: int
    offset: int
    """Its first coordinate in the tensor."""
    valid: int
    """Coordinates of the tensor that it has: only the last one of a span may be padded."""
    indices: int
    """Where its indices begin among those of the call, in bytes."""
    sums: int
    """Where its sums begin, likewise."""
    packet: int
    """Its first packet in the call."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is padded."""
        return self.valid == self.size * self.count


@dataclass(frozen=True)
class Piece:
    """What is handed to the network, and comes from it, at a time."""

    runs: Sequence[Run]
    indices: slice
    """Its place among the bytes of the call's indices."""
    sums: slice
    """Its place among the bytes of the call's sums."""
    packets: slice
    """Its packets in the call."""


def _runs(parts: npt.NDArray[np.int64], starts: Sequence[int] = (0, 0, 0), sizes: Sequence[int] = (0, 0, 0)) -> Iterator[Run]:
    """The runs of some partitions. With the ``starts`` and ``sizes`` of the indices, sums and packets of their piece, a run begins in proportion to the
    coordinates before it: all partitions of a piece are of one table."""
    total, before, at = int(parts[:, 3].sum()), 0, 0
    while at < len(parts):
        first, offset, _, size, table, _ = (int(n) for n in parts[at])
        end = at
        while end < len(parts) and parts[end, 3] == size and parts[end, 4] == table and parts[end, 1] == offset + size * (end - at):
            end += 1
        indices, sums, packet = (start + before * whole // total for start, whole in zip(starts, sizes))
        yield Run(table, size, first, end - at, offset, int(parts[at:end, 2].sum()), indices, sums, packet)
        before += size * (end - at)
        at = end


class Cut:
    """A tensor of some length as a plan cuts it. Made once, used for every call of that plan."""

    def __init__(self, native: _native.Group, plan: list[tuple[int, int | None]], piece: int) -> None:
        self.plan = plan
        self.piece = piece
        parts, pieces = native.packed_layout(plan, piece)
        self.partitions = len(parts)
        self.raw = parts[:, 4] == 0
        """Which partitions travel RAW."""
        self.pieces: list[Piece] = []
        at = [0, 0, 0]
        for begin, end, *sizes in pieces.tolist():
            after = [start + size for start, size in zip(at, sizes)]
            self.pieces.append(Piece(tuple(_runs(parts[begin:end], at, sizes)), *map(slice, at, after)))
            at = after
        self.measured = tuple(_runs(parts))
        """Runs over the borders of pieces: norms do not travel piece by piece."""
        self.indices, self.sums, self.packets = at
        self._free: list[tuple[Pages, Any]] = []

    def take(self, pins: Any) -> Pages:
        """Memory for a call, pinned for ``pins`` if that is a CUDA device."""
        for at, (pages, done) in enumerate(self._free):
            # The device may still copy from it.
            if pages.free and (done is None or done.query()):
                del self._free[at]
                return pages
        return Pages([p.indices.stop - p.indices.start for p in self.pieces], [p.sums.stop - p.sums.start for p in self.pieces], pins)

    def give_back(self, pages: Pages, done: Any) -> None:
        """Keeps memory for a later call, after an event."""
        self._free.append((pages, done))


PORTABLE = 1
"""A flag of cudaHostRegister: pinned for all devices."""


def _unpin(addresses: Sequence[int], device: Any, memory: object = None) -> None:
    """Undoes what :meth:`Pages._pin` did. ``memory`` lives until then."""
    # Not on another device, where this process may have nothing yet.
    with torch.cuda.device(device):
        for address in addresses:
            torch.cuda.cudart().cudaHostUnregister(address)


class Pages:
    """One memory for the indices of each piece of a call, one for its sums. The library has those that were handed to it."""

    def __init__(self, indices: Sequence[int], sums: Sequence[int], device: Any) -> None:
        self.indices = [_native.Memory(size) for size in indices]
        self.sums = [_native.Memory(size) for size in sums]
        self.pinned = device.type == "cuda" and self._pin(device)
        self._tensors: dict[int, torch.Tensor] = {}

    def _pin(self, device: Any) -> bool:
        """Registers all of it with the driver; copies from memory that is not pinned work, too, but hold up their stream."""
        done: list[int] = []
        for memory in (*self.indices, *self.sums):
            result = torch.cuda.cudart().cudaHostRegister(memory.address, memory.bytes, PORTABLE)
            if int(result) != 0:
                log.warning("memory of %d bytes cannot be pinned (%s): copies to and from the GPU take longer", memory.bytes, result)
                _unpin(done, device)
                return False
            done.append(memory.address)
        # Before the memory itself goes: the finalizer holds what it has pinned.
        weakref.finalize(self, _unpin, done, device, (self.indices, self.sums))
        return True

    @property
    def free(self) -> bool:
        """Whether no call has any of it."""
        return all(memory.free for memory in (*self.indices, *self.sums))

    def tensor(self, memory: _native.Memory) -> torch.Tensor:
        """A memory's bytes."""
        found = self._tensors.get(memory.address)
        if found is None:
            found = self._tensors[memory.address] = torch.from_numpy(np.asarray(memory))
        return found
