"""The compressed all-reduces of one process group, in the order in which it calls them, and their works as torch sees them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from thc import errors
from thc.errors import ThcError
from thc.stats import Stats
from thc.torch.collective import CollectiveGroup
from thc.torch.engine.pipeline import Pipeline
from thc.torch.options import Compression


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
        failed: BaseException | None = None
        for work in self._works:
            try:
                work.wait(timeout) if timeout else work.wait()
            except (ThcError, RuntimeError) as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return True


def work_that_ends(work: Any, tensors: list[torch.Tensor]) -> Any:
    """A work, also where torch returns none because the call is over: C++ takes a work from Python for one that there is."""
    return JointWork([], tensors) if work is None else work


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types of tensors that are compressed. Ranks tell each other their places in this list."""


def gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A backend of gloo on a store of its own."""
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


def gloo_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A process group of gloo on a store of its own. torch's list of process groups does not have it: so ranks need not make as many of
    them in the same order, and its name clashes with none."""
    made = dist.ProcessGroup(store, rank, size)
    made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo(store, rank, size, timeout))
    made._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    return made


class _Lanes(CollectiveGroup):
    """Sums in lanes through gloo on stores of their own, rather than through process groups that torch lists."""

    def __init__(self, process_group: Any, made: Sequence[Any], compression: Compression) -> None:
        self._made = list(made)
        super().__init__(process_group, compression)

    def _place(self, process_group: Any) -> tuple[int, int, bool]:
        # torch's list of process groups need not have it.
        return process_group.rank(), process_group.size(), False

    def _make_groups(self, process_group: Any, backends: Sequence[str]) -> list[Any]:
        return self._made


class _Call:
    """One all-reduce, as work of a pipeline: the sequencer compares what ranks call, brings the tensor to the host and begins the sum; the store
    thread waits for the sum and stores it."""

    def __init__(self, tensor: torch.Tensor, mean: bool, lanes: CollectiveGroup, telling: Any) -> None:
        self.work = SumWork(tensor)
        self._staging = Staging(tensor)
        self._mean, self._lanes = mean, lanes
        self._told = torch.tensor([tensor.numel(), DTYPES.index(tensor.dtype), int(mean)])
        """What this rank calls."""
        self._headers = [torch.empty_like(self._told) for _ in range(lanes.workers)]
        """What each does."""
        self._telling = telling.allgather([self._headers], [self._told])
        """The collective that brings them."""
        self._handle: Any = None

    def room(self) -> int:
        return sys.maxsize

    def begin(self) -> bool:
        try:
            self._compare()
            self._handle = self._lanes.allreduce_async(self._staging.fetch())
        except BaseException as error:  # told by wait
            self.work.fail(error)
        return self._handle is not None

    def wait(self) -> None:
        try:
            factor = 1.0 if self._mean else float(self._lanes.workers)
            try:
                self._handle.wait()
            except errors.NonFiniteError:
                # Known to all ranks: as the exact sum would be, but everywhere.
                factor = float("nan")
            self._staging.store(factor, self.work.finish)
        except BaseException as error:  # told by wait
            self.work.fail(error)

    def end(self) -> None:
        pass

    def give_up(self, error: BaseException) -> None:
        self.work.fail(error)

    def _compare(self) -> None:
        """Raises unless all ranks call the same."""
        try:
            self._telling.wait()
        except RuntimeError as error:
            raise errors.NetworkError(
                f"not all ranks have called this all-reduce of {_describe(self._told)}: see that they have, and with tensors that are "
                f"compressed on all of them or on none ({error})"
            ) from error
        for other, theirs in enumerate(self._headers):
            if not torch.equal(self._told, theirs):
                raise errors.MismatchError(
                    f"this rank calls an all-reduce of {_describe(self._told)} and rank {other} one of {_describe(theirs)}: ranks make the same "
                    "calls in the same order, of tensors of the same length and type"
                )


class Sums:
    """Adds up tensors compressed. All ranks of the process group make it, and all its calls, alike and in the same order.

    The caller tells the other ranks what it calls, and a pipeline does the rest. So an all-reduce returns at once, and several are under way.
    """

    def __init__(self, process_group: Any, store: Any, timeout: timedelta, compression: Compression) -> None:
        rank, size = process_group.rank(), process_group.size()

        def group(name: str) -> Any:
            return gloo_group(dist.PrefixStore(name, store), rank, size, timeout)

        # Caller may be told while norms of earlier ones travel, and these beside words: in groups of their own they cannot meet.
        self._telling = group("calls")
        carriers = [group("norms"), group("words")]
        self._groups = [self._telling, *carriers]
        self._lanes = _Lanes(process_group, carriers, compression)
        self._pipeline = Pipeline()

    def add_up(self, tensor: torch.Tensor, mean: bool) -> SumWork:
        """Begins to replace a tensor by the sum over all ranks, or by the mean."""
        call = _Call(tensor, mean, self._lanes, self._telling)
        self._pipeline.put(call)
        return call.work

    def stats(self) -> Stats:
        """Totals of all calls."""
        return self._lanes.stats()

    def abort(self) -> None:
        """Has calls under way fail, whoever is waited for."""
        for group in self._groups:
            group.abort()


def _describe(header: torch.Tensor) -> str:
    length, dtype, mean = header.tolist()
    return f"{length} {DTYPES[dtype]} by {'AVG' if mean else 'SUM'}"


_streams = threading.local()
"""The streams of each thread, one for each device."""


def _stream(device: torch.device) -> Any:
    made: dict[torch.device, Any] | None = getattr(_streams, "made", None)
    if made is None:
        made = _streams.made = {}
    if device not in made:
        made[device] = torch.cuda.Stream(device)
    return made[device]


class Staging:
    """Where the library compresses a tensor: the tensor itself if it is f32 on the CPU, or a copy.

    On a GPU the copies run on streams of their own: that to the host behind what the caller's stream has to do when this is made, and that
    back behind it, since the host waits for the first before there is anything to bring back.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach()
        self._flat: torch.Tensor | None = None
        self._ready: Any = None
        if tensor.device.type == "cuda":
            self._ready = torch.cuda.Event()
            self._ready.record(torch.cuda.current_stream(tensor.device))

    def fetch(self) -> npt.NDArray[np.float32]:
        """The numbers on the host, to be worked on in place."""
        if self._ready is None:
            flat = self._tensor.reshape(-1).float()
        else:
            device = self._tensor.device
            stream = _stream(device)
            with torch.cuda.device(device), torch.cuda.stream(stream):
                stream.wait_event(self._ready)
                pinned = torch.empty(self._tensor.shape, dtype=self._tensor.dtype, pin_memory=True)
                pinned.copy_(self._tensor, non_blocking=True)
                self._tensor.record_stream(stream)
            stream.synchronize()
            flat = pinned.reshape(-1).float()
        self._flat = flat
        found: npt.NDArray[np.float32] = flat.numpy()
        return found

    def store(self, factor: float, then: Callable[[], None]) -> None:
        """Puts the numbers back, multiplied, and calls ``then`` on the stream on which they are stored."""
        assert self._flat is not None
        if factor != 1.0:
            self._flat.mul_(factor)
        found = self._flat.view(self._tensor.shape)
        if self._ready is None:
            if found.data_ptr() != self._tensor.data_ptr():
                self._tensor.copy_(found)
            then()
            return
        device = self._tensor.device
        stream = _stream(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            self._tensor.copy_(found.to(self._tensor.dtype).pin_memory(), non_blocking=True)
            self._tensor.record_stream(stream)
            then()
