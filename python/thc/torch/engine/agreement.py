"""What all ranks of a hook must agree on: where gradients go, and from which bucket of which step on.

Nothing in here waits, sends or looks at a clock. The hook says what has happened, and does what :attr:`Agreement.wish` asks for;
a test drives machines of several ranks through every order of events.

The promise: whatever is lost and whenever, all ranks end a step with the same bucket from the same place. It rests on two facts.
A rank begins the call of bucket k + depth only when bucket k is complete there; so whoever has that call's answer knows that all have
bucket k, and lets go of its own gradients of it. And a step ends with one more call, begun when all buckets are complete; so whoever
has its answer knows that all ranks have all of the step.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from thc import errors

LOST = (errors.LostError, errors.NetworkError, errors.JoinError, errors.ClosedError)
"""What means that the parameter server, or the way to it, is lost."""


class Route(enum.Enum):
    """What becomes of a bucket."""

    THC = "through THC"
    PEERS = "through the process group"
    COMPARE = "first all ranks must say whether one has lost the server, for a collective of the process group comes next"
    HOLD = "nowhere, until the ranks agree at the end of the step"


class Wish(enum.Enum):
    """What has to be done before a step is over."""

    NOTHING = "it is over"
    END = "the call that ends a step: then `end_step`"
    GATHER = "all ranks' `row`s: then `compare_rows`, or `complete_elsewhere`"
    REPEAT = "the buckets from `first` on, through the process group: then `finish_repetition`"


class Agreement:
    """One rank's view. ``depth`` is how many buckets may be under way at once, the same on all ranks."""

    def __init__(self, *, fallback: bool, depth: int) -> None:
        self._fallback, self._depth = fallback, depth
        self.steps = 0
        """Steps that are over."""
        self.fallback_active = False
        """Whether gradients go through the process group, on all ranks."""
        self.lost = False
        """Whether this rank has lost the server, and the others may not know."""
        self.wish = Wish.NOTHING
        self.first = 0
        """From which bucket on a :attr:`Wish.REPEAT` goes."""
        self._all_know = False
        self.begin_step()

    def begin_step(self) -> None:
        """A backward pass begins, also if the last one ended half-way."""
        self.total = 0
        """Buckets of this step so far."""
        self.done = 0
        """How many of them are complete here, the first ones."""
        self.kept = 0
        """The first one that some rank may still lack, whose gradients must not be given up."""
        self.wish = Wish.NOTHING

    # Buckets, in their order.

    def route(self, index: int, needs_peers: bool) -> Route:
        """Where a bucket goes; asked again after :meth:`route_compared`. ``needs_peers``: it makes a collective of the process group even
        while the server is there, which all ranks must make or none."""
        self.total = index + 1
        if self.fallback_active:
            return Route.PEERS
        if needs_peers and self._fallback and not self._all_know:
            return Route.COMPARE
        return Route.HOLD if self.lost else Route.THC

    def route_compared(self, some_lost: bool) -> Route:
        """Whether some rank had lost the server before this bucket, as all ranks know now. Where the bucket goes."""
        self._all_know = some_lost
        if some_lost:
            self.lost = True
        return Route.HOLD if self.lost else Route.THC

    def lose(self) -> None:
        """A call has failed in a way that means that the server, or the way to it, is lost."""
        self.lost = True

    def complete(self, index: int) -> int:
        """A bucket's mean is there. Returns the first bucket that must be kept."""
        if not self.lost:
            self.done = index + 1
            margin = self._depth if self._fallback and not self.fallback_active else 0
            self.kept = max(self.kept, self.done - margin)
        return self.kept

    # The end of a step.

    def finish(self) -> None:
        """The last bucket has been dealt with: see :attr:`wish`."""
        if not self._fallback or self.fallback_active:
            self._advance()
        else:
            self.wish = Wish.GATHER if self.lost else Wish.END

    def end_step(self, answered: bool) -> None:
        """How the call went that ends a step."""
        if answered:
            self._advance()
        else:
            self.lost = True
            self.wish = Wish.GATHER

    @property
    def row(self) -> list[int]:
        """What this rank tells the others."""
        return [self.steps, self.done]

    def complete_elsewhere(self) -> None:
        """Some rank has completed this step and gone on. So all have all of it; that this one has lost the server comes up in the
        next step."""
        if self.done < self.total:
            raise errors.LostError(
                "the parameter server was lost, and the other ranks have gone on by quorum: "
                "without this rank's gradients they cannot be joined again"
            )
        self._advance()

    def compare_rows(self, rows: Sequence[Sequence[int]]) -> None:
        """What all ranks have told. A rank's row may be that of a step that it has left meanwhile: then all tell anew."""
        newest = max(step for step, _ in rows)
        if self.steps < newest:
            self.complete_elsewhere()
        elif all(step == newest for step, _ in rows):
            self.first = min(done for _, done in rows)
            if self.first < self.kept:
                raise errors.LostError("the parameter server was lost, and a rank lacks what others discarded")
            self.wish = Wish.REPEAT

    def finish_repetition(self) -> None:
        """The buckets that some rank lacked have been averaged without the server."""
        self.fallback_active = True
        self.lost = self._all_know = False
        self._advance()

    def _advance(self) -> None:
        self.steps += 1
        self.begin_step()

    # Between steps.

    def join_row(self, joined: bool) -> list[int]:
        """What this rank tells the others when it has tried to join anew, or would: a step that there is not, and how it went."""
        return [-2 - self.steps, int(joined)]

    def all_tell(self, rows: Sequence[Sequence[int]]) -> bool:
        """Whether all ranks have told the same good news, after the same step."""
        for rank, (step, _) in enumerate(rows):
            if step != rows[0][0]:
                raise errors.ConfigError(
                    f"resume was called after step {-2 - rows[0][0]} on rank 0 and after step {-2 - step} on rank {rank}: "
                    "call it on all ranks between the same steps"
                )
        return all(good for _, good in rows)

    def finish_rejoining(self, rows: Sequence[Sequence[int]]) -> bool | None:
        """Whether all ranks have joined anew, and so go on with the server; nothing if some row is an old one: then all tell anew."""
        if any(step >= 0 for step, _ in rows):
            return None
        works = self.all_tell(rows)
        self.fallback_active = not works
        self.lost = self._all_know = False
        return works
