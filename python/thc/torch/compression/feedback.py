"""Error feedback by parameter: it survives that DDP rebuilds its buckets, and goes into checkpoints."""

from __future__ import annotations

import struct
from typing import Any, Protocol

import numpy as np
import torch

from thc.torch.compression.layout import Layout

HEADER = struct.Struct("<4sIQ")
"""The header of saved error feedback: THCF, version 1, number of coordinates."""


class Keeper(Protocol):
    """Who keeps error feedback, by key: a group, or a codec of a device."""

    def save_feedback(self) -> dict[int, bytes]:
        """All of it."""

    def restore_feedback(self, saved: dict[int, bytes]) -> None:
        """Replaces what is kept under these keys."""

    def reset_feedback(self, key: int) -> None:
        """Forgets what is kept under a key."""


class FeedbackStore:
    """Knows where the error feedback of each parameter is.

    The group keeps it per bucket, under the key of the bucket's layout. When DDP has rebuilt its buckets
    (as it does after the first step, by the order in which gradients came), a new layout finds the feedback
    of its parameters under the keys of old ones: then all is taken out of the group once, and each new layout
    puts its part back in. All methods run on the sequencer of the group's pipeline.
    """

    def __init__(self, group: Keeper) -> None:
        self._group = group
        self._homes: dict[int, Layout] = {}
        """Layouts whose feedback is in the group."""
        self._of_parameter: dict[str, int] = {}
        """Parameter to the key of its layout, for those in the group."""
        self._aside: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
        """Feedback of parameters that waits for the next layout that has them."""

    def is_settled(self, layout: Layout) -> bool:
        """Whether :meth:`settle` has nothing to do. If not, it needs the group without calls under way."""
        return layout.key in self._homes

    def settle(self, layout: Layout) -> None:
        """Before a call: the group has the feedback of this layout's parameters under its key."""
        if self.is_settled(layout):
            return
        places = layout.feedback_places()
        if any(name in self._of_parameter for name, _ in places):
            self._take_all()
        if any(name in self._aside for name, _ in places):
            # Header and coordinates in one piece: these are as large as the gradient, so copies count.
            saved = np.zeros(HEADER.size // 4 + layout.length, dtype="<f4")
            saved.view(np.uint8)[: HEADER.size] = np.frombuffer(HEADER.pack(b"THCF", 1, layout.length), dtype=np.uint8)
            merged = saved[HEADER.size // 4 :]
            for name, place in places:
                found = self._aside.pop(name, None)
                if found is not None and found.size == place.stop - place.start:
                    merged[place] = found
                del found
            self._group.restore_feedback({layout.key: saved.tobytes()})
        self._homes[layout.key] = layout
        for name, _ in places:
            self._of_parameter[name] = layout.key

    def _read(self) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """All feedback in the group, by parameter."""
        found = {}
        saved = self._group.save_feedback() if self._homes else {}
        for key, layout in self._homes.items():
            if key in saved:
                residual = np.frombuffer(saved[key], dtype="<f4", offset=HEADER.size)
                for name, place in layout.feedback_places():
                    found[name] = residual[place]
        return found

    def _take_all(self) -> None:
        self._aside.update(self._read())
        self._empty_group()

    def _empty_group(self) -> None:
        for key in self._homes:
            self._group.reset_feedback(key)
        self._homes.clear()
        self._of_parameter.clear()

    def save(self) -> dict[str, torch.Tensor]:
        """All feedback by parameter, for a checkpoint."""
        found = {**self._aside, **self._read()}
        return {name: torch.from_numpy(residual.copy()) for name, residual in found.items()}

    def load(self, saved: dict[str, torch.Tensor]) -> None:
        """Replaces all feedback by what :meth:`save` returned."""
        self.reset()
        for name, residual in saved.items():
            self._aside[name] = residual.detach().to("cpu", torch.float32).reshape(-1).numpy().copy()

    def reset(self) -> None:
        """Forgets all."""
        self._empty_group()
        self._aside.clear()
