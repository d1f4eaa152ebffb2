"""A lookup table as kernels read it (docs/protocol.md, P31)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from thc.stats import Table

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """By cell of the grid, 0 to g."""

    width: int
    """Bits of an index."""
    lane: int
    """Bits of a sum."""
    end: float
    """g."""
    cells: torch.Tensor
    """i32: the index z of the cell, T[z] · 2^8 and T[z + 1] · 2^16."""
    slopes: torch.Tensor
    """f32, 1 / (T[z + 1] - T[z]); 0 for the last index."""
    starts: torch.Tensor
    """f32, 1 - T[z] · slope; 0 for the last index."""
    tells_values: bool = False
    """Whether T[z] is told and not z, a byte each, and sums lie in words (thc-codec, `lanes`)."""

    def words(self, size: int) -> int:
        """Words of 32 bits that the lanes of a partition take."""
        return -(-size // (32 // self.lane))

    @classmethod
    def from_table(cls, table: Table, device: torch.device, tells_values: bool = False) -> Grid:
        """A job's table."""
        values = np.array(table.values, dtype=np.int64)
        z = np.searchsorted(values, np.arange(table.granularity + 1), side="right") - 1
        low = values[z]
        last = z == len(values) - 1
        high = np.where(last, 0, values[np.minimum(z + 1, len(values) - 1)])
        gap = np.where(last, 1, high - low).astype(np.float64)
        slopes = np.where(last, 0.0, 1.0 / gap).astype(np.float32)
        starts = np.where(last, 0.0, 1.0 - low * slopes.astype(np.float64)).astype(np.float32)
        cells = (z | low << 8 | high << 16).astype(np.int32)
        told = [torch.from_numpy(each).to(device) for each in (cells, slopes, starts)]
        return cls(8 if tells_values else table.width, table.lane, float(table.granularity), told[0], told[1], told[2], tells_values)
