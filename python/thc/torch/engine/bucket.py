"""One bucket of gradients on its way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from thc import errors
from thc.torch.compression.layout import Layout

__all__ = ["Arrival", "Bucket", "Caller", "Over", "PendingCalls", "Promise", "Sender", "in_shape_of", "is_dense", "is_finite"]


def is_finite(buffer: torch.Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    numbers = buffer.coalesce().values() if buffer.is_sparse else buffer
    # A sum is the fastest look at them. It may overflow where they do not, sooner in f16 than in f32.
    total = numbers.sum(dtype=torch.float64 if numbers.dtype == torch.float64 else torch.float32)
    return bool(torch.isfinite(total)) or bool(torch.isfinite(numbers).all())


def is_dense(parameter: torch.Tensor) -> bool:
    """Whether the parameter fills a piece of memory without gaps, in whatever order."""
    return bool(torch.empty_like(parameter, device="meta").stride() == parameter.stride())


def in_shape_of(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A parameter's part of a bucket, in the parameter's shape. DDP has it there in the order in which the parameter is in memory, which
    for one in channels_last is not that of its coordinates."""
    if is_dense(parameter):
        return flat.as_strided(parameter.shape, parameter.stride(), flat.storage_offset())
    return flat.view(parameter.shape)


class Promise(Protocol):
    """A future, or something like it."""

    def set_result(self, error: BaseException | None) -> None:
        """Fulfils it, or says why it cannot be. Called once."""


class Caller(Protocol):
    """What makes the calls of buckets."""

    def call(self, pending: PendingCalls, data: torch.Tensor, wait: bool, **options: Any) -> None:
        """Begins a call, in place; with ``wait`` it is over on return. Options are those of :meth:`thc.Group.allreduce`."""

    def key(self, layout: Layout) -> int | None:
        """The key of a layout's error feedback; nothing without error feedback."""


class Sender(Protocol):
    """Decides in which calls a bucket travels."""

    @property
    def is_trial(self) -> bool:
        """Whether the calls only try out how buckets could travel, so that the mean's accuracy shows nothing."""

    def send(self, caller: Caller, pending: PendingCalls, bucket: Bucket, data: torch.Tensor, step: int, wait: bool) -> None:
        """Makes the calls. ``data`` is the bucket where it is compressed."""


@dataclass
class Bucket:
    """Gradients that are averaged together, and what waits for their mean."""

    index: int
    is_last: bool
    buffer: torch.Tensor
    parameters: list[torch.nn.Parameter]
    layout: Layout
    promise: Promise
    """What training waits for."""
    copy: torch.Tensor | None
    """The gradients before the call, where the parameters' own ``grad`` cannot tell them later."""
    ready: Any = None
    """On a GPU: the event after which the gradients are in the buffer."""
    stream: Any = None
    """On a GPU: the stream on which the mean is written there, if the host does not wait for that."""

    sender: Sender | None = None
    """What decides how the bucket travels, where a part of the engine does."""
    plain: bool = False
    """Whether it goes through the process group although the server is there, as all ranks know."""
    mean: Callable[[Callable[[], None] | None], None] | None = None
    """If it is on its way through the process group already: waits for its mean and puts it into the buffer. What it is given is called now
    and then meanwhile."""
    has_ended: bool = False
    """Whether nothing is written into the buffer any more."""
    doomed: BaseException | None = None
    """Why it fails although nothing was wrong with it."""
    released: bool = False
    """Whether training has it, or has heard why not."""

    @property
    def foreign(self) -> bool:
        """Whether it is nothing that THC carries, and so goes through the process group: f64, whose precision f32 has not, and
        sparse gradients, of which each rank has other coordinates."""
        return bool(self.buffer.dtype == torch.float64 or self.buffer.is_sparse)

    def on_stream(self) -> Any:
        """Has what follows in a ``with`` block happen after what was done with the buffer so far."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def restore(self) -> None:
        """Puts this rank's gradients back into the buffer, which a call that failed may have overwritten."""
        if self.ready is not None:
            self.ready.synchronize()
        if self.stream is not None:
            self.stream.synchronize()
        if self.copy is not None:
            self.buffer.copy_(self.copy)
            return
        for segment, parameter in zip(self.layout.segments, self.parameters):
            assert parameter.grad is not None
            in_shape_of(self.buffer[segment.slice], parameter).copy_(parameter.grad.detach())

    def release(self, error: BaseException | None = None) -> None:
        """Lets training go on, with the buffer as it is or with an error."""
        self.copy = None
        if self.released:
            return
        self.released = True
        # Whoever waits for the future waits for what this stream was given before.
        with self.on_stream():
            self.promise.set_result(error)

    @staticmethod
    def keeps_gradients(parameters: list[torch.nn.Parameter], buffer: torch.Tensor) -> bool:
        """Whether the parameters' ``grad`` are tensors of their own, with the bucket a copy of them."""
        if buffer.is_sparse:
            return False
        start = buffer.data_ptr()
        end = start + buffer.numel() * buffer.element_size()
        for parameter in parameters:
            grad = parameter.grad
            if grad is None or grad.is_sparse or start <= grad.data_ptr() < end:
                return False
        return True


class Arrival:
    """What is waited for in place of a future: a mean that will be there, or has failed."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._error: BaseException | None = None

    def set_result(self, error: BaseException | None) -> None:
        self._error = error
        self._set.set()

    def wait(self) -> None:
        """Raises what went wrong."""
        self._set.wait()
        if self._error is not None:
            raise self._error


class _Handle(Protocol):
    def wait(self) -> Any: ...


@dataclass
class Over:
    """A call that is over."""

    error: BaseException | None = None

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class PendingCalls:
    """A bucket's calls, in order, and what is to be done with their means."""

    handles: list[_Handle] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def call(self, begin: Callable[[], _Handle | Any], wait: bool) -> None:
        """Begins a call, or makes it."""
        try:
            handle = begin()
        except errors.ThcError as error:
            self.handles.append(Over(error))
        else:
            self.handles.append(Over() if wait else handle)

    def wait(self) -> bool:
        """Waits for all. Whether all numbers were finite."""
        finite, failed = True, None
        for handle in self.handles:
            try:
                handle.wait()
            except (errors.NonFiniteError, errors.NormError):
                finite = False
            except BaseException as error:
                # The first, which others may only follow from.
                failed = failed or error
        if failed is not None:
            raise failed
        if finite:
            for work in self.afterwards:
                work()
        return finite
