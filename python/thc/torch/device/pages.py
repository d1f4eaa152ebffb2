"""Memory of the host that a device copies to and from, and the network sends from and receives into."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from thc import _native

__all__ = ["Pages"]

log = logging.getLogger("thc.torch")


PORTABLE = 1
"""A flag of cudaHostRegister: pinned for all devices."""


def _unpin(addresses: Sequence[int], device: Any) -> None:
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
        weakref.finalize(self, _release, done, device, (self.indices, self.sums))
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


def _release(addresses: Sequence[int], device: Any, memory: object) -> None:
    _unpin(addresses, device)
    del memory
