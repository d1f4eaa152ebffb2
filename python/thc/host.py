"""One stream per host: its ranks add up in shared memory, and one of them, the speaker, takes the sum to the other hosts."""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thc import errors
from thc.arguments import Array, Plan, as_f32
from thc.base_group import BaseGroup, Pending, _open
from thc.group import Group, Handle
from thc.line import Line
from thc.row import Training
from thc.segment import Pool, Segment
from thc.stats import Job, Stats, Table

__all__ = ["HostGroup", "Listener", "Speaker", "this_host"]

PASSING = (
    errors.NonFiniteError,
    errors.NormError,
    errors.PlanError,
    errors.EmptyError,
    errors.TooLongError,
    errors.FeedbackError,
    errors.ConfigError,
)
"""Errors of one call, after which the group goes on."""


def this_host() -> str:
    """What processes have in common that can share memory and reach each other by a name: kernel and network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"


def _tag(array: npt.NDArray[Any], mode: str, feedback: int | str | None, plan: Plan | None) -> int:
    """A checksum of what all ranks of a host must give alike."""
    spans = None if plan is None else [tuple(span) for span in plan]
    return zlib.crc32(repr((array.size, mode if plan is None else "", feedback, spans)).encode())


def _error_fields(error: BaseException) -> list[str]:
    return [type(error).__name__, str(error)]


def _rebuild_error(told: Sequence[str]) -> errors.ThcError:
    """An error as another rank has raised it."""
    kind = getattr(errors, told[0], errors.ThcError)
    return kind(told[1]) if issubclass(kind, errors.ThcError) else errors.ThcError(told[1])


class HostGroup(Group):
    """A :class:`thc.Group` of all ranks, in which each host is one worker of the job. Means are over ranks, whatever their number on
    each host. Its calls are those of a group, all ranks make them alike; error feedback is the host's, and the speaker has it.
    """

    def __init__(self, rank: int, ranks: int, hosts: int, ps: str, job: int) -> None:
        self._server = None
        self._pid = os.getpid()
        self.worker, self.workers, self.hosts = rank, ranks, hosts
        self.ps, self.job_number = ps, job
        self._calls = 0
        self._over: errors.ThcError | None = None
        self._pool = Pool()
        self.training = Training()
        _open.add(self)

    def _next(self) -> int:
        if self.closed:
            raise errors.ClosedError("the group has been closed")
        if self._over is not None:
            raise self._over
        self._calls += 1
        return self._calls

    def give_up(self) -> None:
        """The speaker alone has a session."""

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self.close()

    def __repr__(self) -> str:
        return f"<thc.HostGroup rank {self.worker} of {self.workers} on {self.hosts} hosts, job {self.job_number} at {self.ps}>"


class Speaker(HostGroup):
    """On the first rank of a host: it has the host's ``group``, and a line to each of the others."""

    def __init__(self, group: BaseGroup, rank: int, ranks: int, lines: dict[int, Line]) -> None:
        super().__init__(rank, ranks, group.workers, group.ps, group.job_number)
        self.group = group
        """The host's membership in the job."""
        self._server = group.server
        self._lines = [lines[each] for each in sorted(lines)]
        self._scale = np.float32(group.workers / ranks)
        self._read = [0] * len(self._lines)
        """By line, up to which call its rank has read the means."""
        self._results: deque[tuple[int, Segment]] = deque()
        """Means that some rank may still be reading."""
        self.sums_in_lanes = group.sums_in_lanes
        self._lock = threading.Lock()
        told = {"job": asdict(group.job), "tables": [asdict(table) for table in group.tables], "ps": group.ps}
        for line in self._lines:
            line.send({**told, "number": group.job_number, "hosts": group.workers, "lanes": group.sums_in_lanes, "stats": asdict(group.stats())})

    def give_up(self) -> None:
        self.group.give_up()

    @property
    def job(self) -> Job:
        return self.group.job

    @property
    def tables(self) -> list[Table]:
        return self.group.tables

    def _add_up(self, data: npt.NDArray[np.float32], tag: int) -> tuple[int, Segment]:
        """What this host's ranks have in this call, added in the order of ranks and weighted so that the mean over hosts is that over
        ranks."""
        call = self._next()
        total = self._pool.take(data.size)
        into, addend = total.view(data.size), data
        try:
            for at, line in enumerate(self._lines):
                message, segment = line.receive()
                if segment is None or (message["call"], message["tag"]) != (call, tag):
                    raise errors.MismatchError(
                        "ranks of one host called different all-reduces: run models in the same order on all ranks"
                    )
                self._read[at] = message["read"]
                np.add(addend, segment.view(data.size), out=into)
                addend = into
        except errors.ThcError as error:
            self._end_session(error)
            raise
        np.multiply(addend, self._scale, out=into)
        with self._lock:
            while self._results and self._results[0][0] <= min(self._read, default=call):
                self._pool.give(self._results.popleft()[1])
        return call, total

    def _spread(self, call: int, mean: Segment, length: int) -> None:
        """Gives the mean to the host's ranks."""
        stats = asdict(self.group.stats())
        with self._lock:
            self._results.append((call, mean))
        for line in self._lines:
            line.send({"call": call, "stats": stats}, mean)

    def _fail(self, call: int, error: errors.ThcError) -> None:
        if not isinstance(error, PASSING):
            self._end_session(error)
            return
        for line in self._lines:
            line.send({"call": call, "error": _error_fields(error)})

    def _end_session(self, error: errors.ThcError) -> None:
        """Nothing more is added up before all have joined anew."""
        if self._over is None:
            self._over = error
            for line in self._lines:
                with suppress(errors.MissingError):
                    line.send({"over": _error_fields(error)})

    def allreduce(
        self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None
    ) -> Array:
        data = as_f32(array)
        call, total = self._add_up(data, _tag(data, mode, feedback, plan))
        mean = total.view(data.size)
        try:
            self.group.allreduce(mean, mode=mode, feedback=feedback, plan=plan)
        except errors.ThcError as error:
            self._fail(call, error)
            raise
        array[...] = mean.reshape(array.shape)
        self._spread(call, total, data.size)
        return array

    def allreduce_async(
        self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None
    ) -> Handle:
        data = as_f32(array)
        call, total = self._add_up(data, _tag(data, mode, feedback, plan))
        try:
            inner = self.group.allreduce_async(total.view(data.size), mode=mode, feedback=feedback, plan=plan)
        except errors.ThcError as error:
            self._fail(call, error)
            raise
        return _Spoken(self, call, inner, total, array)

    def stats(self) -> Stats:
        return replace(self.group.stats(), **self.training.totals())

    def find_server(self, patience: float | str = 0.3) -> bool:
        return self.group.find_server(patience)

    def rejoin(self) -> None:
        try:
            # What ranks had sent for calls that never were is passed over.
            for line in self._lines:
                while "rejoin" not in line.receive()[0]:
                    pass
            self.group.rejoin()
        except errors.ThcError as error:
            for line in self._lines:
                with suppress(errors.MissingError):
                    line.send({"rejoined": _error_fields(error)})
            raise
        self._results.clear()
        self._calls, self._over, self._read = 0, None, [0] * len(self._lines)
        self._pool = Pool()
        for line in self._lines:
            line.forget()
            line.send({"rejoined": None})

    def save_feedback(self) -> dict[int, bytes]:
        return self.group.save_feedback()

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        self.group.restore_feedback(saved)

    def reset_feedback(self, key: int | str | None = None) -> None:
        self.group.reset_feedback(key)

    def _leave(self, linger: float) -> None:
        _open.discard(self)
        if self._pid != os.getpid():
            return
        self.group._leave(linger)
        for line in self._lines:
            line.close()


