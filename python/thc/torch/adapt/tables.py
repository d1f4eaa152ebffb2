"""The tables of a job that adaptation chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc import adapt
from thc.errors import ConfigError
from thc.base_group import BaseGroup
from thc.torch.adapt.options import Adapt

__all__ = ["Table", "find_table", "lanes_for", "tables_for", "tables_of_job"]


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
    for told in group.tables:
        complete = len(told.values) == told.granularity + 1
        error = adapt.thc_error(None if complete else told.bits, job.workers, told.granularity, told.fraction)
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
