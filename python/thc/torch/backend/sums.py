"""The compressed all-reduces of one process group, in the order in which it calls them, and their works as torch sees them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.stats import Stats
from thc.torch.collective import CollectiveGroup
from thc.torch.compression.compressor import HostCompressor, Task
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.bucket import Arrival, Bucket
from thc.torch.engine.pipeline import Pipeline
from thc.torch.options import Compression, Options


class FutureWork(dist._Work):
    """A work that is over when its future is: gloo fulfils a future a moment before its own work counts as completed."""

    _future: Any

    def get_future(self) -> Any:
        return self._future

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Any:
        self.wait()
        return self._future.value()


class SumWork(FutureWork):
    """The work of one tensor, which has the sum when the work is over."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self._tensor: torch.Tensor | None = tensor
        self.over = threading.Event()
        """Set when nothing will be done with the tensor any more on the host."""
        self._error: BaseException | None = None
        devices = [tensor.device] if tensor.device.type == "cuda" else None
        self._promise: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=devices)
        # What hangs on a future keeps an exception, which the future itself does not once it has gone through C++.
        self._future = self._promise.then(lambda fulfilled: fulfilled.value())

    # What the threads of a group call.

    def finish(self) -> None:
        """The sum is in the tensor, or will be when the current stream has come so far."""
        assert self._tensor is not None
        tensor, self._tensor = self._tensor, None
        self.over.set()
        self._promise.set_result([tensor])

    def fail(self, error: BaseException) -> None:
        """There is no sum: what is half of one becomes NaN."""
        tensor, self._tensor, self._error = self._tensor, None, error
        if tensor is None:
            return
        # What goes wrong here, too, shall not keep the thread from later calls.
        with contextlib.suppress(Exception):
            tensor.detach().fill_(float("nan"))
        self.over.set()
        self._promise.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # What torch and users call.

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the sum is there; on a GPU has the current stream wait. Raises what went wrong."""
        seconds = None if not timeout else timeout.total_seconds()
        if not self.over.wait(seconds):
            raise RuntimeError(f"the all-reduce was not over after {seconds:g} s: wait longer, or look whether all ranks have called it")
        if self._error is not None:
            raise self._error
        # It knows the streams on which tensors are stored.
        self._future.wait()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error


class JointWork(FutureWork):
    """The work of several tensors, each with a work of its own."""

    def __init__(self, works: Sequence[Any], tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._works = works

        def tell(every: Any) -> list[torch.Tensor]:
            for each in every.value():
                each.value()
            return tensors

        self._future = torch.futures.collect_all([work.get_future() for work in works]).then(tell)

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        return True


def work_that_ends(work: Any, tensors: list[torch.Tensor]) -> Any:
    """A work, also where torch returns none because the call is over: C++ takes a work from Python for one that there is."""
    return JointWork([], tensors) if work is None else work


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types of tensors that are compressed. Ranks tell each other their places in this list."""


def gloo_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A process group of gloo on a store of its own. torch's list of process groups does not have it: so ranks need not make as many of
    them in the same order, and its name clashes with none."""
    made = dist.ProcessGroup(store, rank, size)
    made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, dist.ProcessGroupGloo(store, rank, size, timeout=timeout))
    made._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    return made


class _Call:
    """One all-reduce, as work of a pipeline: the sequencer compares what ranks call and begins the sum; the store thread waits for it and stores it."""

    def __init__(self, tensor: torch.Tensor, mean: bool, sums: Sums) -> None:
        self.work = SumWork(tensor)
        self._tensor, self._compressor = tensor.detach(), sums.compressor
        flat = self._tensor.reshape(-1)
        layout = Layout("sum", [Segment("sum", 0, flat.numel(), True)])
        self._task = Task(Bucket(0, True, flat, [], layout, Arrival(), None).record_ready(), factor=1.0 if mean else float(sums.lanes.workers))
        self._mine = torch.tensor([tensor.numel(), DTYPES.index(tensor.dtype), int(mean)])
        """What this rank calls."""
        self._headers = [torch.empty_like(self._mine) for _ in range(sums.lanes.workers)]
        """What each does."""
        self._gathering = sums.headers.allgather([self._headers], [self._mine])
        """The collective that brings them."""

    def room(self) -> int:
        return sys.maxsize

    def begin(self) -> bool:
        try:
            self._compare()
            self._compressor.submit(self._task, 0, wait=False)
        except BaseException as error:  # raised by the work's wait
            self.work.fail(error)
            return False
        return True

    def wait(self) -> None:
        try:
            self._compressor.finish(self._task)
            found = self._task.bucket.buffer
            if found.data_ptr() != self._tensor.data_ptr():
                self._tensor.copy_(found.view(self._tensor.shape))
            self.work.finish()
        except BaseException as error:  # raised by the work's wait
            self.work.fail(error)

    def end(self) -> None:
        pass

    def give_up(self, error: BaseException) -> None:
        self.work.fail(error)

    def _compare(self) -> None:
        """Raises unless all ranks call the same."""
        try:
            self._gathering.wait()
        except RuntimeError as error:
            raise errors.NetworkError(
                f"not all ranks have called this all-reduce of {_describe(self._mine)}: see that they have, and with tensors that are "
                f"compressed on all of them or on none ({error})"
            ) from error
        for other, theirs in enumerate(self._headers):
            if not torch.equal(self._mine, theirs):
                raise errors.MismatchError(
                    f"this rank calls an all-reduce of {_describe(self._mine)} and rank {other} one of {_describe(theirs)}: ranks make the same "
                    "calls in the same order, of tensors of the same length and type"
                )


class Sums:
    """Adds up tensors compressed. All ranks of the process group make it, and all its calls, alike and in the same order. An all-reduce returns at once,
    and several are under way: a pipeline makes them."""

    def __init__(self, process_group: Any, store: Any, timeout: timedelta, compression: Compression) -> None:
        rank, size = process_group.rank(), process_group.size()
        # Headers of calls may travel while norms of earlier ones do, and these beside words: in groups of their own they cannot meet.
        self._groups = [gloo_group(dist.PrefixStore(name, store), rank, size, timeout) for name in ("calls", "norms", "words")]
        self.headers = self._groups[0]
        self.lanes = CollectiveGroup(process_group, compression, self._groups[1:])
        self.compressor = HostCompressor(self.lanes, Options(feedback=False))
        self._pipeline = Pipeline()

    def add_up(self, tensor: torch.Tensor, mean: bool) -> SumWork:
        """Begins to replace a tensor by the sum over all ranks, or by the mean."""
        call = _Call(tensor, mean, self)
        self._pipeline.put(call)
        return call.work

    def stats(self) -> Stats:
        """Totals of all calls."""
        return self.lanes.stats()

    def abort(self) -> None:
        """Has calls under way fail, whoever is waited for."""
        for group in self._groups:
            group.abort()


def _describe(header: torch.Tensor) -> str:
    length, dtype, mean = header.tolist()
    return f"{length} {DTYPES[dtype]} by {'AVG' if mean else 'SUM'}"
