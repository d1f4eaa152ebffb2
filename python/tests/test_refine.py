"""Deadlines without I/O, and a rank that is killed while it refines."""

from __future__ import annotations

import pytest
from conftest import needs
from crew import names, run

needs("torch")

from thc.torch.refine.deadlines import Deadlines, Width

WIDTHS = [Width("2/4", 3, 0.125), Width("4/8", 1, 0.25), Width("8/16", 2, 0.5), Width("raw", "raw", 1.0)]
SIZES = [1_000_000] * 4
"""Coordinates: 4 MB each."""


class Rank:
    """One that computes alike in all steps: buckets of the last layers first."""

    def __init__(self, least: float = 0.25, calls: int = 2, late: float = 0.0) -> None:
        self.deadlines = Deadlines(WIDTHS, least, calls)
        self._late = late

    def row(self, bandwidth: float) -> list[int]:
        for bucket in range(4):
            self.deadlines.note_consumption(bucket, 0.1 * (4 - bucket) + self._late)
            self.deadlines.note_production(bucket, 0.5 + 0.1 * bucket + self._late)
        self.deadlines.note_carriage(bandwidth, (0.0, 1.0))
        self.deadlines.note_confirmation(0.001)
        return self.deadlines.row(4)


def agree(*ranks: Rank, bandwidth: float) -> None:
    rows = [rank.row(bandwidth) for rank in ranks]
    for rank in ranks:
        rank.deadlines.agree(rows, SIZES)
    assert len({(tuple(rank.deadlines.first), tuple(rank.deadlines.second)) for rank in ranks}) == 1


def planned_calls(rank: Rank) -> list[tuple[int, int, str]]:
    return [(each.bucket, each.number, each.width.name) for each in rank.deadlines.second]


def test_nothing_is_decided_before_anything_was_measured() -> None:
    rank = Rank()
    rank.deadlines.agree([rank.deadlines.row(4)] * 2, SIZES)
    assert not rank.deadlines.first and not rank.deadlines.second


def test_the_first_stage_is_there_when_the_next_bucket_is_produced() -> None:
    rank = Rank()
    # 0.1 s between buckets: of 4 MB a quarter fits from 11 MB/s on, half from 22, all from 45; the last one as soon as possible.
    for bandwidth, names in (
        (5e6, ["4/8"] * 4),
        (15e6, ["4/8"] * 4),
        (25e6, ["8/16", "8/16", "8/16", "4/8"]),
        (60e6, ["raw", "raw", "raw", "4/8"]),
    ):
        for _ in range(4):
            agree(rank, bandwidth=bandwidth)
        assert [width.name for width in rank.deadlines.first] == names, bandwidth


def test_what_is_late_is_sent_as_narrow_as_allowed() -> None:
    rank = Rank(least=0.125)
    agree(rank, bandwidth=1e6)
    assert [width.name for width in rank.deadlines.first] == ["2/4"] * 4 and not rank.deadlines.second


def test_the_second_stage_goes_by_when_buckets_are_needed() -> None:
    rank = Rank()
    # Bucket 3 is needed first, 0.1 s after the means are there, and bucket 0 last.
    for _ in range(6):
        agree(rank, bandwidth=15e6)
    found = planned_calls(rank)
    assert found[0] == (3, 0, "4/8") and found[-1][0] == 0
    assert [each[0] for each in found] == sorted((each[0] for each in found), reverse=True)
    # What is planned is there in time.
    now = 0.0
    for each in rank.deadlines.second:
        now += 0.002 + 4e6 * each.width.share / rank.deadlines.bandwidth
        assert now <= 0.1 * (4 - each.bucket)
    for _ in range(6):
        agree(rank, bandwidth=500e6)
    assert planned_calls(rank) == [(bucket, 0, "raw") for bucket in (3, 2, 1, 0)], "nothing is left after these"
    for _ in range(6):
        agree(rank, bandwidth=1e6)
    assert not planned_calls(rank), "there is no time"


def test_the_latest_rank_counts_and_the_fastest_bandwidth() -> None:
    early, late = Rank(), Rank(late=0.05)
    for _ in range(6):
        rows = [early.row(3e6), late.row(15e6)]
        for rank in (early, late):
            rank.deadlines.agree(rows, SIZES)
    alone = Rank(late=0.05)
    for _ in range(6):
        agree(alone, bandwidth=15e6)
    assert planned_calls(early) == planned_calls(late) == planned_calls(alone)


def test_a_link_that_changes_counts_within_two_steps() -> None:
    for before, after in ((60e6, 18e6), (18e6, 60e6)):
        rank, settled = Rank(), Rank()
        for _ in range(6):
            agree(rank, bandwidth=before)
            agree(settled, bandwidth=after)
        was = [width.name for width in rank.deadlines.first]
        for _ in range(2):
            agree(rank, bandwidth=after)
        assert was != [width.name for width in settled.deadlines.first]
        assert [width.name for width in rank.deadlines.first] == [width.name for width in settled.deadlines.first]


def test_a_bucket_that_may_be_needed_at_once_is_not_refined() -> None:
    one, other = Rank(), Rank()
    for _ in range(3):
        rows = [one.row(500e6), other.row(500e6)]
    other.deadlines.note_consumption(2, None)
    rows = [one.row(500e6), rows[1][: 2 + 2] + [0] + rows[1][5:]]
    one.deadlines.agree(rows, SIZES)
    assert {each.bucket for each in one.deadlines.second} == {0, 1, 3}


@pytest.mark.parametrize(("module", "workers"), [("checks_refine_killed", 2), ("checks_refine_killed", 3), ("checks_aqgb_killed", 2)])
def test_a_rank_is_killed_while_it_refines(module: str, workers: int) -> None:
    report = run(module, workers)
    assert len(names(module)) == 1
    said = {rank: text for (_, rank), (_, text) in report.ended.items()}
    assert said == dict.fromkeys(range(workers - 1), ""), (said, report.logs)
