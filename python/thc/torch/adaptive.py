"""What a hook with ``adapt`` decides while it trains: which tensors are compressed at all, and with which table.

Ranks agree through the job itself, by all-reduces of 32-bit integers that carry whole numbers without error. So an agreement is one
more call in the order of calls: it is lost, repeated and given up like any other, and all ranks that have it have the same.
"""

from __future__ import annotations

import math
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from thc import adapt
from thc.errors import ConfigError
from thc.group import Group
from thc.torch.plan import Plan

__all__ = ["Adapt", "Adaptive"]

RAW = "raw"
_NEVER = 0xFFFF_FFFF
"""The threshold when compression never pays."""
_TICK = 1e-7
"""Seconds; times are told in these."""
LOOKS = 8
"""Steps whose gradients a choice goes by."""
SETTLE = 2
"""First steps that are not timed: DDP makes its final buckets after the first."""


@dataclass(frozen=True)
class Adapt:
    """How a hook adapts; ``wrap(model, adapt=True)`` takes it as it is here.

    - ``threshold``: SlimGC's threshold. In a warm-up of ``warmup`` steps every second one is compressed and the others are
      not, and the times of both, by size of tensor, tell from which size on compression pays. A tensor is what travels in one
      call, which is a bucket of DDP.
    - ``layerwise``: L-GreCo's choice among the job's tables, each ``every`` steps.
    - ``default``: bits of the table whose error, used for all, is what may be lost; by default those of the job's first table.
    - ``choices``: bits of the tables to choose from; by default all that the job has.
    - ``exact``: solve without steps.
    - ``changed``: by what share a tensor's time must be off for the link to count as another one: then all is measured anew.
    """

    every: int = 100
    threshold: bool = True
    warmup: int = 12
    layerwise: bool = True
    default: int | None = None
    choices: Sequence[int] | None = None
    exact: bool = False
    changed: float = 0.5

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"adapt: every is {self.every}: give a number of steps, at least 1")
        if self.threshold and (self.warmup < 2 or self.warmup % 2):
            raise ConfigError(f"adapt: warmup is {self.warmup}: give an even number of steps, at least 2")
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


@dataclass(frozen=True)
class Table:
    """One of the job's tables."""

    name: str
    bits: int
    lane: int
    nmse: float
    number: int = 0


@dataclass
class _Clock:
    """Times of one size's calls since the last agreement."""

    raw: list[float] = field(default_factory=list)
    compressed: list[float] = field(default_factory=list)


