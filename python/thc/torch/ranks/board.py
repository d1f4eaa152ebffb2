"""Where ranks tell how far they are, once one of them has lost the parameter server."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

__all__ = ["Board"]


class Board:
    """A few counters in a store that rank 0 keeps; nothing on a rank that does not reach it, which nobody ever answers.

    A rank may lose the server when others already have the last answer of a step and have gone on. They may wait for it in a
    collective of their own then, as DDP's forward pass begins with one for buffers, while it waits for them to agree. So it
    asks here, and whoever has nothing else to do answers. A step costs nothing as long as nobody asks.
    """

    def __init__(self, store: Any, use: int = 0) -> None:
        """``use`` tells those apart that have a store in common."""
        self._store = None if store is None else dist.PrefixStore(f"board/{use}", store)
        self._round = 0
        self._asked = self._told = -1

    def ask(self, step: int) -> bool:
        """Whether some rank has completed a step that this one has not."""
        if step != self._asked:
            self._add("asked", 1)
            self._asked = step
        return self._add(f"completed/{step}", 0) > 0

    def is_asked(self) -> bool:
        """Whether some rank has asked: it has lost the parameter server."""
        return self._add("asked", 0) > 0

    def tell(self, step: int) -> None:
        """Tells that all up to this step, exclusive, are complete here, if somebody has asked."""
        if step > self._told and step > 0 and self._add("asked", 0) > 0:
            self._add(f"completed/{step - 1}", 1)
            self._told = step

    def begin_anew(self) -> None:
        """Forgets who has asked, on all ranks alike."""
        self._round += 1

    def _add(self, key: str, amount: int) -> int:
        """Adds to a counter; what it is then. A store that is gone counts nothing."""
        if self._store is None:
            return 0
        try:
            return int(self._store.add(f"{self._round}/{key}", amount))
        except RuntimeError:
            return 0
