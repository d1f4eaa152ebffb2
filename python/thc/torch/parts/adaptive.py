"""What a hook with ``adapt`` decides while training goes on: which tensors are compressed at all, and with which table.

Ranks agree through the job itself, by all-reduces of 32-bit integers that carry whole numbers without error. So an agreement is one
more call in the order of calls: it is lost, repeated and given up like any other, and all ranks that have it have the same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from thc import _native
from thc.base_group import BaseGroup
from thc.errors import ConfigError, MismatchError
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.bucket import Bucket, PlannedCall, Way
from thc.torch.parts.plan import Adapt, Plan, PlanRow
from thc.torch.parts.tables import NEVER, agree_threshold, append_run, bytes_of, join_short, tables_of_job
from thc.torch.ranks.gathering import exchange, tells

RAW = "raw"
LOOKS = 8
"""Steps whose gradients a choice goes by."""
SETTLE = 2
"""First steps that are not timed: DDP makes its final buckets after the first."""


class Adaptive:
    """Chooses how each tensor travels. All ranks have it; an engine's sequencer calls its methods."""

    def __init__(self, options: Adapt, group: BaseGroup, rank: int, sizes: Mapping[str, int], excluded: Iterable[str] = (), first: int = 0) -> None:
        """``sizes`` are the parameters' by name; ``excluded`` ones always travel raw, and before step ``first`` all do."""
        if not tells(group):
            job = group.job
            raise ConfigError(
                f"adapt needs a job that loses nothing, for all ranks must choose alike: this one is {job.policy} with a quorum "
                f"of {job.quorum} of {job.workers}"
            )
        self.options = options
        self._group, self._rank = group, rank
        self._sizes, self._excluded = dict(sizes), frozenset(excluded)
        self.tables = tables_of_job(group)
        self.plans: list[Plan] = []
        """All choices so far."""
        self.is_timed = False
        """Whether the calls of the step under way are timed: then each gradient travels by itself."""
        self._choice = dict.fromkeys(self._sizes, 0)
        """By parameter, the number of its table."""
        self._spans: dict[int, list[tuple[int, int | str]]] = {}
        """By layout, until the next choice."""
        self._squares: dict[str, list[float]] = {}
        self._apart: dict[tuple[int, str], Layout] = {}
        """The layouts of a bucket's parameters, each by itself."""
        self._begin(first)

    # Phases: two steps to settle; the warm-up, both ways in turn; then choices each `every` steps.

    def _begin(self, step: int) -> None:
        self._from = step
        self._step = -1
        """The step whose buckets came last."""
        self.table = _native.ThresholdTable()
        """Times of this rank."""
        self.threshold = 0
        """Gradients of fewer coordinates are not compressed."""
        self._spans.clear()
        self._measured = not self.options.threshold
        self._next = step + SETTLE + (self.options.warmup if self.options.threshold else LOOKS)

    def restart(self, step: int) -> None:
        """The server is back after it was lost: begins with the first table for all, on all ranks alike."""
        self._choice = dict.fromkeys(self._sizes, 0)
        self._squares.clear()
        self._begin(step)

    def begin(self, bucket: Bucket, step: int) -> None:
        """A bucket is about to travel through the job, after so many backward passes: sets its ``way``. Before a step's first bucket it may make calls
        of its own; raises what they raise."""
        # The first bucket that the job carries: others may come before it.
        layout, is_first = bucket.layout, step != self._step
        self._step = step
        if is_first:
            if step >= self._next:
                if not self._measured:
                    self.threshold = agree_threshold(self._group, self._rank, self.table)
                    self._measured = True
                self._choose(step)
                self._next = step + self.options.every
            self.is_timed = step >= self._from and not self._measured
        if step < self._from:
            return
        if self._rank == 0 and self.options.layerwise and step >= self._next - LOOKS:
            self._look(bucket)
        if layout.key not in self._spans:
            self._spans[layout.key] = self._cut(layout)
        bucket.way = Way(self._spans[layout.key])
        if self.is_timed:
            bucket.way.alone = [self._plan_alone(layout, segment, step) for segment in layout.segments if segment.length]

    def end(self, bucket: Bucket, error: BaseException | None) -> None:
        """A bucket has travelled through the job, or has failed."""
        if isinstance(error, MismatchError):
            error.args = (f"{error}; with adapt, also if ranks have different plans: load checkpoints of one step on all",)
        if error is None and bucket.way is not None:
            for call, (seconds, computed) in zip(bucket.way.alone, bucket.way.seconds):
                ((length, choice),) = call.spans
                if call.layout.segments[0].name not in self._excluded:
                    self.took(self._step, length, choice == RAW, seconds, min(seconds, computed))

    def _plan_alone(self, layout: Layout, segment: Segment, step: int) -> PlannedCall:
        """How a gradient travels in a call of its own."""
        place = (layout.key, segment.name)
        if place not in self._apart:
            self._apart[place] = Layout(f"{layout.scope}.alone", [Segment(segment.name, 0, segment.length, True)])
        raw = (step - self._from) % 2 == 0  # SlimGC counts steps from 1: the odd ones
        choice = RAW if raw or segment.name in self._excluded else self.tables[self._choice[segment.name]].id
        return PlannedCall(segment.slice, self._apart[place], [(segment.length, choice)])

    def _cut(self, layout: Layout) -> list[tuple[int, int | str]]:
        """How a bucket travels in one call: coordinates, and the id of their table or "raw"."""
        runs: list[tuple[int, int | None]] = []
        for segment in layout.segments:
            append_run(runs, segment.length, None if self._is_raw(segment.name) else self._choice[segment.name])
        runs = join_short(runs, self.tables)
        return [(length, RAW if choice is None else self.tables[choice].id) for length, choice in runs]

    def _is_raw(self, name: str) -> bool:
        return name in self._excluded or self._sizes[name] < self.threshold

    def _look(self, bucket: Bucket) -> None:
        """Takes the norms of a bucket's gradients."""
        if bucket.ready is not None:
            bucket.ready.synchronize()
        for segment in bucket.layout.segments:
            part = bucket.buffer[segment.slice].float()
            square = float(torch.dot(part, part))
            if math.isfinite(square):
                self._squares.setdefault(segment.name, []).append(square)

    def took(self, step: int, size: int, raw: bool, seconds: float, processing: float) -> None:
        """In the warm-up a gradient's call took so long, of which so much computing."""
        if step < self._from + SETTLE:
            return
        if raw:
            self.table.record_raw(size, seconds)
        else:
            self.table.record_compressed(size, max(0.0, seconds - processing), processing)

    # Choices.

    def _choose(self, step: int) -> None:
        """Agrees with the others; raises what a call raises."""
        names = list(self._sizes)
        squares = [float(np.mean(self._squares[name])) if name in self._squares else 0.0 for name in names]
        choices = [self._choice[name] for name in names]
        if self._rank == 0 and self.options.layerwise and len(self.tables) > 1 and any(squares):
            choices = self._solve(names, squares)
        own = [*choices, *np.minimum(squares, 3e38).astype(np.float32).view(np.uint32).tolist()] if self._rank == 0 else [0] * 2 * len(names)
        first = exchange(self._group, self._rank, own)[0]
        self._choice = dict(zip(names, first))
        self._spans.clear()
        self._squares.clear()
        self.plans.append(self._plan(step, names, np.array(first[len(names) :], np.uint32).view(np.float32).tolist()))

    def _costs(self, names: Sequence[str]) -> list[list[float]]:
        return [[bytes_of(self._sizes[name], table, self._group) for table in self.tables] for name in names]

    def _errors(self, squares: Sequence[float]) -> list[list[float]]:
        return [[square * table.nmse for table in self.tables] for square in squares]

    def _solve(self, names: Sequence[str], squares: Sequence[float]) -> list[int]:
        """L-GreCo's choice: the fewest bytes, with no more error than the first table for all."""
        choices = [0] * len(names)
        included = [at for at, name in enumerate(names) if not self._is_raw(name)]
        if not included:
            return choices
        costs, errors = self._costs([names[at] for at in included]), self._errors([squares[at] for at in included])
        with contextlib.suppress(ConfigError):  # the first table fits exactly, but not in steps
            found, cost = _native.layerwise(np.array(costs), np.array(errors), sum(row[0] for row in errors) * (1 + 1e-9))
            if cost < sum(row[0] for row in costs):
                for at, choice in zip(included, found):
                    choices[at] = choice
        return choices

    def _plan(self, step: int, names: Sequence[str], squares: Sequence[float]) -> Plan:
        rows, uniform, bound = [], 0.0, 0.0
        for name, cost, error in zip(names, self._costs(names), self._errors(squares)):
            chosen, size = self._choice[name], self._sizes[name]
            if self._is_raw(name):
                rows.append(PlanRow(name, size, RAW, 0.0, bytes_of(size, None, self._group)))
                uniform += rows[-1].cost
                continue
            rows.append(PlanRow(name, size, self.tables[chosen].name, error[chosen], cost[chosen]))
            uniform, bound = uniform + cost[0], bound + error[0]
        why = f"gradients of fewer than {self.threshold} coordinates raw" if self.threshold else ""
        if self.threshold == NEVER:
            why = "compression does not pay on this link: all raw"
        return Plan(step, rows, uniform, bound, why)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Choices, threshold and plans."""
        return {
            "choices": {name: self.tables[number].name for name, number in self._choice.items()},
            "threshold": self.threshold,
            "measured": self._measured,
            "next": self._next,
            "plans": [asdict(plan) for plan in self.plans],
        }

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Goes on with these choices; a layer of another name, or whose table is not there any more, has the first."""
        numbers = {table.name: number for number, table in enumerate(self.tables)}
        self.plans = [Plan(**{**plan, "rows": [PlanRow(**row) for row in plan["rows"]]}) for plan in state["plans"]]
        self._choice = {name: numbers.get(state["choices"].get(name), 0) for name in self._sizes}
        self._begin(step)
        if state["measured"]:
            self._measured, self.threshold = True, int(state["threshold"])
            self._next = max(int(state["next"]), step)
