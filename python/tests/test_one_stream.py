"""One stream per host in real processes, several of them in each of a few network namespaces; checks of `checks_one_stream*.py`."""

from __future__ import annotations

import json

import pytest
from conftest import RELEASE, needs
from crew import Crews, Report, names, run
from namespaces import Network, NotPossible

needs("torch")

CREWS = [(0, 0, 1, 1), (0, 1, 0)]
"""The host of each rank."""
KILLED = [3, 2]
# Where both the newest PyTorch and the oldest are run, each does a part.
if RELEASE is not None:
    part = slice(0, 1) if RELEASE == "newest" else slice(1, 2)
    CREWS, KILLED = CREWS[part], KILLED[part]
CASES = [(hosts, check) for hosts in CREWS for check in names("checks_one_stream")]


def crew(module: str, hosts: tuple[int, ...], **variables: str) -> Report:
    try:
        with Network(len(set(hosts))) as network:
            return run(module, len(hosts), network=network, hosts=hosts, THC_TEST_HOSTS=json.dumps(hosts), **variables)
    except NotPossible as why:
        pytest.skip(f"not run: one stream per host: {why}")


@pytest.fixture(scope="module")
def crews() -> Crews:
    return Crews()


@pytest.mark.parametrize(("hosts", "check"), CASES)
def test_ranks(crews: Crews, hosts: tuple[int, ...], check: str) -> None:
    crews.report(hosts, check, lambda: crew("checks_one_stream", hosts)).verify(check)


@pytest.mark.parametrize("check", names("checks_hosts_in_lanes"))
def test_lanes(crews: Crews, check: str) -> None:
    crews.report((), check, lambda: crew("checks_hosts_in_lanes", (0, 1, 0))).verify(check)


def test_which_ranks_are_on_which_host() -> None:
    from thc.torch.hosts.one_stream import Hosts

    hosts = Hosts.from_names(["b", "a", "b", "c", "a", "b"])
    assert hosts.ranks == [[0, 2, 5], [1, 4], [3]] and hosts.of_rank(4) == 1 and hosts.pays()
    assert not Hosts.from_names(["a"] * 4).pays() and not Hosts.from_names(["a", "b"]).pays()
    assert len(Hosts.from_names([f"host{rank // 8}" for rank in range(512)]).ranks) == 64


@pytest.mark.parametrize("killed", KILLED)
def test_a_rank_is_killed(killed: int) -> None:
    report = crew("checks_one_stream_killed", (0, 0, 1, 1), THC_TEST_KILLED=str(killed))
    (check,) = names("checks_one_stream_killed")
    said = {rank: text for (_, rank), (_, text) in report.ended.items()}
    assert said == dict.fromkeys({0, 1, 2, 3} - {killed}, ""), (said, report.logs)
