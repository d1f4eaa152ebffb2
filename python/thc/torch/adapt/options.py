"""What users say about adaptation: ``Compression(adapt=…)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from thc.errors import ConfigError

__all__ = ["Adapt"]


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """How a hook adapts; ``Compression(adapt=Adapt())`` has it as it is here.

    - ``every``: steps from one choice of tables to the next.
    - ``threshold``: SlimGC's threshold. In a warm-up each parameter's gradient travels by itself, in every second step
      compressed and in the others not, and the times of both, by size, tell from which size on compression pays. Smaller gradients
      are exact from then on, whatever bucket they travel in.
    - ``warmup``: steps of that warm-up.
    - ``layerwise``: L-GreCo's choice among the job's tables.
    - ``objective``: what a choice makes least: ``"bytes"``, or ``"time"``, for which buckets travel for some steps with tables drawn
      as if by chance, and a linear model of these steps' times over the bytes of all buckets tells what a byte of each costs (L-GreCo,
      section 4).
    - ``default``: the table whose error, used for all, is what may be lost; by default the job's first. Tables are named by bits of an
      index and of a sum, ``"4/8"``, or by bits of an index, ``4``.
    - ``choices``: the tables to choose from; by default all that the job has.
    - ``fixed``: parameters, by name or pattern, that always get this table, or ``"raw"``.
    """

    every: int = 100
    threshold: bool = True
    warmup: int = 6
    layerwise: bool = True
    objective: str = "bytes"
    default: int | str | None = None
    choices: Sequence[int | str] | None = None
    fixed: Mapping[str, int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"adapt: every is {self.every}: give a number of steps, at least 1")
        if self.threshold and (self.warmup < 2 or self.warmup % 2):
            raise ConfigError(f"adapt: warmup is {self.warmup}: give an even number of steps, at least 2")
        if self.objective not in ("bytes", "time"):
            raise ConfigError(f"adapt: objective is {self.objective!r}: write \"bytes\" or \"time\"")
