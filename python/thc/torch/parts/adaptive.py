"""What a hook with ``adapt`` decides while training goes on: which tensors are compressed at all, and with which table.

Ranks agree through the job itself, by all-reduces of 32-bit integers that carry whole numbers without error. So an agreement is one
more call in the order of calls: it is lost, repeated and given up like any other, and all ranks that have it have the same.
"""

from __future__ import annotations

import fnmatch
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from thc import adapt
from thc.base_group import BaseGroup
from thc.errors import ConfigError, MismatchError
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.bucket import Bucket, PlannedCall, Way
from thc.torch.parts.part import Part, Span
from thc.torch.parts.plan import Adapt, Plan, PlanRow
from thc.torch.parts.tables import NEVER, Prices, Table, agree_threshold, append_run, find_table, join_short, tables_of_job
from thc.torch.ranks.gathering import exchange, tells
from thc.torch.ranks.peers import Peers

RAW = "raw"
LOOKS = 8
"""Steps whose gradients a choice goes by."""
SETTLE = 2
"""First steps that are not timed: DDP makes its final buckets after the first."""


class Adaptive(Part):
    """Chooses how each tensor travels."""

    name = "adapt"
    host_reason = "adapt measures and times what the host does"

    def __init__(self, options: Adapt, group: BaseGroup, names: Mapping[str, int], excluded: Iterable[str], rank: int, first: int) -> None:
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
        self.tables = tables_of_job(group, options)
        self._default = 0 if options.default is None else find_table(self.tables, options.default, "default")
        self._fixed = self._read_fixed(options.fixed)
        self.threshold = 0
        """Gradients of fewer coordinates are not compressed."""
        timed = options.objective == "time" and options.layerwise and len(self.tables) > 1
        self.prices = Prices(len(self.tables)) if timed else None
        self._price: dict[str, float] = {}
        """By parameter, what a byte costs, if that was measured."""
        self._carried: dict[int, float] = {}
        """By layout, the bytes of its last call."""
        self.table: adapt.ThresholdTable
        """Times of this rank."""
        self.plans: list[Plan] = []
        self.seconds = 0.0
        """What all of it has taken on this rank, in time of the sequencer."""
        self._choice = self._defaults()
        self._spans: dict[int, list[tuple[int, int | str]]] = {}
        """By layout, until the next choice."""
        self._squares: dict[str, list[float]] = {}
        self._bucket: dict[str, int] = {}
        """By parameter, the layout that it travels in."""
        self._apart: dict[tuple[int, str], Layout] = {}
        """The layouts of a bucket's parameters, each by itself."""
        self._step = -1
        """The step whose buckets came last."""
        self._begin(first)

    def _read_fixed(self, fixed: Mapping[str, int | str]) -> dict[str, int | None]:
        """By parameter: the number of its table, or nothing for raw."""
        found: dict[str, int | None] = {}
        for pattern, choice in fixed.items():
            names = fnmatch.filter(self._sizes, pattern)
            if not names:
                raise ConfigError(f"adapt: fixed names {pattern}, which is not a parameter of this model: see model.named_parameters()")
            number = None if choice == RAW else find_table(self.tables, choice, "fixed")
            found.update(dict.fromkeys(names, number))
        return found

    def _defaults(self) -> dict[str, int]:
        """Where nothing was measured: the default, and what is fixed."""
        fixed = {name: number for name, number in self._fixed.items() if number is not None}
        return dict.fromkeys(self._sizes, self._default) | fixed

    @staticmethod
    def create(
        options: Adapt, group: BaseGroup, peers: Peers, names: Mapping[str, int], excluded: Iterable[str] = (), first: int = 0
    ) -> Adaptive:
        """On all ranks; raises unless they have the same parameters and options."""
        made = Adaptive(options, group, names, excluded, peers.rank, first)
        text = repr((sorted(made._sizes.items()), sorted(made._excluded), options))
        prints = [each for each, in peers.gather([zlib.crc32(text.encode())])]
        other = next((rank for rank, each in enumerate(prints) if each != prints[0]), None)
        if other is not None:
            raise ConfigError(f"adapt: rank {other} has another model, or other options, than rank 0: all ranks choose for the same parameters")
        return made

    # Phases: two steps to settle; the warm-up, both ways in turn; for the objective "time" the steps that tell prices; then choices each
    # `every` steps.

    def _begin(self, step: int) -> None:
        self._from = step
        self._step = -1
        self.table = adapt.ThresholdTable()
        self.threshold = 0
        self._spans.clear()
        self._price.clear()
        self._measured = not self.options.threshold
        self._probes = False
        self._probed = self.prices is None
        self._next = step + SETTLE
        if self.options.threshold:
            self._next += self.options.warmup
        elif self._probed:
            self._next += LOOKS

    def restart(self, step: int) -> None:
        """Begins with all defaults."""
        self._choice = self._defaults()
        self._squares.clear()
        self._begin(step)

    def begin(self, bucket: Bucket, step: int) -> None:
        # The first bucket that the job carries: others may come before it.
        layout, is_first = bucket.layout, step != self._step
        self._step = step
        for segment in layout.segments:
            self._bucket[segment.name] = layout.key
        if is_first:
            if step >= self._next:
                self._begin_step(step)
            self.is_timed = step >= self._from and self.is_warming_up
        if step < self._from:
            return
        if self._rank == 0 and self.options.layerwise and step >= self._next - LOOKS:
            self._look(bucket)
        bucket.way = Way(self._plan_spans(layout, step))
        if self.is_warming_up:
            bucket.way.alone = [self._plan_alone(layout, segment, step) for segment in layout.segments if segment.length]

    def end(self, bucket: Bucket, span: Span | None, error: BaseException | None) -> bool:
        if isinstance(error, MismatchError):
            error.args = (f"{error}; with adapt, also if ranks have different plans: load checkpoints of one step on all",)
        if error is not None or span is None or bucket.way is None:
            return False
        if self._probes and self.prices is not None:
            self.prices.note_travel(bucket.layout.key, self._carried.get(bucket.layout.key, 0.0), *span)
        elif bucket.way.alone:
            for call, (seconds, computed) in zip(bucket.way.alone, bucket.way.seconds):
                ((length, choice),) = call.spans
                if not self.never(call.layout.segments[0].name):
                    self.took(self._step, length, choice == RAW, seconds, min(seconds, computed))
        return False

    def end_calls(self, nonfinite: bool) -> None:
        if self._probes and self.prices is not None:
            self.prices.end_step()

    def _begin_step(self, step: int) -> None:
        """Agrees with the others, since it is time; raises what a call raises."""
        started = time.perf_counter()
        if not self._measured:
            self.threshold = agree_threshold(self._group, self._rank, self.table)
            self._measured = True
        if self.prices is not None and not self._probed:
            self._probed = self._probes = True
            self.prices.begin()
            self._next = step + Prices.steps(len(set(self._bucket.values())))
            return
        self._probes = False
        self._choose(step, started)
        self._next = step + self.options.every
        self.seconds += time.perf_counter() - started

    @property
    def is_warming_up(self) -> bool:
        """Whether both ways are being timed: then each gradient travels by itself."""
        return not self._measured

    def _plan_alone(self, layout: Layout, segment: Segment, step: int) -> PlannedCall:
        """How a gradient travels in a call of its own."""
        place = (layout.key, segment.name)
        if place not in self._apart:
            self._apart[place] = Layout(f"{layout.scope}.alone", [Segment(segment.name, 0, segment.length, True)])
        raw = (step - self._from) % 2 == 0  # SlimGC counts steps from 1: the odd ones
        choice = RAW if raw or self.never(segment.name) else self.tables[self._choice[segment.name]].id
        return PlannedCall(segment.slice, self._apart[place], [(segment.length, choice)])

    def _plan_spans(self, layout: Layout, step: int) -> list[tuple[int, int | str]]:
        """How a bucket travels in one call: coordinates, and the id of their table or "raw"."""
        if self._probes and self.prices is not None:
            drawn = self.prices.draw(layout.key, step)
            fixed = self._defaults()
            spans = self._cut(layout, lambda name: fixed[name] if name in self._fixed else drawn)
        else:
            if layout.key not in self._spans:
                self._spans[layout.key] = self._cut(layout, self._choice.__getitem__)
            spans = self._spans[layout.key]
        of: dict[int | str, Table] = {table.id: table for table in self.tables}
        self._carried[layout.key] = sum(self._bytes(length, of.get(choice)) for length, choice in spans)
        return spans

    def _cut(self, layout: Layout, choice_of: Callable[[str], int]) -> list[tuple[int, int | str]]:
        runs: list[tuple[int, int | None]] = []
        for segment in layout.segments:
            append_run(runs, segment.length, None if self._is_raw(segment.name) else choice_of(segment.name))
        runs = join_short(runs, self.tables)
        return [(length, RAW if choice is None else self.tables[choice].id) for length, choice in runs]

    def never(self, name: str) -> bool:
        """Whether a parameter always travels raw."""
        return name in self._excluded or (name in self._fixed and self._fixed[name] is None)

    def _look(self, bucket: Bucket) -> None:
        """Takes the norms of a bucket's gradients."""
        started = time.perf_counter()
        if bucket.ready is not None:
            bucket.ready.synchronize()
        for segment in bucket.layout.segments:
            part = bucket.buffer[segment.slice].float()
            square = float(torch.dot(part, part))
            if math.isfinite(square):
                self._squares.setdefault(segment.name, []).append(square)
        self.seconds += time.perf_counter() - started

    def took(self, step: int, size: int, raw: bool, seconds: float, processing: float) -> None:
        """In the warm-up a gradient's call took so long, of which so much computing."""
        if step < self._from + SETTLE:
            return
        if raw:
            self.table.record_raw(size, seconds)
        else:
            self.table.record_compressed(size, max(0.0, seconds - processing), processing)

    # Agreements.

    def _choose(self, step: int, started: float) -> None:
        names = list(self._sizes)
        layerwise = self.options.layerwise and len(self.tables) > 1
        squares = [float(np.mean(self._squares[name])) if name in self._squares else 0.0 for name in names]
        choices = [self._choice[name] for name in names]
        if self.prices is not None and not self._price:
            slopes = self.prices.of_buckets()
            self._price = {name: slopes[key] for name, key in self._bucket.items() if key in slopes}
        if self._rank == 0 and layerwise and any(squares):
            choices = self._solve(names, squares)
        own = [*choices, *np.minimum(squares, 3e38).astype(np.float32).view(np.uint32).tolist()] if self._rank == 0 else [0] * 2 * len(names)
        first = exchange(self._group, self._rank, own)[0]
        self._choice = dict(zip(names, first))
        self._spans.clear()
        squares = np.array(first[len(names) :], np.uint32).view(np.float32).tolist()
        self._squares.clear()
        self.plans.append(self._plan(step, names, squares, time.perf_counter() - started))

    def _columns(self, names: Sequence[str], squares: Sequence[float]) -> tuple[list[list[float]], list[list[float]]]:
        costs = [[self._bytes(self._sizes[name], table) for table in self.tables] for name in names]
        errors = [[square * table.nmse for table in self.tables] for square in squares]
        return costs, errors

    def _bytes(self, length: int, table: Table | None) -> float:
        """A layer's part of its bucket's bytes; without a table, raw."""
        if self._group.sums_in_lanes:
            return adapt.lane_bytes(length, None if table is None else table.lane, self._group.workers)
        whole = 1 << 20
        if table is None:
            return adapt.thc_bytes(whole, None, block=self._block) * length / whole
        return adapt.thc_bytes(whole, table.bits, lane=table.lane, block=self._block) * length / whole

    def _prices(self, names: Sequence[str]) -> list[float]:
        """What a byte of each layer costs: 1, or the seconds that it adds to a step in its bucket."""
        most = max(self._price.values(), default=0.0)
        if not most:
            return [1.0] * len(names)
        # Where nothing was measured, or all hides behind the backward pass, it still costs something.
        return [max(self._price.get(name, most), most / 100) for name in names]

    def _is_raw(self, name: str) -> bool:
        return self.never(name) or self._sizes[name] < self.threshold

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
            found = adapt.layerwise(costs, errors, uniform.error * (1 + 1e-9))
        except ConfigError:
            pass  # the default fits exactly, but not in steps
        for at, choice in zip(included, found.choices if found.cost < uniform.cost else uniform.choices):
            choices[at] = choice
        return choices

    def _plan(self, step: int, names: Sequence[str], squares: Sequence[float], seconds: float) -> Plan:
        costs, errors = self._columns(names, squares)
        rows, uniform, bound = [], 0.0, 0.0
        for name, cost, error in zip(names, costs, errors):
            chosen, size = self._choice[name], self._sizes[name]
            if self._is_raw(name):
                rows.append(PlanRow(name, size, RAW, 0.0, self._bytes(size, None)))
                uniform += rows[-1].cost
                continue
            rows.append(PlanRow(name, size, self.tables[chosen].name, error[chosen], cost[chosen]))
            uniform, bound = uniform + cost[self._default], bound + error[self._default]
        why = f"gradients of fewer than {self.threshold} coordinates raw" if self.threshold else ""
        if self.threshold == NEVER:
            why = "compression does not pay on this link: all raw"
        return Plan(step, rows, uniform, bound, seconds, why)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Choices, threshold and plans."""
        return {
            "choices": {name: self.tables[number].name for name, number in self._choice.items()},
            "threshold": self.threshold,
            "measured": self._measured and self._probed and not self._probes,
            "prices": dict(self._price),
            "next": self._next,
            "plans": [plan.as_dict() for plan in self.plans],
        }

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Goes on with these choices; a layer or table that is not there any more has the default."""
        numbers = {table.name: number for number, table in enumerate(self.tables)}
        unknown = sorted(set(state["choices"]) - set(self._sizes))
        if unknown:
            raise ConfigError(f"adapt: the checkpoint has a choice for {unknown[0]}, which is not a parameter of this model")
        self.plans = [Plan.from_dict(plan) for plan in state["plans"]]
        self._choice = self._defaults()
        for name, table in state["choices"].items():
            self._choice[name] = numbers.get(table, self._default)
        self._spans.clear()
        self._step = -1
        if state["measured"]:
            self._measured, self.threshold = True, int(state["threshold"])
            self._price = dict(state.get("prices", {}))
            self._probed, self._probes = True, False
            self._next = max(int(state["next"]), step)
        else:
            self._begin(step)
