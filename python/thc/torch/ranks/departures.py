"""Which ranks have left: a program that ends tells the others, which would wait for it as for one that is late."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import Any

import torch.distributed as dist

from thc import errors

_all: weakref.WeakSet[Departures] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    for departures in list(_all):
        departures.leave()


class Departures:
    """Notes in a store that rank 0 keeps; nothing on a rank that does not reach it."""

    def __init__(self, store: Any, use: int, rank: int, size: int) -> None:
        """``use`` tells those apart that have a store in common."""
        self._store = None if store is None else dist.PrefixStore(f"departures/{use}", store)
        self._rank, self._size = rank, size
        self._has_left = False
        self.rank: int | None = None
        """A rank that has left, as far as anybody has looked."""
        _all.add(self)

    def leave(self) -> None:
        """This rank makes no further step."""
        if self._store is not None and not self._has_left:
            self._has_left = True
            # Where rank 0 is gone there is nobody to tell.
            with contextlib.suppress(RuntimeError):
                self._store.add(str(self._rank), 1)
                self._store.add("any", 1)

    def look(self) -> bool:
        """Whether a rank has left."""
        if self._store is not None and self.rank is None:
            with contextlib.suppress(RuntimeError):
                if self._store.add("any", 0) > 0:
                    self.rank = next((rank for rank in range(self._size) if self._store.add(str(rank), 0) > 0), None)
        return self.rank is not None

    def check(self) -> None:
        """Raises :exc:`~thc.MissingError` if a rank is known to have left."""
        if self.rank is not None:
            error = errors.MissingError(
                f"rank {self.rank} has left: its program has ended, or has closed the model's hook, and this rank waits for its gradients; see what it "
                "said last, and start all ranks again"
            )
            error.missing = [self.rank]
            raise error
