"""A job for each local rank, in real processes, several of them in each of two network namespaces; checks of `checks_rails.py`."""

from __future__ import annotations


import pytest
from conftest import RELEASE, needs
from crew import Crews, names
from test_one_stream import crew

needs("torch")

CREWS = {"checks_rails": (0, 0, 1, 1), "checks_rails_many": (0, 1, 1, 0, 1, 0, 0, 1)}
"""The host of each rank, by what they check."""
# Where both the newest PyTorch and the oldest are run, each does a part.
if RELEASE is not None:
    part = "checks_rails" if RELEASE == "oldest" else "checks_rails_many"
    CREWS = {part: CREWS[part]}


@pytest.fixture(scope="module")
def crews() -> Crews:
    return Crews()


@pytest.mark.parametrize(("module", "check"), [(module, check) for module in CREWS for check in names(module)])
def test_ranks(crews: Crews, module: str, check: str) -> None:
    crews.report(module, check, lambda: crew(module, CREWS[module])).verify(check)


def test_shares_of_a_bucket() -> None:
    from thc.torch.compression.layout import Layout, Segment, share_of, shares_of

    layout = Layout("s", [Segment("a", 0, 70, True), Segment("m", 70, 60, True, rows=6), Segment("b", 130, 3, False)])
    for count in (1, 2, 3, 7, 200):
        shares = shares_of(layout, count)
        assert shares[0].start == 0 and shares[-1].stop == 133 and all(a.stop == b.start for a, b in zip(shares, shares[1:]))
        parts = [share_of(layout, share) for share in shares]
        assert sum(part.length for part in parts) == 133 and len({part.key for part in parts if part.length}) == sum(part.length > 0 for part in parts)
    # Between rows of a matrix, since one is near.
    first, second = (share_of(layout, share) for share in shares_of(Layout("s", layout.segments[:2]), 2))
    assert first.length == 65 and [(s.name, s.offset, s.length) for s in first.segments] == [("a[0:65]", 0, 65)]
    wide = Layout("s", [Segment("m", 0, 4000, True, rows=40)])
    parts = [share_of(wide, share) for share in shares_of(wide, 3)]
    assert [part.segments[0].rows for part in parts] == [13, 14, 13] and parts[1].segments[0].name == "m[1300:2700]"


def test_a_rank_is_killed() -> None:
    report = crew("checks_one_stream_killed", (0, 0, 1, 1), THC_TEST_KILLED="2", THC_TEST_RAILS="1")
    said = {rank: text for (_, rank), (_, text) in report.ended.items()}
    assert said == dict.fromkeys({0, 1, 3}, ""), (said, report.logs)
