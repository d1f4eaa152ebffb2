"""Error feedback on a device, by key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch

from thc.errors import FeedbackLengthError, FeedbackStateError

__all__ = ["DeviceFeedback"]

_HEADER = struct.Struct("<4sIQ")
"""The header of saved error feedback, as the group's: THCF, version 1, number of coordinates."""


class DeviceFeedback:
    """What compression lost of each tensor and is added to its next gradient: two buffers of f32, before and after a call, that
    change places when the call is done. It saves and restores what a :class:`thc.Group` does, byte for byte."""

    def __init__(self, device: torch.device, on_stream: Callable[[], AbstractContextManager[object]]) -> None:
        self._device = device
        self._on_stream = on_stream
        self._of: dict[int, list[torch.Tensor]] = {}

    def begin(self, key: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Error feedback before a call, and memory for that after it, on the current stream."""
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = [torch.zeros(length, dtype=torch.float32, device=self._device)]
        if found[0].numel() != length:
            raise FeedbackLengthError(
                f"tensor {key:#x} had {found[0].numel()} coordinates before and {length} now: give another key, or reset its "
                "error feedback"
            )
        if len(found) == 1:
            found.append(torch.empty_like(found[0]))
        return found[0], found[1]

    def commit(self, key: int) -> None:
        """The call is done: what it left holds from now on."""
        self._of[key].reverse()

    def save_feedback(self) -> dict[int, bytes]:
        """All of it; waits for the codec's stream."""
        saved = {}
        with self._on_stream():
            for key, (kept, *_) in sorted(self._of.items()):
                saved[key] = _HEADER.pack(b"THCF", 1, kept.numel()) + kept.cpu().numpy().astype("<f4").tobytes()
        return saved

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        """What :meth:`save_feedback` returned."""
        for key, state in saved.items():
            values = np.frombuffer(state, dtype="<f4", offset=_HEADER.size)
            magic, version, length = _HEADER.unpack_from(state)
            if magic != b"THCF" or version != 1 or length != len(values) or not np.isfinite(values).all():
                raise FeedbackStateError(f"saved error feedback of tensor {key:#x} is damaged")
            with self._on_stream():
                self._of[key] = [torch.from_numpy(values.astype(np.float32)).to(self._device)]

    def reset_feedback(self, key: int) -> None:
        """Forgets a tensor's."""
        self._of.pop(key, None)
