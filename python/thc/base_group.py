"""What every group can do: one with a parameter server, one whose process group adds up, one of rails."""

from __future__ import annotations

import abc
import atexit
import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from thc.arguments import Array, Plan, feedback_key
from thc.errors import ConfigError, ThcError

if TYPE_CHECKING:
    from typing_extensions import Self

    from thc.stats import Training
    from thc.server import Server
    from thc.stats import Job, Stats, Table

LINGER = 10.0
"""Seconds that an embedded parameter server waits at its end for workers that have not left yet."""

HASTE = 0.5
"""The same if this process ends by an exception."""

_open: weakref.WeakSet[BaseGroup] = weakref.WeakSet()


def open_groups() -> list[BaseGroup]:
    """The groups of this process that have not been closed."""
    return list(_open)


@atexit.register
def _close_all() -> None:
    # After an exception nobody shall wait for calls on other threads, which may never end, nor for workers that wait for this one.
    failed = getattr(sys, "last_value", None) is not None
    for group in list(_open):
        if failed:
            with contextlib.suppress(ThcError):
                group.give_up()
        group._leave(HASTE if failed else LINGER)


class Pending(abc.ABC):
    """An all-reduce under way."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""

    @abc.abstractmethod
    def wait(self) -> Array:
        """Waits for the mean, writes it into the array and returns the array."""


class BaseGroup(abc.ABC):
    """What averages arrays over workers. It has no state: each kind of group says for itself what it has."""

    worker: int
    """This worker's number."""
    workers: int
    ps: str
    """What adds up."""
    job_number: int
    method: str = "default"
    """``"thc-paper"`` if calls keep error feedback and this worker rounds independently of others, as in the paper."""
    training: Training
    """What the steps of models were made of whose gradients this group averages, as hooks of :mod:`thc.torch` measure it."""
    compresses_on: tuple[str, str] = ("cpu", "arrays of the CPU")
    """What compresses, and why: a hook of :mod:`thc.torch` may have found it better on a GPU. :meth:`stats` repeats it."""
    sums_in_lanes: bool = False
    """Whether something else adds up, in lanes, than a parameter server: a process group."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self not in _open

    @property
    def server(self) -> Server | None:
        """The parameter server inside this process, or its share of one, if there is one here."""
        return None

    @property
    @abc.abstractmethod
    def job(self) -> Job:
        """What the workers were told about the job."""

    @property
    @abc.abstractmethod
    def tables(self) -> list[Table]:
        """The job's lookup tables, which a plan may choose from; calls take the first that name none."""

    def _key(self, mode: str, feedback: int | str | None, plan: Plan | None) -> int | None:
        """The key of a call's error feedback, which the method may demand."""
        if self.method != "default" and feedback is None and (mode == "compressed" if plan is None else any(choice != "raw" for _, choice in plan)):
            raise ConfigError(f"feedback is missing, and method = {self.method!r} keeps error feedback: give a key, the same for the same tensor")
        return feedback_key(feedback)

    def allreduce(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Array:
        """Replaces the array by the mean over all workers, and returns it: see :meth:`thc.Group.allreduce`."""
        return self.allreduce_async(array, mode, feedback, plan).wait()

    @abc.abstractmethod
    def allreduce_async(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Pending:
        """Starts an all-reduce: see :meth:`thc.Group.allreduce_async`."""

    @abc.abstractmethod
    def stats(self) -> Stats:
        """Totals since the group was joined."""

    def give_up(self) -> None:
        """Gives the session up: see :meth:`thc.Group.give_up`. Without a server there is none."""

    def find_server(self, patience: float | str = 0.3) -> bool:
        """Whether what adds up answers: see :meth:`thc.Group.find_server`. Without a server there is nothing that could be lost."""
        return True

    def rejoin(self) -> None:
        """Joins anew after the session has ended, as all workers must."""

    @property
    @abc.abstractmethod
    def _library(self) -> Any:
        """What the library has of this group: its calls, and error feedback."""

    def save_feedback(self) -> dict[int, bytes]:
        """All error feedback of this worker, for a checkpoint: key to bytes.

        Raises :exc:`~thc.FeedbackError` while a call that keeps any is under way: wait for its handle first.
        """
        found: dict[int, bytes] = self._library.save_feedback()
        return found

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        """Restores what :meth:`save_feedback` returned.

        Raises :exc:`~thc.FeedbackError` if something in it is damaged, or if an array under a key of it is being reduced.
        """
        for key, state in saved.items():
            # The number of coordinates is the third field of its header.
            self._library.restore_feedback(key, int.from_bytes(state[8:16], "little"), state)

    def reset_feedback(self, key: int | str | None = None) -> None:
        """Forgets the error feedback under this key, or all. Raises :exc:`~thc.FeedbackError` while it is in use by a call."""
        for each in list(self.save_feedback()) if key is None else [feedback_key(key)]:
            self._library.reset_feedback(each)

    def close(self) -> None:
        """Leaves the job. An embedded parameter server stops when all have left, ten seconds later at most, and at once where the
        process ends by an exception. Again, it does nothing."""
        self._leave(LINGER)

    @abc.abstractmethod
    def _leave(self, linger: float) -> None:
        """Leaves the job, whose embedded parameter server waits so many seconds for others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
