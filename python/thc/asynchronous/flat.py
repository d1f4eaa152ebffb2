"""Tensors as one vector of floats in host memory, which is where servers take them from and bring them to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Flat:
    """One vector with a place for each of ``tensors``. For tensors of a GPU there is one on the GPU as well, and the one of
    the host is pinned: however many tensors there are, one copy crosses the bus."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        length = sum(tensor.numel() for tensor in tensors)
        device = tensors[0].device if tensors else torch.device("cpu")
        self._host = torch.zeros(length, dtype=torch.float32, device="cpu", pin_memory=device.type == "cuda")
        self._near = self._host if device.type == "cpu" else torch.zeros(length, dtype=torch.float32, device=device)
        parts = self._near.split([tensor.numel() for tensor in tensors]) if tensors else ()
        self._views = [part.view_as(tensor) for part, tensor in zip(parts, tensors)]
        self.array: npt.NDArray[np.float32] = self._host.numpy()
        """The vector, in host memory."""

    def gather(self, tensors: Sequence[Tensor | None]) -> None:
        """Fills it; the place of what is ``None`` gets zeros."""
        with torch.no_grad():
            for view, tensor in zip(self._views, tensors):
                if tensor is None:
                    view.zero_()
                else:
                    view.copy_(tensor.to_dense() if tensor.is_sparse else tensor)
            if self._near is not self._host:
                self._host.copy_(self._near)

    def scatter(self, tensors: Sequence[Tensor]) -> None:
        """Brings its numbers into the tensors."""
        with torch.no_grad():
            if self._near is not self._host:
                self._near.copy_(self._host, non_blocking=True)
            for view, tensor in zip(self._views, tensors):
                tensor.copy_(view)

    def is_finite(self) -> bool:
        """Whether all of it is."""
        return bool(torch.isfinite(self._host.sum())) or bool(torch.isfinite(self._host).all())
