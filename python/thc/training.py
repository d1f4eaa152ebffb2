"""How long training steps compute, and how long they wait for gradients."""

from __future__ import annotations

from typing import Any

__all__ = ["Training"]


class Training:
    """Totals over the steps of all models whose gradients a group averages."""

    def __init__(self) -> None:
        self.steps = 0
        self.computing = 0.0
        """Seconds of everything but waiting: forward and backward passes, the optimizer, and what a program does between."""
        self.waited = 0.0
        """Seconds of waiting for gradients."""

    def add_step(self, computing: float, waited: float) -> None:
        """A step is over on this worker."""
        self.steps += 1
        self.computing += computing
        self.waited += waited

    def totals(self) -> dict[str, Any]:
        """As fields of :class:`thc.Stats`."""
        return {"computing": self.computing, "waited": self.waited}
