"""One bucket of gradients on its way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from thc import errors
from thc.torch.compression.layout import Layout, Segment


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


@dataclass
class PlannedCall:
    """One of several calls in which a part has a bucket travel, one after the other."""

    place: slice
    """Which coordinates of the bucket."""
    layout: Layout
    """The layout whose error feedback the call takes."""
    spans: list[tuple[int, int | str]]


@dataclass
class Way:
    """How a part of the engine has a bucket travel: in one call with these spans, or in several calls, which are timed."""

    spans: list[tuple[int, int | str]]
    alone: list[PlannedCall] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    """Of each of several calls: its seconds, and the seconds in which the library computed."""


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
    way: Way | None = None
    """How it travels, where a part of the engine decides."""
    mean: Callable[[], None] | None = None
    """If it is on its way through the process group already: waits for its mean and puts it into the buffer."""
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
        return self.buffer.dtype == torch.float64 or bool(self.buffer.is_sparse)

    def record_ready(self) -> Bucket:
        """On a GPU: the gradients are there when the current stream has come so far."""
        if self.buffer.device.type == "cuda":
            self.ready = torch.cuda.Event()
            self.ready.record(torch.cuda.current_stream(self.buffer.device))
        return self

    def on_stream(self) -> Any:
        """Has what follows in a ``with`` block happen after what was done with the buffer so far."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def restore(self) -> None:
        """Puts this rank's gradients back into the buffer, which a call that failed may have overwritten."""
        for what in (self.ready, self.stream):
            if what is not None:
                what.synchronize()
        if self.copy is not None:
            self.buffer.copy_(self.copy)
            return
        for segment, parameter in zip(self.layout.segments, self.parameters):
            if parameter.grad is None:
                raise errors.LostError(f"the parameter server was lost, and {segment.name} has no gradient any more that could be averaged again")
            in_shape_of(self.buffer[segment.slice], parameter).copy_(parameter.grad.detach())

    def release(self, error: BaseException | None = None) -> None:
        """Lets training go on, with the buffer as it is or with an error."""
        self.copy = None
        if self.released:
            return
        self.released = True
        if self.stream is None:
            self.promise.set_result(error)
        else:
            # What waits for the future waits for what this stream was given before.
            with torch.cuda.stream(self.stream):
                self.promise.set_result(error)


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


@dataclass
class Over:
    """A call that is over."""

    error: BaseException | None = None

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


def wait_for_calls(handles: list[Any]) -> bool:
    """Waits for all calls of a bucket. Whether all numbers were finite; raises what went wrong first, from which the rest may only follow."""
    finite, failed = True, None
    for handle in handles:
        try:
            handle.wait()
        except errors.NonFiniteError:
            finite = False
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return finite


class Piece:
    """Numbers of a program that are averaged together, again and again, and whose means nobody waits for at once: f32 on the CPU, in place.
    ``names`` are those of its parts, one after the other, with their lengths."""

    def __init__(self, name: str, numbers: torch.Tensor, compressed: bool, names: Mapping[str, int] | None = None) -> None:
        self.numbers = numbers
        segments, at = [], 0
        for part, length in (names or {name: numbers.numel()}).items():
            segments.append(Segment(part, at, length, compressed))
            at += length
        self.layout = Layout(name, segments)
        self._copy: torch.Tensor | None = None
        self._arrival: Arrival | None = None

    @property
    def under_way(self) -> bool:
        """Whether its mean has been asked for and not been waited for."""
        return self._arrival is not None

    def bucket(self, index: int, is_last: bool, keeps: bool) -> Bucket:
        """The piece as a bucket of the step that begins; ``keeps`` a copy of the numbers, from which the bucket can be restored."""
        if keeps:
            self._copy = self.numbers.clone() if self._copy is None else self._copy.copy_(self.numbers)
        self._arrival = Arrival()
        return Bucket(index, is_last, self.numbers, [], self.layout, self._arrival, self._copy)

    def wait(self) -> bool:
        """Waits until the mean is in place. Whether all ranks' numbers were finite; if not, there is nothing of use. Raises what went wrong."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "nothing was asked for"
        arrival.wait()
        return is_finite(self.numbers)