class _Spoken(Handle):
    """A speaker's call under way."""

    def __init__(self, speaker: Speaker, call: int, inner: Pending, total: Segment, array: Array) -> None:
        self._speaker, self._call, self._inner, self._total, self._array = speaker, call, inner, total, array

    def done(self) -> bool:
        return self._inner.done()

    def wait(self) -> Array:
        length = self._array.size
        try:
            self._inner.wait()
        except errors.ThcError as error:
            self._speaker._fail(self._call, error)
            raise
        self._array[...] = self._total.view(length).reshape(self._array.shape)
        self._speaker._spread(self._call, self._total, length)
        return self._array


class Listener(HostGroup):
    """On the other ranks of a host."""

    def __init__(self, rank: int, ranks: int, line: Line) -> None:
        told, _ = line.receive()
        if "over" in told:
            raise _rebuild_error(told["over"])
        super().__init__(rank, ranks, told["hosts"], told["ps"], told["number"])
        self._line = line
        self._job = Job(**told["job"])
        self._tables = [Table(**table) for table in told["tables"]]
        self.sums_in_lanes = told["lanes"]
        self._stats = Stats(**told["stats"])
        self._receiving = threading.Lock()
        self._inbox: dict[int, tuple[dict[str, Any], Segment | None]] = {}
        self._done: set[int] = set()
        self._read = 0
        """All means up to this call's have been read here."""

    @property
    def job(self) -> Job:
        return self._job

    @property
    def tables(self) -> list[Table]:
        return list(self._tables)

    def _give(self, data: npt.NDArray[np.float32], tag: int) -> tuple[int, Segment]:
        """Hands this rank's addend to the speaker."""
        call = self._next()
        segment = self._pool.take(data.size)
        segment.view(data.size)[...] = data
        self._line.send({"call": call, "tag": tag, "read": self._read}, segment)
        return call, segment

    def _hear(self) -> None:
        """Takes the next message."""
        message, segment = self._line.receive()
        if "over" in message:
            self._over = _rebuild_error(message["over"])
        elif "call" in message:
            self._inbox[message["call"]] = (message, segment)

    def _mean(self, call: int, own: Segment, array: Array) -> Array:
        """Waits for a call's mean and copies it."""
        # Whoever waits receives for all who do.
        with self._receiving:
            while call not in self._inbox:
                if self._over is not None:
                    raise self._over
                try:
                    self._hear()
                except errors.MissingError as error:
                    self._over = error
            message, mean = self._inbox.pop(call)
        self._pool.give(own)
        if mean is not None:
            array[...] = mean.view(array.size).reshape(array.shape)
        with self._receiving:
            self._done.add(call)
            while self._read + 1 in self._done:
                self._read += 1
                self._done.discard(self._read)
        if mean is None:
            raise _rebuild_error(message["error"])
        self._stats = Stats(**message["stats"])
        return array

    def _has(self, call: int) -> bool:
        with self._receiving:
            while call not in self._inbox and self._over is None and self._line.has_message():
                self._hear()
            return call in self._inbox or self._over is not None

    def allreduce(
        self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None
    ) -> Array:
        data = as_f32(array)
        call, own = self._give(data, _tag(data, mode, feedback, plan))
        return self._mean(call, own, array)

    def allreduce_async(
        self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None
    ) -> Handle:
        data = as_f32(array)
        call, own = self._give(data, _tag(data, mode, feedback, plan))
        return _Heard(self, call, own, array)

    def stats(self) -> Stats:
        """The host's, as the speaker had them at the last mean."""
        return replace(self._stats, **self.training.totals())

    def find_server(self, patience: float | str = 0.3) -> bool:
        """Nothing speaks against it: the speaker knows."""
        return True

    def rejoin(self) -> None:
        self._line.send({"rejoin": True})
        message: dict[str, Any] = {}
        while "rejoined" not in message:
            message, _ = self._line.receive()
        if message["rejoined"] is not None:
            raise _rebuild_error(message["rejoined"])
        self._calls = self._read = 0
        self._over = None
        self._pool = Pool()
        self._line.forget()
        self._inbox.clear()
        self._done.clear()

    def save_feedback(self) -> dict[int, bytes]:
        return {}

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        pass

    def reset_feedback(self, key: int | str | None = None) -> None:
        pass

    def _leave(self, linger: float) -> None:
        _open.discard(self)
        if self._pid == os.getpid():
            self._line.close()


class _Heard(Handle):
    """A listener's call under way."""

    def __init__(self, listener: Listener, call: int, own: Segment, array: Array) -> None:
        self._listener, self._call, self._own, self._array = listener, call, own, array

    def done(self) -> bool:
        return self._listener._has(self._call)

    def wait(self) -> Array:
        return self._listener._mean(self._call, self._own, self._array)
