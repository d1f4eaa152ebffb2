"""What a hook with ``adapt`` decides while it trains: which tensors are compressed at all, and with which table.

Ranks agree through the job itself, by all-reduces of 32-bit integers that carry whole numbers without error. So an agreement is one
more call in the order of calls: it is lost, repeated and given up like any other, and all ranks that have it have the same.
"""

from __future__ import annotations

import fnmatch
import math
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from thc import adapt
from thc.errors import ConfigError
from thc.group import Group
from thc.torch.exchange import exchange, tells
from thc.torch.layout import Layout
from thc.torch.peers import Peers
from thc.torch.plan import Plan

__all__ = ["Adapt", "Adaptive", "tables_for"]

RAW = "raw"
_NEVER = 0xFFFF_FFFF
"""The threshold when compression never pays."""
_TICK = 1e-7
"""Seconds; times are told in these."""
SHORTEST = 4096
"""Coordinates of a span; shorter ones would be padding for the most part."""
LOOKS = 8
"""Steps whose gradients a choice goes by."""
POINTS = 64
"""Calls of a tensor that tell what a byte costs there."""
SETTLE = 2
"""First steps that are not timed: DDP makes its final buckets after the first."""


@dataclass(frozen=True)
class Adapt:
    """How a hook adapts; ``wrap(model, adapt=True)`` takes it as it is here.

    - ``threshold``: SlimGC's threshold. In a warm-up of ``warmup`` steps every second one is compressed and the others are
      not, and the times of both, by size of tensor, tell from which size on compression pays. A tensor is what travels in one
      call, which is a bucket of DDP.
    - ``layerwise``: L-GreCo's choice among the job's tables, each ``every`` steps.
    - ``objective``: what a choice makes least: ``"bytes"``, or ``"time"``, for which a line is fitted to the measured times of each
      tensor over its bytes, and a byte costs that line's slope (L-GreCo, section 4).
    - ``default``: the table whose error, used for all, is what may be lost; by default the job's first. Tables are named by bits of an
      index and of a sum, ``"4/8"``, or by bits of an index, ``4``.
    - ``choices``: the tables to choose from; by default all that the job has.
    - ``fixed``: parameters, by name or pattern, that always get this table, or ``"raw"``.
    - ``exact``: solve without steps.
    - ``changed``: by what share a tensor's time must be off for the link to count as another one: then all is measured anew.
    """

    every: int = 100
    threshold: bool = True
    warmup: int = 6
    layerwise: bool = True
    objective: str = "bytes"
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
    """Bits of an index and of a sum."""
    bits: int
    lane: int
    nmse: float
    id: int
    """The job's."""


@dataclass
class _Clock:
    """Times of one size's calls since the last agreement."""

    raw: list[float] = field(default_factory=list)
    compressed: list[float] = field(default_factory=list)


