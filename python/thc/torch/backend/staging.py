"""A tensor's way to the host and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Staging"]

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
