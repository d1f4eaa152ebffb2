"""One all-reduce that a device compresses, step by step."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from thc import _native
from thc.torch.device.cut import Cut


def _to_signed(number: int) -> int:
    """64 bits as torch has them."""
    return number - (1 << 64) if number >> 63 else number


class Numbers:
    """What a call computes with beside gradients: norms, ranges, keys, on the device. Copies are made in the order of the current stream."""

    def __init__(self, cut: Cut, workers: int, device: torch.device) -> None:
        def allocate(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self._raw = cut.raw
        self._device = device
        self.squares = allocate(cut.partitions, dtype=torch.float64)
        """Σ x² of each partition."""
        self.peaks = allocate(cut.partitions, dtype=torch.int32)
        """The bits of max |x|, where a partition travels RAW."""
        self.affine = allocate(cut.partitions, 4, dtype=torch.float32)
        """-M, scale, bias and step of each partition (P31); 0 where the norm is."""
        self.raw = allocate(cut.partitions, dtype=torch.float64)
        """The power of two of RAW ones (P32)."""
        self.estimates = allocate(cut.packets, 2, dtype=torch.float32)
        """Step and -M of each packet's sums."""
        self.factors = allocate(cut.packets, dtype=torch.float64)
        """What the words of each RAW packet are multiplied by."""
        self.keys = allocate(3, dtype=torch.int64)
        """What signs and roundings derive from, and the stratum of the roundings."""
        self.limit = float(1 << (30 - (workers - 1).bit_length()))
        """The largest word of a RAW packet."""
        self._has_raw, self._has_tables = bool(cut.raw.any()), not bool(cut.raw.all())

    def to_device(self, target: torch.Tensor, values: npt.NDArray[Any]) -> None:
        """Copies values, by way of pinned memory if the device is a GPU."""
        source = torch.from_numpy(values)
        if self._device.type == "cuda":
            source = source.pin_memory()
        target.copy_(source, non_blocking=True)

    def tell(self, keys: tuple[int, int, int], affine: npt.NDArray[np.float32], raw: npt.NDArray[np.float64]) -> None:
        """What is known when the norms of all workers are."""
        self.to_device(self.keys, np.array([_to_signed(key) for key in keys], dtype=np.int64))
        if self._has_tables:
            self.to_device(self.affine, affine)
        if self._has_raw:
            self.to_device(self.raw, raw)

    def tell_estimates(self, packets: slice, estimates: npt.NDArray[np.float32], factors: npt.NDArray[np.float64]) -> None:
        """What is known of a piece's results."""
        if self._has_tables:
            self.to_device(self.estimates[packets], estimates)
        if self._has_raw:
            self.to_device(self.factors[packets], factors)

    def norms_to_host(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Begins to copy norms; complete when what follows on the stream is."""
        pin = self._device.type == "cuda"
        squares = torch.empty(self.squares.shape, dtype=torch.float64, pin_memory=pin)
        peaks = torch.empty(self.peaks.shape, dtype=torch.int32, pin_memory=pin)
        if self._has_tables:
            squares.copy_(self.squares, non_blocking=True)
        if self._has_raw:
            peaks.copy_(self.peaks, non_blocking=True)
        return squares, peaks

    def norms(self, squares: torch.Tensor, peaks: torch.Tensor) -> npt.NDArray[np.float32]:
        """What the NORM of each partition says, NaN where it is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            found: npt.NDArray[np.float32] = np.sqrt(squares.numpy()).astype(np.float32)
        if not self._has_raw:
            return found
        largest: npt.NDArray[np.float32] = peaks.numpy().view(np.float32)
        return np.where(self._raw, largest, found)


class Call:
    """Measured when it is made; then :meth:`submit`, :meth:`feed` and :meth:`finish`, in this order.

    On a GPU all work goes to the codec's stream, and the host waits for events of that alone, never for the device: for the
    norms, and for the indices of each piece.
    """

    def __init__(self, codec: Any, cut: Cut, x: torch.Tensor, feedback: int | None) -> None:
        self._codec = codec
        self._cut = cut
        self._x = x
        self._feedback = feedback
        self._packed: Any = None
        self._fed_all = threading.Event()
        self._error: BaseException | None = None
        self._sent: list[Any] = []
        """The events after which the indices of each piece have arrived at the host."""
        self._handed = 0
        if codec.stream is not None:
            codec.stream.wait_stream(torch.cuda.current_stream(codec.device))
            x.record_stream(codec.stream)
        with codec.on_stream():
            self._pages = cut.take(codec.device)
            self._numbers = Numbers(cut, codec.group.workers, codec.device)
            self._fed = None if feedback is None else codec.begin_feedback(feedback, x.numel())
            kept = None if self._fed is None else self._fed[0]
            for run in cut.measured:
                codec.kernels.norms(run, x, kept, self._numbers)
            self._norms = self._numbers.norms_to_host()
            self._measured = self._mark()

    def _mark(self) -> Any:
        """An event after all that the stream has been given so far."""
        if self._codec.stream is None:
            return None
        event = torch.cuda.Event()
        event.record(self._codec.stream)
        return event

    def submit(self) -> None:
        """Sends the norms. Ranks must submit their calls in the same order."""
        if self._measured is not None:
            self._measured.synchronize()
        native, cut, pages = self._codec.group._library, self._cut, self._pages
        norms = self._numbers.norms(*self._norms)
        tensor = _native.PackedTensor(self._x.numel(), cut.piece, norms, pages.sums)
        self._packed = native.call(tensor, plan=cut.plan, feedback=self._feedback, wait=False)

    def feed(self) -> None:
        """Has the indices made, and hands them to the network. On any thread; what goes wrong :meth:`finish` tells."""
        try:
            self._compress()
            self._hand_over(wait=True)
        except BaseException as error:  # told by finish
            self._error = error
            # If indices are missing the session is over, and the others shall hear of it.
            self._packed = None
        self._fed_all.set()

    def _compress(self) -> None:
        """Waits for the norms of all ranks, and has the indices computed and copied to the host, piece by piece."""
        affine, raw = self._packed.numbers()
        codec, cut, numbers = self._codec, self._cut, self._numbers
        with codec.on_stream():
            numbers.tell(self._packed.keys, affine, raw)
            indices = torch.empty(cut.indices, dtype=torch.uint8, device=codec.device)
            for piece, memory in zip(cut.pieces, self._pages.indices):
                for run in piece.runs:
                    codec.kernels.compress(run, self._x, self._fed, codec.grid(run.table), numbers, indices)
                self._pages.tensor(memory).copy_(indices[piece.indices], non_blocking=True)
                self._sent.append(self._mark())
                self._hand_over(wait=False)

    def _hand_over(self, wait: bool) -> None:
        """Hands the network the pieces that have come to the host, or waits for all."""
        while self._handed < len(self._sent):
            event = self._sent[self._handed]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self._packed.send(self._handed, self._pages.indices[self._handed])
            self._handed += 1

    def finish(self) -> Any:
        """After :meth:`feed`, on whatever thread that is: waits for the sums and has the mean computed, piece by piece; error feedback
        is then that after the call. Returns an event after which the tensor has the mean; nothing where there are no streams."""
        self._fed_all.wait()
        try:
            if self._error is not None:
                raise self._error
            self._land()
        finally:
            done = self._mark()
            self._cut.give_back(self._pages, done)
        return done

    def wait(self) -> None:
        """:meth:`finish`, as the calls of the library have it."""
        self.finish()

    def _land(self) -> None:
        codec, cut, numbers = self._codec, self._cut, self._numbers
        sums = None
        while (found := self._packed.receive()) is not None:
            number, (estimates, factors) = found
            piece = cut.pieces[number]
            with codec.on_stream():
                if sums is None:
                    sums = torch.empty(cut.sums, dtype=torch.uint8, device=codec.device)
                numbers.tell_estimates(piece.packets, estimates, factors)
                sums[piece.sums].copy_(self._pages.tensor(self._pages.sums[number]), non_blocking=True)
                for run in piece.runs:
                    codec.kernels.decompress(run, sums, codec.grid(run.table), numbers, self._x)
        if self._feedback is not None:
            codec.commit_feedback(self._feedback)
