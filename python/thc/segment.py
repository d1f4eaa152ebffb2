"""Memory that processes of one host share: it has no name, so it goes with the last process that has it."""

from __future__ import annotations

import mmap
import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Pool", "Segment"]


class Segment:
    """Coordinates in memory that other processes may have, too."""

    def __init__(self, file: int, number: int, owns: bool) -> None:
        self.number = number
        """The number by which its owner knows it."""
        self._file = file if owns else None
        self._memory = mmap.mmap(file, 0)
        self._all: npt.NDArray[Any] = np.frombuffer(self._memory, dtype=np.float32)
        if not owns:
            os.close(file)

    @classmethod
    def create(cls, length: int, number: int) -> Segment:
        """A new one for at least so many coordinates."""
        file = os.memfd_create("thc")
        os.ftruncate(file, -(-4 * max(length, 1) // mmap.PAGESIZE) * mmap.PAGESIZE)
        return cls(file, number, owns=True)

    @property
    def size(self) -> int:
        """Coordinates."""
        return self._all.size

    @property
    def file(self) -> int:
        """What is handed to other processes."""
        assert self._file is not None, "another process's segment"
        return self._file

    def view(self, length: int) -> npt.NDArray[np.float32]:
        """The first coordinates."""
        return self._all[:length]

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            os.close(self._file)  # type: ignore[arg-type]


class Pool:
    """This process's segments, to be used again. Any thread may take and give back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Segment] = []
        self._made = 0

    def take(self, length: int) -> Segment:
        """The smallest free one that has room, or a new one."""
        with self._lock:
            fitting = [segment for segment in self._free if segment.size >= length]
            if fitting:
                found = min(fitting, key=lambda segment: segment.size)
                self._free.remove(found)
                return found
            self._made += 1
            return Segment.create(length, self._made)

    def give(self, segment: Segment) -> None:
        """Gives one back that nobody reads or writes any more."""
        with self._lock:
            self._free.append(segment)
