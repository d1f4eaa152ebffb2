"""Whether a rank keeps up with a quorum: which of its steps' means it has, and when all ranks are to meet."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch.distributed as dist

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.engine.agreement import LOST
from thc.torch.engine.bucket import Bucket
from thc.torch.parts.part import Part, Span

PERIOD = 0.1
"""Seconds between two looks at whether a rank waits for the others."""


class Meetings:
    """In a store that rank 0 keeps: which ranks have stopped because they are behind, and whether the others have come to meet them."""

    def __init__(self, store: Any) -> None:
        self._store = dist.PrefixStore("meetings", store)
        self._round = 0
        self._looked = 0.0

    def stop(self, most: int) -> bool:
        """This rank is behind and waits for the others, who hear of it: if no more than so many ranks do. Whether it does."""
        if self._store.add(f"{self._round}/stopped", 1) <= most:
            return True
        self._store.add(f"{self._round}/stopped", -1)
        return False

    def lose(self) -> None:
        """This rank can go no further: it has lost the parameter server."""
        self._store.add(f"{self._round}/lost", 1)

    def arrive(self) -> None:
        """This rank has come to meet the others."""
        self._store.add(f"{self._round}/come", 1)

    def stopped_ranks(self) -> int:
        """How many ranks go no further."""
        return sum(int(self._store.add(f"{self._round}/{why}", 0)) for why in ("stopped", "lost"))

    def has_begun(self) -> bool:
        """Whether some rank has come."""
        return bool(self._store.add(f"{self._round}/come", 0) > 0)

    def is_wanted(self) -> bool:
        """Whether a rank has stopped, as of a moment ago: the store is looked into now and then only."""
        if time.monotonic() - self._looked < PERIOD:
            return False
        self._looked = time.monotonic()
        return self.stopped_ranks() > 0

    def end(self) -> None:
        """They have met: on all ranks alike."""
        self._round += 1


class Pace(Part):
    """What an engine sees of this. In a job with a quorum a rank that comes too late has no mean, and is behind until it
    gets the others' parameters.

    A step ends with a call of two numbers: whether some rank waits to be met, and whether gradients were not finite. Every rank that has the result of
    that call has the same as all others who have it, so all of these stop after the same step; a rank without it is behind and stops, too.
    """

    def __init__(self, group: BaseGroup, meetings: Meetings) -> None:
        self._group, self._meetings = group, meetings
        self.error: errors.ThcError | None = None
        """Why the parameter server counts as lost, if it does."""
        self.begin_anew()

    def restart(self, step: int) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """All have met, and are alike."""
        self.behind = self.is_due = False
        """Whether this rank lacks part of a mean; whether all are to meet before the next step."""
        self.error = None
        self._lost = self._group.stats().lost

    def _lose(self, error: errors.ThcError) -> None:
        self.behind, self.error = True, error

    def end(self, bucket: Bucket, span: Span | None, error: BaseException | None) -> bool:
        if not isinstance(error, LOST):
            return False
        self._lose(error)
        with bucket.on_stream():
            bucket.buffer.zero_()
        return True

    def end_calls(self, nonfinite: bool) -> None:
        if self.error is not None:
            return
        call = np.array([self._meetings.is_wanted(), nonfinite], np.float32)
        try:
            self._group.allreduce(call, mode="raw")
        except LOST as error:
            self._lose(error)
            return
        lost, self._lost = self._lost, self._group.stats().lost
        self.behind |= self._lost > lost
        self.is_due = bool(call[0] > 0)
        # Whoever was in time has failed, or has not, as all others. The share is of those.
        self.behind |= nonfinite and bool(call[1] < 0.999)
