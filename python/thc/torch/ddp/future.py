"""How a bucket's mean comes to DDP, and what went wrong to the program that called ``backward``."""

from __future__ import annotations

import torch


class PassError:
    """What went wrong in a backward pass. It is raised from ``backward`` as it is, when DDP has done its own last work.

    DDP waits for futures in C++, and torch makes a ``RuntimeError`` of whatever a future raises there, after which the exception has lost
    its type. So during a backward pass DDP gets its bucket even if the bucket is of no use, and the exception comes from autograd,
    which keeps it as it is.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def begin(self) -> None:
        """A backward pass begins; the last one may have ended half-way."""
        self._error = None

    def await_end(self, is_last: bool) -> bool:
        """Called for each bucket: has the backward pass under way raise what goes wrong. Whether there is one; the buckets of a rank without inputs,
        in ``DDP.join()``, are reduced outside of any."""
        engine = torch.autograd.Variable._execution_engine
        try:
            # DDP queues its own last work when the last bucket has been handed over. What is queued by this call comes before that,
            # and what is queued then behind it.
            engine.queue_callback((lambda: engine.queue_callback(self._tell)) if is_last else _no_op)
        except RuntimeError:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """Something went wrong with a bucket. The first counts: others may only follow from it."""
        if self._error is None:
            self._error = error

    def _tell(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _no_op() -> None:
    pass


class BucketFuture:
    """What DDP waits for. The hook returns :attr:`future`, and the sequencer fulfils it, on the stream on which the bucket is written."""

    def __init__(self, buffer: torch.Tensor, pass_error: PassError, is_last: bool) -> None:
        self._buffer = buffer
        self._pass_error = pass_error if pass_error.await_end(is_last) else None
        devices = [buffer.device] if buffer.device.type == "cuda" else None
        self._promise: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self.future = self._promise
        if self._pass_error is None:
            # What hangs on a future keeps an exception, which the future itself does not once it has gone through C++.
            self.future = self._promise.then(lambda fulfilled: fulfilled.value())

    def set_result(self, error: BaseException | None) -> None:
        """Hands over the bucket as it is, or says what went wrong. A future waits for the streams of the tensors that are in it, as they
        are current where it is fulfilled: so the bucket has to be in it."""
        if error is None:
            self._promise.set_result(self._buffer)
        elif self._pass_error is None:
            self._promise.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            self._pass_error.fail(error)
            try:
                # Nobody shall take for a mean what is half of one.
                self._buffer.mul_(float("nan"))
            finally:
                self._promise.set_result(self._buffer)
