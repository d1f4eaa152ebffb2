"""What all calls on a device share: what computes there, in which order, and what is kept between calls."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

import torch

from thc.base_group import BaseGroup
from thc.torch.device.feedback import DeviceFeedback
from thc.torch.device.tables import Grid

__all__ = ["DeviceContext"]


class DeviceContext:
    """A device as one group's calls use it.

    ``kernels`` computes, as :mod:`thc.torch.device.compiled` does. What other ranks compute with, a
    CPU or another device, makes no difference: the bits are the same.
    """

    def __init__(self, group: BaseGroup, device: torch.device, kernels: ModuleType) -> None:
        self.group = group
        self.device = device
        self.kernels: Any = kernels
        self._grids: dict[int, Grid | None] = {0: None, **{table.id: Grid.from_table(table, device) for table in group.tables}}
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        """Where everything happens, beside what the rest of the process does on the device."""
        self.feedback = DeviceFeedback(device, self.on_stream)

    def on_stream(self) -> Any:
        """Has what follows in a ``with`` block go to this stream, and to its device."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def grid(self, table: int) -> Grid | None:
        """A table of the job on the device; none of RAW."""
        return self._grids[table]
