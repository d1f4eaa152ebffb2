"""Means that are used a step after they were asked for, as what refines them sees it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thc.torch.engine.arrival import Further
from thc.torch.engine.bucket import Bucket
from thc.torch.engine.clock import Clock
from thc.torch.engine.piece import Piece

__all__ = ["Later"]


class Later:
    """Uses the means of pieces when training has computed another step: a ``Consumer`` of :mod:`thc.torch.refine.refining`."""

    def __init__(self, clock: Clock, pieces: Sequence[Piece]) -> None:
        self._clock, self._pieces = clock, pieces
        self._began: float | None = None
        self._span: float | None = None

    def begin(self) -> None:
        """The means have been asked for."""
        self._began = self._clock.compute_time()

    def note_need(self) -> None:
        """Training is about to wait for them."""
        now = self._clock.compute_time()
        if now is not None and self._began is not None:
            self._span = now - self._began

    def owns(self, parameters: Sequence[torch.nn.Parameter]) -> bool:
        return True

    def use_time(self, parameters: Sequence[torch.nn.Parameter]) -> float | None:
        return self._span

    def expect(self, bucket: Bucket) -> Further:
        further = self._pieces[bucket.index].further = Further()
        return further

    def announce(self) -> None:
        pass  # each piece knows
