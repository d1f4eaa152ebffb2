"""The group of a rank that is alone: it has the mean already."""

from __future__ import annotations

from typing import Any

from thc.arguments import Array, Plan, as_f32
from thc.base_group import BaseGroup, Pending, _open
from thc.errors import ClosedError
from thc.stats import Job, Stats, Table, Training


class _Over(Pending):
    """A call that was over when it began."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def done(self) -> bool:
        return True

    def wait(self) -> Array:
        return self._array


class LoneGroup(BaseGroup):
    """One rank, whose gradients stay what they are: nothing is compressed, and there is no server."""

    def __repr__(self) -> str:
        return "<thc.torch, one rank alone>"

    def __init__(self) -> None:
        self.worker, self.workers = 0, 1
        self.ps, self.job_number = "this rank alone", 0
        self.training = Training()
        _open.add(self)

    @property
    def job(self) -> Job:
        return Job.without_server(1, bits=32, granularity=1, lane=32)

    @property
    def tables(self) -> list[Table]:
        return []

    def allreduce_async(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Pending:
        if self.closed:
            raise ClosedError("the group has been closed")
        as_f32(array)
        return _Over(array)

    def stats(self) -> Stats:
        """There is nothing but steps to count."""
        device, why = self.compresses_on
        return Stats.without_packets(device=device, why=why, **self.training.totals())

    @property
    def _library(self) -> Any:
        return self

    def save_feedback(self) -> dict[int, bytes]:
        return {}

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        """Nothing is lost here that could be added later."""

    def _leave(self, linger: float) -> None:
        _open.discard(self)
