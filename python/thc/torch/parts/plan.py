"""What users say about adaptation, and what comes of it: which layer gets which compression, and what that costs and loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """How a hook adapts; ``Compression(adapt=Adapt())`` has it as it is here.

    - ``every``: steps from one choice of tables to the next.
    - ``threshold``: SlimGC's threshold. In a warm-up each parameter's gradient travels by itself, in every second step
      compressed and in the others not, and the times of both, by size, tell from which size on compression pays. Smaller gradients
      are exact from then on, whatever bucket they travel in.
    - ``warmup``: steps of that warm-up.
    - ``layerwise``: L-GreCo's choice among the job's tables: the fewest bytes with no more loss than the first table's, used for all, would have.
    """

    every: int = 100
    threshold: bool = True
    warmup: int = 6
    layerwise: bool = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"adapt: every is {self.every}: give a number of steps, at least 1")
        if self.threshold and (self.warmup < 2 or self.warmup % 2):
            raise ConfigError(f"adapt: warmup is {self.warmup}: give an even number of steps, at least 2")


@dataclass(frozen=True)
class PlanRow:
    """One layer's choice."""

    layer: str
    """The parameter's name."""
    size: int
    """Its coordinates."""
    choice: str
    error: float
    """What it loses, a squared L2 norm; 0 as long as nothing was measured."""
    cost: float
    """Bytes that a rank sends and receives for it in a step."""


@dataclass(frozen=True)
class Plan:
    """A choice for each layer. ``str()`` is a table."""

    step: int
    """From which step on it holds."""
    rows: Sequence[PlanRow]
    uniform: float
    """Bytes with the first table for all layers."""
    bound: float
    """What may be lost in all: the error of the first table for all layers."""
    why: str = ""
    """Where it comes from."""

    @property
    def cost(self) -> float:
        """Bytes of a step."""
        return sum(row.cost for row in self.rows)

    @property
    def error(self) -> float:
        """What is lost in all, a squared L2 norm."""
        return sum(row.error for row in self.rows)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than with the first table for all."""
        return self.uniform / self.cost if self.cost else 1.0

    def choices(self) -> dict[str, str]:
        """By layer."""
        return {row.layer: row.choice for row in self.rows}

    def __str__(self) -> str:
        total = self.cost or 1.0
        lines = [("layer", "size", "choice", "error", "bytes", "share")]
        lines += [(r.layer, f"{r.size}", r.choice, f"{r.error:.2e}", f"{r.cost:.0f}", f"{100 * r.cost / total:.1f} %") for r in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ["  ".join(c.ljust(w) if i in (0, 2) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip() for line in lines]
        text.append(
            f"from step {self.step} on: {self.cost:.0f} bytes a step, {self.ratio:.2f} × fewer than {self.uniform:.0f}; "
            f"error {self.error:.2e} of {self.bound:.2e} allowed{'; ' if self.why else ''}{self.why}"
        )
        return "\n".join(text)
