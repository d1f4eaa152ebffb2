"""Where a backward pass begins and ends, and how its buckets are numbered."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

__all__ = ["Passes"]


class Passes:
    """Numbers the buckets of each backward pass from 0 on, without gaps. All methods are for the thread of autograd.

    With ``skip_all_reduce_unused_params`` DDP leaves out buckets whose parameters nothing has used, the last of them, too. Then the end of
    the pass is what ends a step.
    """

    def __init__(self, model: Any) -> None:
        self.skips = isinstance(model, DistributedDataParallel) and bool(getattr(model, "skip_all_reduce_unused_params", False))
        """Whether buckets may be left out."""
        self._model = model
        self.count = 0
        """Buckets of the pass under way."""
        self._latest = -1
        """DDP's number of the latest one."""

    @property
    def is_finalized_by_hand(self) -> bool:
        """Whether DDP leaves the end of a backward pass to the program (since PyTorch 2.15)."""
        return bool(getattr(self._model, "require_manual_backward_finalization", False))

    def number(self, given: Any) -> int:
        """The number of a bucket that DDP has handed over, in its pass."""
        index = int(given.index())
        # A pass may have ended half-way. DDP hands buckets over in their order.
        number = self.count if self.skips and index > self._latest else 0 if self.skips else index
        self._latest, self.count = index, number + 1
        return number

    def end(self) -> int:
        """The pass is over. Returns how many buckets it had."""
        count, self.count, self._latest = self.count, 0, -1
        return count
