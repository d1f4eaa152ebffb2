"""How well a training run hides its communication: ROW as AQGB defines it (section 3), with T_wait and OSF beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Row", "Span", "Training"]

Span = tuple[float, float]
"""From when to when, in seconds of one clock."""


def _ratio(hidden: float, waited: float) -> float:
    """NaN if nothing travelled, infinite if nothing was waited for."""
    if waited > 0.0:
        return hidden / waited
    return float("inf") if hidden > 0.0 else float("nan")


@dataclass(frozen=True)
class Row:
    """What a worker's steps were made of, in seconds."""

    computing: float = 0.0
    """Everything but waiting: forward and backward passes, the optimizer, and what a program does between."""
    updating: float = 0.0
    """From the first byte of a step's gradients to the last (T_update: pauses in between count)."""
    updating_hidden: float = 0.0
    """The part of that time in which it also computed."""
    hidden: float = 0.0
    """Computing while gradients travelled (T_overlap)."""
    waited: float = 0.0
    """Waiting for gradients (T_wait)."""

    @property
    def row(self) -> float:
        """T_overlap / T_wait (Eq. 1): infinite if it never waited, NaN if nothing travelled either."""
        return _ratio(self.hidden, self.waited)

    @property
    def osf(self) -> float:
        """T_comp / (T_comp + T_update - T_overlap), the overlap that of computing and T_update; NaN of no step."""
        whole = self.computing + self.updating - self.updating_hidden
        return self.computing / whole if whole > 0.0 else float("nan")

    def __add__(self, other: Row) -> Row:
        mine, theirs = asdict(self), asdict(other)
        return Row(**{key: mine[key] + theirs[key] for key in mine})

    @classmethod
    def from_spans(cls, step: Span, travelled: Sequence[Span], waited: Sequence[Span]) -> Row:
        """A step's, from when gradients travelled and when they were waited for; what is outside of the step does not count."""
        travels, waits = _union(step, travelled), _union(step, waited)
        update = [(travels[0][0], travels[-1][1])] if travels else []
        waiting, updating = _length(waits), _length(update)
        return cls(
            computing=step[1] - step[0] - waiting,
            updating=updating,
            updating_hidden=updating - _overlap(update, waits),
            hidden=_length(travels) - _overlap(travels, waits),
            waited=waiting,
        )


def _union(step: Span, spans: Iterable[Span]) -> list[Span]:
    """What spans cover of a step, without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        start, end = max(start, step[0]), min(end, step[1])
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _overlap(ones: Iterable[Span], others: Sequence[Span]) -> float:
    """What two such unions have in common."""
    return sum(max(0.0, min(end, to) - max(start, begin)) for start, end in ones for begin, to in others)


class Training:
    """The steps of all models that a group's gradients are of."""

    def __init__(self) -> None:
        self.steps = 0
        self.last = Row()
        """The last step's."""
        self.total = Row()
        self.group_hidden = 0.0
        """Over all steps whose times were compared, the shortest overlap of a worker."""
        self.group_waited = 0.0
        """And the longest wait."""
        self.group_last = float("nan")
        """ROW of the group in the last of them (Eq. 2)."""

    def step(self, row: Row) -> None:
        """A step is over on this worker."""
        self.steps += 1
        self.last = row
        self.total = self.total + row

    def note_comparison(self, workers: Iterable[tuple[float, float]]) -> None:
        """All workers' overlap and wait in a step: ROW of the group is the shortest overlap over the longest wait (Eq. 2)."""
        every = list(workers)
        hidden, waited = min(one for one, _ in every), max(one for _, one in every)
        self.group_hidden += hidden
        self.group_waited += waited
        self.group_last = _ratio(hidden, waited)

    def totals(self) -> dict[str, Any]:
        """As fields of :class:`thc.Stats`."""
        return {**asdict(self.total), "group_hidden": self.group_hidden, "group_waited": self.group_waited}