class Adaptive:
    """The state of one hook's adaptation. All methods run on the sequencer of the group's pipeline."""

    def __init__(self, options: Adapt, group: Group, names: Mapping[str, int], excluded: Iterable[str], rank: int, first: int) -> None:
        job = group.job
        if not tells(group):
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
        self._default = 0 if options.default is None else _named(self.tables, options.default, "default")
        self._fixed = self._read_fixed(options.fixed)
        self.threshold = 0
        """Tensors of fewer coordinates are not compressed."""
        self._before: int | None = None
        """The threshold agreed on last."""
        self._points: dict[int, deque[tuple[float, float]]] = {}
        """By size of tensor, bytes and seconds of its calls."""
        self._carried: dict[int, float] = {}
        """By size of tensor, the bytes of its last call."""
        self._shares: dict[int, float] = {}
        """By layout, what the way that carries more had of 4 bytes for each coordinate in its last call."""
        self.table = adapt.ThresholdTable()
        """Times of this rank."""
        self.plans: list[Plan] = []
        self.seconds = 0.0
        """What all of it has taken on this rank, in time of the sequencer."""
        self._choice = self._defaults()
        self._spans: dict[int, list[tuple[int, int | str]]] = {}
        """By layout, until the next choice."""
        self._squares: dict[str, list[float]] = {}
        self._clocks: dict[int, _Clock] = {}
        self._tensor: dict[str, int] = {}
        """By parameter, the coordinates of the tensor that it travels in."""
        self._begin(first)

    def _read_fixed(self, fixed: Mapping[str, int | str]) -> dict[str, int | None]:
        """By parameter: the number of its table, or nothing for raw."""
        found: dict[str, int | None] = {}
        for pattern, choice in fixed.items():
            names = fnmatch.filter(self._sizes, pattern)
            if not names:
                raise ConfigError(f"adapt: fixed names {pattern}, which is no parameter of this model: see model.named_parameters()")
            number = None if choice == RAW else _named(self.tables, choice, "fixed")
            found.update(dict.fromkeys(names, number))
        return found

    def _defaults(self) -> dict[str, int]:
        """Where nothing was measured: the default, and what is fixed."""
        fixed = {name: number for name, number in self._fixed.items() if number is not None}
        return dict.fromkeys(self._sizes, self._default) | fixed

    @staticmethod
    def alike(
        options: Adapt, group: Group, peers: Peers, names: Mapping[str, int], excluded: Iterable[str] = (), first: int = 0
    ) -> Adaptive:
        """On all ranks; raises unless they have the same parameters and options."""
        made = Adaptive(options, group, names, excluded, peers.rank, first)
        text = repr((sorted(made._sizes.items()), sorted(made._excluded), options))
        prints = [each for each, in peers.gather([zlib.crc32(text.encode())])]
        other = next((rank for rank, each in enumerate(prints) if each != prints[0]), None)
        if other is not None:
            raise ConfigError(
                f"adapt: rank {other} has another model, or other options, than rank 0: all ranks choose for the same parameters"
            )
        return made

    # Phases: two steps to settle, the warm-up with both ways in turn, then choices each `every` steps.

    def _begin(self, step: int) -> None:
        self._from = step
        self.table = adapt.ThresholdTable()
        self._clocks.clear()
        self.threshold = 0
        self._spans.clear()
        self._measured = not self.options.threshold
        self._next = step + SETTLE + (self.options.warmup if self.options.threshold else LOOKS)

    def restart(self, step: int) -> None:
        """Begins with all defaults, as after a time without the server: on all ranks alike."""
        self._choice = self._defaults()
        self._squares.clear()
        self._before = None
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

    def spans(self, layout: Layout, step: int) -> list[tuple[int, int | str]]:
        """How a bucket travels in this step: coordinates, and the id of their table or "raw"."""
        if self.raw_now(layout.length, step):
            self._carried[layout.length] = self._bytes(layout.length, None)
            self._shares[layout.key] = 1.0
            return [(layout.length, RAW)]
        if layout.key not in self._spans:
            self._spans[layout.key] = self._cut(layout)
        spans = self._spans[layout.key]
        of: dict[int | str, Table] = {table.id: table for table in self.tables}
        self._carried[layout.length] = sum(self._bytes(length, of.get(choice)) for length, choice in spans)
        wide = {choice: max(table.bits, table.lane) / 32 for choice, table in of.items()}
        self._shares[layout.key] = sum(length * wide.get(choice, 1.0) for length, choice in spans) / layout.length
        return spans

    def share(self, layout: Layout) -> float:
        """What a link carries of a bucket of this layout, of 4 bytes for each coordinate, as it has travelled last."""
        return self._shares.get(layout.key, 1.0)

    def raw_now(self, length: int, step: int) -> bool:
        """Whether a tensor of so many coordinates travels raw in this step."""
        if not self._measured:
            return (step - self._from) % 2 == 0  # SlimGC counts steps from 1: the odd ones
        return length < self.threshold

    def _cut(self, layout: Layout) -> list[tuple[int, int | str]]:
        runs: list[tuple[int, int | None]] = []

        def add(length: int, choice: int | None) -> None:
            if runs and runs[-1][1] == choice:
                length += runs.pop()[0]
            runs.append((length, choice))

        for segment in layout.segments:
            add(segment.length, None if self._never(segment.name) else self._choice[segment.name])
        # Each span is padded to whole packets: a short one goes along with the better neighbour that is compressed, too.
        while True:
            short = [at for at, (length, choice) in enumerate(runs) if length < SHORTEST and choice is not None]
            for at in short:
                beside = [i for i in (at - 1, at + 1) if 0 <= i < len(runs) and runs[i][1] is not None]
                if beside:
                    break
            else:
                return [(length, RAW if choice is None else self.tables[choice].id) for length, choice in runs]
            better = min(beside, key=lambda i: self.tables[runs[i][1] or 0].nmse)
            joined = [(length, runs[better][1] if i == at else choice) for i, (length, choice) in enumerate(runs)]
            runs.clear()
            for length, choice in joined:
                add(length, choice)

    def _never(self, name: str) -> bool:
        """Whether a parameter always travels raw."""
        return name in self._excluded or (name in self._fixed and self._fixed[name] is None)

    def measures(self, step: int) -> bool:
        """Whether this rank looks at the gradients of a step: rank 0, in the last ones before a choice."""
        return self._rank == 0 and self.options.layerwise and step >= self._next - LOOKS

    def times(self, step: int) -> bool:
        """Whether this step's calls are timed: then each must be alone. In the warm-up, and in the last steps before a choice."""
        return self.warming or step >= self._next - LOOKS

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
        if length in self._carried:
            self._points.setdefault(length, deque(maxlen=POINTS)).append((self._carried[length], seconds))
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
        return exchange(self._group, self._rank, mine)

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
        agreed = adapt.ThresholdTable.agreed(tables, self._before)
        self.threshold = self._before = _NEVER if agreed is None else agreed

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
        self._spans.clear()
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

    def _bytes(self, length: int, table: Table | None) -> float:
        """A layer's part of its bucket's bytes; without a table, raw."""
        whole = 1 << 20
        if table is None:
            return adapt.thc_bytes(whole, None, block=self._block) * length / whole
        return adapt.thc_bytes(whole, table.bits, lane=table.lane, block=self._block) * length / whole

    def _prices(self, names: Sequence[str]) -> list[float]:
        """What a byte of each layer costs: 1, or the seconds that it takes in its tensor."""
        if self.options.objective == "bytes":
            return [1.0] * len(names)
        slopes = {length: adapt.fit(points).slope for length, points in self._points.items() if len(points) > 1}
        if not any(slopes.values()):
            return [1.0] * len(names)
        # Where nothing was measured, or noise has hidden what a byte costs, it still costs something.
        most = max(slopes.values())
        return [max(slopes.get(self._tensor.get(name, 0), most), most / 100) for name in names]

    def _is_raw(self, name: str) -> bool:
        return self._never(name) or self._tensor.get(name, _NEVER) < self.threshold

    def _solve(self, names: Sequence[str], squares: Sequence[float]) -> list[int]:
        included = [at for at, name in enumerate(names) if not self._is_raw(name) and name not in self._fixed]
        defaults = self._defaults()
        choices = [defaults[name] for name in names]
        if not included:
            return choices
        costs, errors = self._columns([names[at] for at in included], [squares[at] for at in included])
        prices = self._prices([names[at] for at in included])
        costs = [[price * cost for cost in row] for price, row in zip(prices, costs)]
        uniform = adapt.price(costs, errors, [self._default] * len(included))
        found = uniform
        try:
            found = adapt.layerwise(costs, errors, uniform.error * (1 + 1e-9), exact=self.options.exact)
        except ConfigError:
            pass  # the default fits exactly, but not in steps
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
        self._choice = self._defaults()
        for name, table in state["choices"].items():
            self._choice[name] = numbers.get(table, self._default)
        self._spans.clear()
        if state["measured"]:
            self._measured, self.threshold = True, int(state["threshold"])
            self._before = self.threshold if self.options.threshold else None
            self._next = max(int(state["next"]), step)
        else:
            self._begin(step)


