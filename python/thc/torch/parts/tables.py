"""The tables of a job that adaptation chooses from, what they lose and cost, and from which size on they pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc import _native
from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.torch.ranks.gathering import exchange


MOST_LEFT = 0.5
"""A table that leaves more of a gradient is not to be chosen: what waits goes to left / (1 - left) gradients, and a worker whose gradient
is smaller than the largest one loses more of its own."""


@dataclass(frozen=True)
class Table:
    """One of the job's tables."""

    id: int
    """The job's."""
    bits: int
    """Bits of an index."""
    lane: int
    """Bits of a sum."""
    nmse: float
    """Squared error of the mean over all workers, over the squared norm of one's gradient: after the rotation all gradients look alike."""

    @property
    def name(self) -> str:
        """Bits of an index and of a sum."""
        return f"{self.bits}/{self.lane}"


def tables_for(workers: int) -> list[str]:
    """Further tables worth having in a job of so many workers whose first has 4 bits: of each width the one with the narrowest sums
    that fit, and 8 bits for layers that must not lose much."""
    fitting = [
        (bits, lane)
        for bits in (1, 2, 3)
        for lane in (4, 8)
        if ((1 << bits) - 1) * workers < 1 << lane and _native.table_error(bits, None, None, workers, lane)[1] <= MOST_LEFT
    ]
    narrowest = [form for at, form in enumerate(fitting) if at == 0 or fitting[at - 1][0] != form[0]]
    return [f"bits={bits},lane={lane}" for bits, lane in [*narrowest, (8, 16)]]


def lanes_for(workers: int, lane: int) -> list[dict[str, int]]:
    """Further tables worth having where a process group adds up and whose first has such a lane: narrower ones, and 16 bits."""
    return [{"lane": each} for each in (4, 5, 6, 10, 16) if each != lane and workers < 1 << each]


def tables_of_job(group: BaseGroup) -> list[Table]:
    """The job's tables that a policy may use; its first is the first. Of the others those are left out whose error feedback would
    grow, or nearly so: that makes tables look good which round coarsely, for what they lose is averaged over ranks, but each rank's
    error feedback is its own."""
    tables: list[Table] = []
    for entry in group.tables:
        complete = len(entry.values) == entry.granularity + 1
        bits = None if complete else entry.bits
        if entry.values != _native.lookup_table(bits, entry.granularity, entry.fraction, group.workers, entry.lane)[0]:
            raise ConfigError(f"adapt: {entry.bits}/{entry.lane} of this job is a table of one's own, whose error is not known: leave table out, or adapt")
        nmse, left = _native.table_error(bits, entry.granularity, entry.fraction, group.workers, entry.lane)
        if not tables or left <= MOST_LEFT:
            tables.append(Table(entry.id, entry.bits, entry.lane, nmse))
    return tables


def bytes_of(length: int, table: Table | None, group: BaseGroup) -> float:
    """A layer's part of the bytes that a worker sends and receives for its bucket; without a table, raw."""
    if group.sums_in_lanes:
        # A ring of n ranks carries 2 (n - 1) / n of a lane each way.
        carried = 32 if table is None else 32 / (32 // table.lane)
        return 4 * (group.workers - 1) / group.workers * length * carried / 8
    whole, block = 1 << 20, group.job.block
    bits, lane = (None, 8) if table is None else (table.bits, table.lane)
    return _native.bytes_of(whole, bits, lane, block) * length / whole


NEVER = 0xFFFF_FFFF
"""The threshold when compression never pays."""
TICK = 1e-7
"""Seconds; ranks send each other times in these."""


def agree_threshold(group: BaseGroup, rank: int, own: _native.ThresholdTable) -> int:
    """The threshold of all ranks, from the times of each: SlimGC's."""
    rows = own.rows()
    numbers = [number for size, *times in rows for number in (size, *(min(NEVER - 1, round(each / TICK)) for each in times))]
    tables = []
    for theirs in exchange(group, rank, numbers or [0]):
        table = _native.ThresholdTable()
        for at in range(0, 4 * len(rows), 4):
            size, raw, compressed, processing = theirs[at : at + 4]
            table.record_raw(size, raw * TICK)
            table.record_compressed(size, compressed * TICK, processing * TICK)
        tables.append(table)
    agreed = _native.ThresholdTable.common_threshold(tables)
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
