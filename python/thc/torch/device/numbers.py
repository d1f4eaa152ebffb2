"""What a call computes with beside gradients: norms, ranges, keys, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from thc.torch.device.cut import Cut

__all__ = ["Numbers"]


def _to_signed(number: int) -> int:
    """64 bits as torch has them."""
    return number - (1 << 64) if number >> 63 else number


class Numbers:
    """The numbers of one call. ``to_host`` and ``to_device`` copy in the order of the current stream."""

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
