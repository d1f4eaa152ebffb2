"""What users say about adaptation: the options of ``wrap(model, adapt=…)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thc.errors import ConfigError

__all__ = ["Adapt"]


@dataclass(frozen=True)
class Adapt:
    """How a hook adapts; ``wrap(model, adapt=True)`` takes it as it is here.

    - ``threshold``: SlimGC's threshold. In a warm-up of ``warmup`` steps each parameter's gradient travels by itself, in every second step
      compressed and in the others not, and the times of both, by size, tell from which size on compression pays. Smaller gradients
      are exact from then on, whatever bucket they travel in.
    - ``layerwise``: L-GreCo's choice among the job's tables, each ``every`` steps.
    - ``objective``: what a choice makes least: ``"bytes"``, or ``"time"``, for which buckets travel for some steps with tables drawn
      as if by chance, and a linear model of these steps' times over the bytes of all buckets tells what a byte of each costs (L-GreCo,
      section 4).
    - ``measure``: whose error a choice must not make larger: ``"gradient"``, the squared error of all gradients together, as L-GreCo has it; or
      ``"update"``, that of the step that Adam and its like make of them. They divide each coordinate by its own usual size, so
      that a layer's part is its relative error times its number of coordinates, however small its gradients are.
    - ``default``: the table whose error, used for all, is what may be lost; by default the job's first. Tables are named by bits of an
      index and of a sum, ``"4/8"``, or by bits of an index, ``4``.
    - ``choices``: the tables to choose from; by default all that the job has.
    - ``fixed``: parameters, by name or pattern, that always get this table, or ``"raw"``.
    - ``exact``: solve without steps.
    - ``changed``: by what share a bucket's time must be off for the link to count as another one: then all is measured anew.
    """

    every: int = 100
    threshold: bool = True
    warmup: int = 6
    layerwise: bool = True
    objective: str = "bytes"
    measure: str = "gradient"
    default: int | str | None = None
    choices: Sequence[int | str] | None = None
    fixed: Mapping[str, int | str] = field(default_factory=dict)
    exact: bool = False
    changed: float = 0.5

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"adapt: every is {self.every}: give a number of steps, at least 1")
        if self.threshold and (self.warmup < 2 or self.warmup % 2):
            raise ConfigError(f"adapt: warmup is {self.warmup}: give an even number of steps, at least 2")
        if self.objective not in ("bytes", "time"):
            raise ConfigError(f"adapt: objective is {self.objective!r}: write \"bytes\" or \"time\"")
        if self.measure not in ("gradient", "update"):
            raise ConfigError(f"adapt: measure is {self.measure!r}: write \"gradient\" or \"update\"")
        if not self.changed > 0:
            raise ConfigError(f"adapt: changed is {self.changed}: give a share above 0")

    @staticmethod
    def read(value: Any) -> Adapt | None:
        """From what users give as ``adapt``."""
        if value is None or value is False:
            return None
        if value is True:
            return Adapt()
        if isinstance(value, Adapt):
            return value
        if isinstance(value, Mapping):
            unknown = sorted(set(value) - set(Adapt.__dataclass_fields__))
            if unknown:
                known = ", ".join(Adapt.__dataclass_fields__)
                raise ConfigError(f"adapt: there is no option {', '.join(map(str, unknown))}; there are {known}")
            return Adapt(**value)
        raise ConfigError(f"adapt is {value!r}: write True, or a thc.torch.Adapt")
