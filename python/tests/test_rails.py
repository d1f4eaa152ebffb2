"""Several ranks on a host, in real processes in network namespaces: a job for each local rank, or a worker a rank; checks of `checks_rails*.py`."""

from __future__ import annotations

import json

import pytest
from conftest import RELEASE, needs
from crew import Crews, Report, names, run
from namespaces import Network, NotPossible

needs("torch")

CREWS = {"checks_rails": (0, 0, 1, 1), "checks_rails_many": (0, 1, 1, 0, 1, 0, 0, 1), "checks_rails_uneven": (0, 1, 0)}
"""The host of each rank, by what they check."""
# Where both the newest PyTorch and the oldest are run, each does a part.
if RELEASE is not None:
    parts = ["checks_rails"] if RELEASE == "oldest" else ["checks_rails_many", "checks_rails_uneven"]
    CREWS = {part: CREWS[part] for part in parts}


def crew(module: str, hosts: tuple[int, ...], **variables: str) -> Report:
    try:
        with Network(len(set(hosts))) as network:
            return run(module, len(hosts), network=network, hosts=hosts, THC_TEST_HOSTS=json.dumps(hosts), **variables)
    except NotPossible as why:
        pytest.skip(f"not run: several ranks on a host: {why}")


@pytest.mark.parametrize(("module", "check"), [(module, check) for module in CREWS for check in names(module)])
def test_ranks(crews: Crews, module: str, check: str) -> None:
    crews.report(module, check, lambda: crew(module, CREWS[module])).verify(check)


def test_shares_of_a_bucket() -> None:
    from thc.torch.compression.layout import Layout, Segment, share_of, shares_of

    layout = Layout("s", [Segment("a", 0, 70, True), Segment("m", 70, 60, True), Segment("b", 130, 3, False)])
    for count in (1, 2, 3, 7, 200):
        shares = shares_of(layout, count)
        assert shares[0].start == 0 and shares[-1].stop == 133 and all(a.stop == b.start for a, b in zip(shares, shares[1:]))
        parts = [share_of(layout, share) for share in shares]
        assert sum(part.length for part in parts) == 133 and len({part.key for part in parts if part.length}) == sum(part.length > 0 for part in parts)
    first, second = (share_of(layout, share) for share in shares_of(Layout("s", layout.segments[:2]), 2))
    assert first.length == 65 and [(s.name, s.offset, s.length) for s in first.segments] == [("a[0:65]", 0, 65)]
    assert [(s.name, s.offset, s.length) for s in second.segments] == [("a[65:70]", 0, 5), ("m", 5, 60)]


def test_which_ranks_are_on_which_host() -> None:
    from thc.torch.hosts.rails import Hosts

    hosts = Hosts.from_names(["b", "a", "b", "c", "a", "b"])
    assert hosts.ranks == [[0, 2, 5], [1, 4], [3]] and hosts.of_rank(4) == 1 and hosts.pays()
    assert not Hosts.from_names(["a"] * 4).pays() and not Hosts.from_names(["a", "b"]).pays()
    assert len(Hosts.from_names([f"host{rank // 8}" for rank in range(512)]).ranks) == 64


def test_a_rank_is_killed() -> None:
    report = crew("checks_rails_killed", (0, 0, 1, 1), THC_TEST_KILLED="2")
    said = {rank: text for (_, rank), (_, text) in report.ended.items()}
    assert said == dict.fromkeys({0, 1, 3}, ""), (said, report.logs)