def tables_for(workers: int) -> list[str]:
    """Further tables worth having in a job of so many workers whose first has 4 bits: of each width the one with the narrowest sums
    that fit, and 8 bits for layers that must not lose much."""
    fitting = [
        (bits, lane)
        for bits in (1, 2, 3)
        for lane in (4, 8)
        if ((1 << bits) - 1) * workers < 1 << lane and adapt.thc_error(bits, workers, lane=lane).left <= adapt.MOST_LEFT
    ]
    narrowest = [form for at, form in enumerate(fitting) if at == 0 or fitting[at - 1][0] != form[0]]
    return [f"bits={bits},lane={lane}" for bits, lane in [*narrowest, (8, 16)]]


def _tables_of(group: Group, options: Adapt) -> list[Table]:
    """The job's tables that a policy may use; its first is the first. Of the others those are left out whose error feedback would
    grow, or nearly so: that makes tables look good which round coarsely, for what they lose is averaged over ranks, but each rank's
    error feedback is its own."""
    job = group.job
    tables: list[Table] = []
    coarse: list[Table] = []
    for told in group.tables:
        error = adapt.thc_error(told.bits, job.workers, told.granularity, told.fraction)
        table = Table(f"{told.bits}/{told.lane}", told.bits, told.lane, error.nmse, told.id)
        (coarse if tables and error.left > adapt.MOST_LEFT else tables).append(table)
    named: list[tuple[str, int | str | None]] = [("default", options.default)]
    named += [("choices", choice) for choice in options.choices or ()]
    named += [("fixed", choice) for choice in options.fixed.values()]
    for option, choice in named:
        for table in coarse:
            if choice in (table.bits, table.name) and not any(choice in (other.bits, other.name) for other in tables):
                raise ConfigError(
                    f"adapt: {option} has the table {choice}, which leaves more than half of a gradient to error feedback: give it a fraction "
                    "near 0.5, or more bits"
                )
    if options.choices is not None:
        wanted = [_named(tables, choice, "choices") for choice in options.choices]
        tables = [table for at, table in enumerate(tables) if at in wanted]
    if not tables:
        raise ConfigError("adapt: choices is empty: name some of the job's tables, or leave it out")
    return tables


def _named(tables: Sequence[Table], name: int | str, option: str) -> int:
    """Which table is meant."""
    for at, table in enumerate(tables):
        if name in (table.bits, table.name):
            return at
    have = ", ".join(table.name for table in tables)
    raise ConfigError(f"adapt: {option} has the table {name}, but this job's tables are {have}: name one of them, or give the job such a table")


def _ticks(seconds: float) -> int:
    return min(0xFFFF_FFFE, round(seconds / _TICK))
