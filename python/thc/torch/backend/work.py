"""An all-reduce under way, as torch sees it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from thc.errors import ThcError


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
