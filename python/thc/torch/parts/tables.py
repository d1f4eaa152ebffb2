"""The tables of a job that adaptation chooses from, and what a byte of each bucket costs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thc import _native, adapt
from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.torch.parts.plan import Adapt
from thc.torch.ranks.gathering import exchange


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


def lanes_for(workers: int, lane: int) -> list[dict[str, int]]:
    """Further tables worth having where a process group adds up and whose first has such a lane: narrower ones, and 16 bits."""
    return [{"lane": each} for each in (4, 5, 6, 10, 16) if each != lane and workers < 1 << each]


def tables_of_job(group: BaseGroup, options: Adapt) -> list[Table]:
    """The job's tables that a policy may use; its first is the first. Of the others those are left out whose error feedback would
    grow, or nearly so: that makes tables look good which round coarsely, for what they lose is averaged over ranks, but each rank's
    error feedback is its own."""
    job = group.job
    tables: list[Table] = []
    coarse: list[Table] = []
    for entry in group.tables:
        complete = len(entry.values) == entry.granularity + 1
        bits = None if complete else entry.bits
        if entry.values != _native.lookup_table(bits, entry.granularity, entry.fraction, job.workers, entry.lane)[0]:
            raise ConfigError(f"adapt: {entry.bits}/{entry.lane} of this job is a table of one's own, whose error is not known: leave table out, or adapt")
        error = adapt.thc_error(bits, job.workers, entry.granularity, entry.fraction)
        table = Table(f"{entry.bits}/{entry.lane}", entry.bits, entry.lane, error.nmse, entry.id)
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
        wanted = [find_table(tables, choice, "choices") for choice in options.choices]
        tables = [table for at, table in enumerate(tables) if at in wanted]
    if not tables:
        raise ConfigError("adapt: choices is empty: name some of the job's tables, or leave it out")
    return tables


def find_table(tables: Sequence[Table], name: int | str, option: str) -> int:
    """Which table is meant."""
    for at, table in enumerate(tables):
        if name in (table.bits, table.name):
            return at
    have = ", ".join(table.name for table in tables)
    raise ConfigError(f"adapt: {option} has the table {name}, but this job's tables are {have}: name one of them, or give the job such a table")


NEVER = 0xFFFF_FFFF
"""The threshold when compression never pays."""
TICK = 1e-7
"""Seconds; ranks send each other times in these."""


def agree_threshold(group: BaseGroup, rank: int, own: adapt.ThresholdTable) -> int:
    """The threshold of all ranks, from the times of each: SlimGC's."""
    rows = own.rows()
    numbers = [number for size, *times in rows for number in (size, *(min(NEVER - 1, round(each / TICK)) for each in times))]
    tables = []
    for theirs in exchange(group, rank, numbers or [0]):
        table = adapt.ThresholdTable()
        for at in range(0, 4 * len(rows), 4):
            size, raw, compressed, processing = theirs[at : at + 4]
            table.record_raw(size, raw * TICK)
            table.record_compressed(size, compressed * TICK, processing * TICK)
        tables.append(table)
    agreed = adapt.ThresholdTable.common_threshold(tables)
    return NEVER if agreed is None else agreed


SHORTEST = 4096
"""Coordinates of a span; shorter ones would be padding for the most part."""


def append_run(runs: list[tuple[int, int | None]], length: int, choice: int | None) -> None:
    """Appends coordinates with the number of their table, or nothing for raw; neighbours with the same one are one run."""
    if runs and runs[-1][1] == choice:
        length += runs.pop()[0]
    runs.append((length, choice))


def join_short(runs: list[tuple[int, int | None]], tables: Sequence[Table]) -> list[tuple[int, int | None]]:
    """Each span is padded to whole packets: a short one goes along with the better neighbour that is compressed, too."""
    while True:
        for at, (length, choice) in enumerate(runs):
            beside = [i for i in (at - 1, at + 1) if 0 <= i < len(runs) and runs[i][1] is not None]
            if length < SHORTEST and choice is not None and beside:
                break
        else:
            return runs
        better = min(beside, key=lambda i: tables[runs[i][1] or 0].nmse)
        joined: list[tuple[int, int | None]] = []
        for i, (length, choice) in enumerate(runs):
            append_run(joined, length, runs[better][1] if i == at else choice)
        runs = joined


LEAST = 16
"""Steps that are measured at least."""
EACH = 3
"""And for each bucket so many."""


class Prices:
    """What a byte of each bucket costs while training: L-GreCo's coefficients (section 4, "Optimizing for time").

    There are steps in which buckets travel now in more bytes and now in fewer. What a byte of each costs follows from how long these steps take, from
    the start of the first synchronization to the end of the last: what hides behind the backward pass costs nothing."""

    def __init__(self, tables: int) -> None:
        self._tables = tables
        self._steps: list[tuple[dict[int, float], float]] = []
        # Of the step under way.
        self._carried: dict[int, float] = {}
        self._began: list[float] = []
        self._landed: list[float] = []

    @staticmethod
    def steps(buckets: int) -> int:
        """How many are needed."""
        return max(LEAST, EACH * (buckets + 1))

    def begin(self) -> None:
        """Forgets all."""
        self._steps.clear()
        self._begin_step()

    def _begin_step(self) -> None:
        self._carried, self._began, self._landed = {}, [], []

    def draw(self, bucket: int, step: int) -> int:
        """With which table a bucket travels in a step: no pattern, and the same on all ranks, who have the same keys of buckets."""
        return zlib.crc32(struct.pack("<QQ", bucket & 0xFFFF_FFFF_FFFF_FFFF, step)) % self._tables

    def note_travel(self, bucket: int, carried: float, began: float, landed: float) -> None:
        """A bucket of this step was on its way from then to then, in so many bytes."""
        self._carried[bucket] = carried
        self._began.append(began)
        self._landed.append(landed)

    def end_step(self) -> None:
        """All buckets of a step have landed."""
        if self._carried:
            self.took(self._carried, max(self._landed) - min(self._began))
        self._begin_step()

    def took(self, carried: Mapping[int, float], seconds: float) -> None:
        """A step whose buckets had so many bytes took so long."""
        self._steps.append((dict(carried), seconds))

    def of_buckets(self) -> dict[int, float]:
        """Seconds per byte. Steps of other buckets than the last one's count for nothing."""
        if not self._steps:
            return {}
        buckets = list(self._steps[-1][0])
        alike = [(carried, seconds) for carried, seconds in self._steps if carried.keys() == set(buckets)]
        model = adapt.fit([([carried[bucket] for bucket in buckets], seconds) for carried, seconds in alike])
        return dict(zip(buckets, model.slopes))