class Adaptive:
    """The state of one hook's adaptation. All methods run on the group's lane."""

    def __init__(self, options: Adapt, group: Group, names: Mapping[str, int], excluded: Iterable[str], rank: int, first: int) -> None:
        job = group.job
        if job.policy != "reliable" or job.quorum < job.workers:
            raise ConfigError(
                f"adapt needs a job that loses nothing, for all ranks must choose alike: this one is {job.policy} with a quorum "
                f"of {job.quorum} of {job.workers}"
            )
        self.options = options
        self._group, self._rank = group, rank
        self._sizes = dict(names)
        self._excluded = frozenset(excluded)
        self._block = job.block
        self.tables = _tables_of(group, options)
        bits = [table.bits for table in self.tables]
        default = self.tables[0].bits if options.default is None else options.default
        if default not in bits:
            raise ConfigError(
                f"adapt: default is {default} bits, but the job's tables have {', '.join(map(str, bits))}: choose one of them, or "
                "give the job such a table"
            )
        self._default = bits.index(default)
        self.threshold = 0
        """Tensors of fewer coordinates are not compressed."""
        self.table = adapt.ThresholdTable()
        """Times of this rank."""
        self.plans: list[Plan] = []
        self.seconds = 0.0
        """What all of it has taken on this rank, in time of the lane."""
        self._choice = dict.fromkeys(self._sizes, self._default)
        self._squares: dict[str, list[float]] = {}
        self._clocks: dict[int, _Clock] = {}
        self._tensor: dict[str, int] = {}
        """By parameter, the coordinates of the tensor that it travels in."""
        self._begin(first)

    def fingerprint(self) -> int:
        """Of what must be the same on all ranks."""
        text = repr((sorted(self._sizes.items()), sorted(self._excluded), self.options))
        return zlib.crc32(text.encode())

    # Phases: two steps to settle, the warm-up with both ways in turn, then choices each `every` steps.

    def _begin(self, step: int) -> None:
        self._from = step
        self.table = adapt.ThresholdTable()
        self._clocks.clear()
        self.threshold = 0
        self._measured = not self.options.threshold
        self._next = step + SETTLE + (self.options.warmup if self.options.threshold else LOOKS)

    def restart(self, step: int) -> None:
        """Begins with all defaults, as after a time without the server: on all ranks alike."""
        self._choice = dict.fromkeys(self._sizes, self._default)
        self._squares.clear()
        self._begin(step)

    def begin_step(self, step: int) -> None:
        """Before a step's first bucket. Agrees with the others when it is time; raises what a call raises."""
        if step < self._next:
            return
        started = time.perf_counter()
        if not self._measured:
            self._agree_threshold()
            self._measured = True
        self._choose(step, started)
        self._next = step + self.options.every
        self.seconds += time.perf_counter() - started

    @property
    def warming(self) -> bool:
        """Whether both ways are being timed."""
        return not self._measured

    def raw_now(self, step: int, length: int) -> bool:
        """Whether a tensor of so many coordinates travels raw in this step."""
        if not self._measured:
            return (step - self._from) % 2 == 0  # SlimGC counts steps from 1: the odd ones
        return length < self.threshold

    def choice(self, name: str) -> int:
        """The number of a parameter's table."""
        return self.tables[self._choice.get(name, self._default)].number

    def measures(self, step: int) -> bool:
        """Whether this rank looks at the gradients of a step: rank 0, in the last ones before a choice."""
        return self._rank == 0 and self.options.layerwise and step >= self._next - LOOKS

    def place(self, segments: Sequence[Any]) -> None:
        """These parameters travel together."""
        length = sum(segment.length for segment in segments)
        for segment in segments:
            self._tensor[segment.name] = length

    def look(self, segments: Sequence[Any], data: torch.Tensor) -> None:
        """Takes the norms of a bucket's gradients."""
        started = time.perf_counter()
        for segment in segments:
            part = data[segment.slice]
            square = float(torch.dot(part, part))
            if math.isfinite(square):
                self._squares.setdefault(segment.name, []).append(square)
        self.seconds += time.perf_counter() - started

    def took(self, step: int, length: int, raw: bool, seconds: float, processing: float) -> None:
        """A tensor's call took so long, of which so much computing."""
        if step < self._from + SETTLE:
            return
        if not self._measured:
            if raw:
                self.table.raw(length, seconds)
            else:
                self.table.compressed(length, max(0.0, seconds - processing), processing)
            return
        clock = self._clocks.setdefault(length, _Clock())
        (clock.raw if raw else clock.compressed).append(seconds)

    # Agreements.

    def _exchange(self, mine: Sequence[int]) -> list[list[int]]:
        """Every rank's numbers, of 32 bits each, and as many on each rank: as halves, which the mean of an all-reduce in 32-bit
        integers keeps exactly."""
        size, width = self._group.workers, 2 * len(mine)
        box = np.zeros((size, width), dtype=np.float32)
        for at, number in enumerate(mine):
            box[self._rank, 2 * at : 2 * at + 2] = number >> 16, number & 0xFFFF
        flat = box.reshape(-1)
        self._group.allreduce(flat, mode="raw")
        halves = np.rint(flat.astype(np.float64) * size).astype(np.int64).reshape(size, -1, 2)
        return [[int(high) << 16 | int(low) for high, low in row] for row in halves]

    def _agree_threshold(self) -> None:
        rows = self.table.rows()
        numbers = []
        for row in rows:
            numbers += [row.size, _ticks(row.raw), _ticks(row.compressed), _ticks(row.processing)]
        tables = []
        for theirs in self._exchange(numbers or [0]):
            table = adapt.ThresholdTable()
            for at in range(0, 4 * len(rows), 4):
                size, raw, compressed, processing = theirs[at : at + 4]
                table.raw(size, raw * _TICK)
                table.compressed(size, compressed * _TICK, processing * _TICK)
            tables.append(table)
        agreed = adapt.ThresholdTable.agreed(tables)
        self.threshold = _NEVER if agreed is None else agreed

    def _link_changed(self) -> bool:
        """Whether what took most of the time takes another time now than in the warm-up."""
        known = {row.size: row for row in self.table.rows()}
        def weight(length: int) -> float:
            clock = self._clocks[length]
            return sum(clock.raw) + sum(clock.compressed)
        for length in sorted(self._clocks, key=weight, reverse=True)[:1]:
            row, clock = known.get(length), self._clocks[length]
            if row is None:
                continue
            for now, before in ((clock.raw, row.raw), (clock.compressed, row.compressed + row.processing)):
                if len(now) >= 4 and abs(float(np.median(now)) - before) > self.options.changed * before:
                    return True
        return False

    def _choose(self, step: int, started: float) -> None:
        names = list(self._sizes)
        layerwise = self.options.layerwise and len(self.tables) > 1
        squares = [float(np.mean(self._squares[name])) if name in self._squares else 0.0 for name in names]
        choices = [self._choice[name] for name in names]
        if self._rank == 0 and layerwise and any(squares):
            choices = self._solve(names, squares)
        own = [int(self._link_changed()), self.threshold if self._rank == 0 else 0]
        for choice, square in zip(choices, squares):
            own += [choice, struct.unpack("<I", struct.pack("<f", min(square, 3e38)))[0]] if self._rank == 0 else [0, 0]
        told = self._exchange(own)
        first = told[0]
        self._choice = {name: first[2 + 2 * at] for at, name in enumerate(names)}
        squares = [struct.unpack("<f", struct.pack("<I", first[3 + 2 * at]))[0] for at in range(len(names))]
        self._squares.clear()
        self._clocks.clear()
        self.plans.append(self._plan(step, names, squares, time.perf_counter() - started))
        if self.options.threshold and any(theirs[0] for theirs in told):
            self._begin(step)

    def _columns(self, names: Sequence[str], squares: Sequence[float]) -> tuple[list[list[float]], list[list[float]]]:
        costs = [[self._bytes(self._sizes[name], table) for table in self.tables] for name in names]
        errors = [[square * table.nmse for table in self.tables] for square in squares]
        return costs, errors

    def _bytes(self, length: int, table: Table) -> float:
        """A layer's part of its bucket's bytes."""
        whole = 1 << 20
        return adapt.thc_bytes(whole, table.bits, lane=table.lane, block=self._block) * length / whole

    def _is_raw(self, name: str) -> bool:
        return name in self._excluded or self._tensor.get(name, _NEVER) < self.threshold

    def _solve(self, names: Sequence[str], squares: Sequence[float]) -> list[int]:
        included = [at for at, name in enumerate(names) if not self._is_raw(name)]
        costs, errors = self._columns([names[at] for at in included], [squares[at] for at in included])
        uniform = adapt.price(costs, errors, [self._default] * len(included))
        found = uniform
        try:
            found = adapt.layerwise(costs, errors, uniform.error * (1 + 1e-9), exact=self.options.exact)
        except ConfigError:
            pass  # the default fits exactly, but not in steps
        choices = [self._default] * len(names)
        for at, choice in zip(included, found.choices if found.cost < uniform.cost else uniform.choices):
            choices[at] = choice
        return choices

    def _plan(self, step: int, names: Sequence[str], squares: Sequence[float], seconds: float) -> Plan:
        costs, errors = self._columns(names, squares)
        raw = [self._is_raw(name) for name in names]
        def column(of: list[list[float]], otherwise: Callable[[int], float]) -> list[float]:
            return [otherwise(at) if raw[at] else row[self._choice[names[at]]] for at, row in enumerate(of)]
        whole = adapt.thc_bytes(1 << 20, None, block=self._block) / (1 << 20)
        if self.threshold == _NEVER:
            why = "compression does not pay on this link: all raw"
        else:
            why = f"tensors of fewer than {self.threshold} coordinates raw" if self.threshold else ""
        return Plan.of(
            step,
            [(name, self._sizes[name]) for name in names],
            [RAW if raw[at] else self.tables[self._choice[name]].name for at, name in enumerate(names)],
            column(errors, lambda at: 0.0),
            column(costs, lambda at: whole * self._sizes[names[at]]),
            uniform=sum(column([[row[self._default]] * len(row) for row in costs], lambda at: whole * self._sizes[names[at]])),
            bound=sum(column([[row[self._default]] * len(row) for row in errors], lambda at: 0.0)),
            seconds=seconds,
            why=why,
        )

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Choices, threshold and plans."""
        return {
            "choices": {name: self.tables[number].name for name, number in self._choice.items()},
            "threshold": self.threshold,
            "measured": self._measured,
            "next": self._next,
            "plans": [plan.as_dict() for plan in self.plans],
        }

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Goes on with these choices; a layer or table that is not there any more has the default."""
        numbers = {table.name: number for number, table in enumerate(self.tables)}
        unknown = sorted(set(state["choices"]) - set(self._sizes))
        if unknown:
            raise ConfigError(f"adapt: the checkpoint has a choice for {unknown[0]}, which is no parameter of this model")
        self.plans = [Plan.from_dict(plan) for plan in state["plans"]]
        self._choice = dict.fromkeys(self._sizes, self._default)
        for name, table in state["choices"].items():
            self._choice[name] = numbers.get(table, self._default)
        if state["measured"]:
            self._measured, self.threshold = True, int(state["threshold"])
            self._next = max(int(state["next"]), step)
        else:
            self._begin(step)


def _tables_of(group: Group, options: Adapt) -> list[Table]:
    """The job's tables that a policy may use."""
    job = group.job
    nmse = adapt.thc_error(job.bits, job.workers, lane=job.lane).nmse
    tables = [Table(f"{job.bits} bits", job.bits, job.lane, nmse)]
    if options.choices is not None:
        have = {table.bits for table in tables}
        lacking = [bits for bits in options.choices if bits not in have]
        if lacking:
            raise ConfigError(
                f"adapt: choices has {lacking[0]} bits, but the job's tables have {', '.join(map(str, sorted(have)))}: give the "
                "job such a table"
            )
        tables = [table for table in tables if table.bits in options.choices]
    return tables


def _ticks(seconds: float) -> int:
    return min(0xFFFF_FFFE, round(seconds / _TICK))
