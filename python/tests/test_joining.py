"""The ways into a group: a file, the environment as torchrun sets it, a server inside rank 0."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import thc
from conftest import outcomes, run_ranks, run_together
from servers import COOKIE, ParameterServer, joining
from thc import rendezvous

_next_job = itertools.count(1)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("THC_") and name not in ("THC_PS_PROGRAM", "THC_LOG"):
            monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


class Store:
    """What `torch.distributed.Store` does, between threads."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.arrived = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.arrived:
            self.values[key] = value
            self.arrived.notify_all()

    def get(self, key: str) -> bytes:
        with self.arrived:
            assert self.arrived.wait_for(lambda: key in self.values, 20)
            return self.values[key].encode()


MEAN = "print(g.allreduce(np.full(9, float(g.worker), np.float32), mode='raw')[0], g.worker); g.close()"


def test_ranks_of_a_host_divide_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from thc import cores, environment

    quota = [1000]
    monkeypatch.setattr(cores._native, "available_cores", lambda: min(quota[0], len(os.sched_getaffinity(0))))

    def threads(count: int, parent: int, ranks: str | None) -> int | None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(parent if pid else count)))
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        if ranks is not None:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        return environment.threads()

    assert threads(96, 96, None) is None and threads(96, 96, "1") is None, "the library's own default"
    assert threads(96, 96, "8") == 11 and threads(96, 96, "96") == 1
    assert threads(12, 96, "8") == 11, "each has cores of its own"
    assert threads(32, 32, "4") == 7, "a job that has 32 of a larger machine's cores, which all ranks share"

    def threads_among(mine: set[int], others: list[set[int]]) -> int | None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: mine)
        return cores.threads_of_rank([mine, *others])

    assert threads_among(set(range(96)), []) is None
    assert threads_among(set(range(32)), [set(range(32))] * 3) == 7 and threads_among({0, 1, 2, 3}, [{4, 5, 6, 7}]) == 3
    # A container's quota is of 16 cores, whatever it sees of the machine.
    quota[0] = 16
    assert threads(192, 192, "8") == 1 and threads_among(set(range(192)), [set(range(192))]) == 7
    quota[0] = 1000
    # 8 ranks on 96 cores: 11 threads each, the caller's among them, and the group's own.
    threads(96, 96, "8")
    with thc.Server(1, COOKIE) as server:
        before = len(os.listdir("/proc/self/task"))
        with thc.Group(server.address, 1, 0, COOKIE):
            assert 8 <= len(os.listdir("/proc/self/task")) - before <= 14


FAILS = """
import sys, threading, time, numpy as np, thc
group = thc.Group.local(join=thc.Join(timeout=60, join_timeout=20))
if group.worker == 0:
    threading.Thread(target=lambda: group.allreduce(np.ones(9, np.float32)), daemon=True).start()
    time.sleep(1)
    print(time.time(), flush=True)
    raise ValueError("of the program")
sys.stdin.read()
"""


def test_a_program_that_fails_ends_at_once() -> None:
    """Whatever calls are under way on its other threads, and whoever waits for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {key: value for key, value in os.environ.items() if not key.startswith("THC_")}
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", FAILS], env=base | {"RANK": str(rank)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        out, error = ranks[0].communicate(timeout=100)
        took = time.time() - float(out)
        assert "of the program" in error and took < 6, f"{took:.1f} s after the exception"
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_from_a_file(jobs: ParameterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = next(_next_job)
    file = tmp_path / "thc.toml"
    file.write_text(f'ps = "{jobs.address}"\njob = {job}\ncookie = "{COOKIE:#x}"\ntimeout = "5s"\nthreads = 2\n')
    monkeypatch.setenv("THC_CONFIG", str(file))
    groups = run_together(*[lambda w=w: thc.Group.from_env(worker=w) for w in range(2)])
    assert [group.worker for group in groups] == [0, 1]
    run_together(*[group.close for group in groups])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('ps = "127.0.0.1:9"\nspeed = "high"\n', "line 2.*speed"),
        ("ps = \n", "line 1"),
        ('ps = "127.0.0.1:9"\nworker = 0\ncookie = 1\nio = "dpdk"\n[dpdk]\ndevices = ["net_null0"]\naddress = "10.0.0.1/99"\n', "prefix"),
        ('ps = "127.0.0.1:9"\nworker = 0\ncookie = "0xQQ"\n', "cookie"),
        ('ps = "127.0.0.1:9"\ncookie = 1\n', "worker is missing"),
    ],
)
def test_a_wrong_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    file = tmp_path / "thc.toml"
    file.write_text(text)
    monkeypatch.setenv("THC_CONFIG", str(file))
    with pytest.raises(thc.ConfigError, match=says):
        thc.Group.from_env()
    monkeypatch.setenv("THC_CONFIG", str(tmp_path / "nothing.toml"))
    with pytest.raises(thc.ConfigError, match="nothing.toml"):
        thc.Group.from_env()


def test_from_the_environment_as_torchrun_sets_it(jobs: ParameterServer) -> None:
    job = next(_next_job)
    said = run_ranks(
        f"import thc, numpy as np; g = thc.Group.from_env(); {MEAN}", THC_PS=jobs.address, THC_COOKIE=hex(COOKIE), THC_JOB=str(job), THC_TIMEOUT="20"
    )
    assert [out.strip() for out, _ in said] == ["0.5 0", "0.5 1"]


def test_a_job_of_another_size_than_the_world(jobs: ParameterServer, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"THC_PS": jobs.address, "THC_COOKIE": str(COOKIE), "THC_JOB": str(next(_next_job)), "WORLD_SIZE": "3", "RANK": "0"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    other = lambda: thc.Group(jobs.address, int(os.environ["THC_JOB"]), 1, COOKIE)  # noqa: E731
    found = outcomes(thc.Group.from_env, other)
    assert isinstance(found[0], thc.ConfigError) and "has 2 workers, and this program runs 3" in str(found[0])
    found[1].close()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "THC_PS is not set"),
        ({"THC_PS": "127.0.0.1:9", "THC_COOKIE": "1"}, "worker is missing"),
        ({"THC_PS": "127.0.0.1:9", "RANK": "0"}, "cookie is missing"),
        ({"THC_PS": "127.0.0.1:9", "THC_COOKIE": "1", "RANK": "first"}, "RANK is 'first'"),
        ({"THC_PS": "127.0.0.1:9", "THC_COOKIE": "1", "RANK": "0", "THC_THREADS": "x"}, "THC_THREADS"),
        ({"THC_PS": "thc://127.0.0.1:9/job", "THC_COOKIE": "1", "RANK": "0"}, "cookie is given.*controller"),
    ],
)
def test_a_wrong_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(thc.ConfigError, match=says):
        thc.Group.from_env()


@pytest.mark.parametrize(
    ("variable", "value", "says"), [("THC_THREADS", "0", "threads is 0"), ("THC_TIMEOUT", "abc", "timeout = .abc"), ("THC_METHOD", "best", "best")]
)
def test_the_environment_counts_where_ranks_run_the_server(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(thc.ConfigError, match=says):
        thc.Group.local(0, 1, store=Store())


def test_a_variable_that_nothing_reads_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from thc import environment

    environment._warn_of_misspelt.cache_clear()
    for name in ("THC_THREDS", "THC_TEST_TORCH", "THC_WORKER"):
        monkeypatch.setenv(name, "2")
    environment.variables()
    assert [record.getMessage() for record in caplog.records] == ["nothing reads the variable THC_THREDS; THC_THREADS is similar"]


def test_a_server_inside_rank_0_under_torchruns_environment() -> None:
    # torchrun's own port is TCP; the server takes UDP of the same number.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = f"import thc, numpy as np; g = thc.Group.local(join=thc.Join(join_timeout=20)); {MEAN}; print(g.server is not None)"
    said = run_ranks(script, ranks=3, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    assert [out.split() for out, _ in said] == [["1.0", str(rank), str(rank == 0)] for rank in range(3)]


def test_a_server_inside_rank_0_found_through_a_store() -> None:
    options: Any = {"server": {"policy": "best-effort", "deadline": "50ms"}, "join_timeout": 10}
    with same_group(2) as store:
        groups = run_together(*[lambda r=r: thc.Group.local(r, 2, store=store, **joining(**options)) for r in range(2)])
    assert groups[1].job.policy == "best-effort" and groups[1].job.deadline == pytest.approx(0.05)
    assert groups[0].server is not None and groups[1].server is None
    counters = groups[0].server.stats()
    assert counters["jobs"][0]["joined"] == [0, 1]
    arrays = [np.full(5000, float(rank), np.float32) for rank in range(2)]
    run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(groups, arrays)])
    assert np.allclose(arrays[1], 0.5)
    run_together(*[group.close for group in groups])


@contextlib.contextmanager
def same_group(ranks: int) -> Iterator[Store]:
    """What these ranks meet at. Each rank counts its groups; in one process they share the count, and here all have the same."""
    rendezvous._groups = iter([0] * ranks)  # type: ignore[assignment]
    try:
        yield Store()
    finally:
        rendezvous._groups = itertools.count(100)


def hosts(addresses: list[str], **options: Any) -> list[Any]:
    """What comes of a group of as many ranks, each on the host of that address: groups or exceptions."""
    with same_group(len(addresses)) as store:

        def join(rank: int) -> thc.Group:
            return thc.Group.local(rank, len(addresses), **joining(store=store, address=addresses[rank], cookie=5, join_timeout=10, **options))

        return outcomes(*[lambda rank=rank: join(rank) for rank in range(len(addresses))])


def means(groups: list[thc.Group]) -> list[np.ndarray[Any, Any]]:
    arrays = [np.random.default_rng(rank).standard_normal(700_001).astype(np.float32) for rank in range(len(groups))]
    run_together(*[lambda g=g, a=a: g.allreduce(a) for g, a in zip(groups, arrays)])
    return arrays


def test_several_hosts_have_a_share_of_the_server_each_and_the_bits_of_one() -> None:
    # All of 127.0.0.0/8 is this machine.
    addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"]
    one = hosts(addresses, colocated=False)
    assert [group.server is not None for group in one] == [True, False, False, False]
    wanted = means(one)
    run_together(*[group.close for group in one])
    shared = hosts(addresses, inject="loss=0.01")
    assert [group.server is not None for group in shared] == [True, True, False, True]
    found = means(shared)
    assert all(np.array_equal(mean, wanted[0]) for mean in [*wanted, *found])
    results = [group.server.stats()["jobs"][0]["results"] for group in shared if group.server is not None]
    assert all(count > 100 for count in results), results
    run_together(*[group.close for group in shared])


def test_a_quorum_has_one_server_and_so_has_one_host() -> None:
    groups = hosts(["127.0.0.1", "127.0.0.2"], server={"quorum": 1})
    assert [group.server is not None for group in groups] == [True, False]
    run_together(*[group.close for group in groups])
    for addresses, options, says in (
        (["127.0.0.1", "127.0.0.2"], {"server": {"quorum": 1}}, "quorum is 1 of 2"),
        (["127.0.0.1", "127.0.0.1"], {}, "all ranks are on one host"),
    ):
        assert all(isinstance(error, thc.ConfigError) and says in str(error) for error in hosts(addresses, colocated=True, **options))
    with pytest.raises(thc.ConfigError, match="need a store"):
        thc.Group.local(0, 2, join=thc.Join(port=9, colocated=True))


@pytest.mark.parametrize(("addresses", "taken"), [(["127.0.0.1", "127.0.0.2"], 1), (["127.0.0.1", "127.0.0.1"], 0)])
def test_a_rank_tells_the_others_why_its_server_does_not_start(addresses: list[str], taken: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((addresses[taken], 0))
        port = probe.getsockname()[1]
        found = hosts(addresses, port=port)
    assert [type(error) for error in found] == [thc.ServerError] * 2
    assert f"rank {taken}" in str(found[1 - taken]) and f"{addresses[taken]}:{port}" in str(found[1 - taken])


def test_ranks_outside_of_the_world() -> None:
    with pytest.raises(thc.ConfigError, match="rank 2 of 2"):
        thc.Group.local(2, 2, join=thc.Join(port=1))
    with pytest.raises(thc.ConfigError, match="MASTER_PORT"):
        thc.Group.local(1, 2)


def test_interfaces_are_those_of_nccl_and_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    from thc import interfaces

    addresses = {"lo": "127.0.0.1", "eth0": "10.0.0.1", "eth1": "10.0.1.1", "ib0": "10.1.0.1", "bare": None}
    ipv6 = {"eth0": "2001:db8::5", "six": "2001:db8:1::6", "lo": "::1"}
    monkeypatch.setattr(interfaces, "_address", lambda name, six=False: (ipv6 if six else addresses).get(name))
    monkeypatch.setattr(interfaces.socket, "if_nameindex", lambda: list(enumerate([*addresses, "six"])))

    def chosen_interface(usual: str | None = None, **variables: str) -> str | None:
        for name in interfaces.VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        return interfaces.chosen_address(usual)

    assert chosen_interface() is None and chosen_interface(NCCL_SOCKET_IFNAME="") is None
    assert chosen_interface(NCCL_SOCKET_IFNAME="ib") == "10.1.0.1" and chosen_interface(NCCL_SOCKET_IFNAME="=eth1") == "10.0.1.1"
    assert chosen_interface(NCCL_SOCKET_IFNAME="eth") == "10.0.0.1" and chosen_interface("10.0.1.1", NCCL_SOCKET_IFNAME="eth") == "10.0.1.1"
    assert chosen_interface(NCCL_SOCKET_IFNAME="bare,ib0") == "10.1.0.1", "the first that has an address"
    assert chosen_interface(NCCL_SOCKET_IFNAME="^eth,bare") == "10.1.0.1" and chosen_interface(NCCL_SOCKET_IFNAME="^=eth0") == "10.0.1.1"
    assert chosen_interface(GLOO_SOCKET_IFNAME="eth1") == "10.0.1.1" and chosen_interface(NCCL_SOCKET_IFNAME="ib0", GLOO_SOCKET_IFNAME="eth1") == "10.1.0.1"
    for variables, says in (
        ({"NCCL_SOCKET_IFNAME": "mlx5"}, "NCCL_SOCKET_IFNAME is 'mlx5', and this host has no such interface: it has bare, eth0"),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "GLOO_SOCKET_IFNAME is 'eth', and this host has no such interface"),
        ({"NCCL_SOCKET_IFNAME": "bare"}, "bare has no usable address"),
    ):
        with pytest.raises(thc.ConfigError, match=says):
            chosen_interface(**variables)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert interfaces.bind_option("10.0.0.7:9000", {}) == {"bind": "10.1.0.1:0"}
    for ps, options in (("127.0.0.1:9000", {}), ("10.0.0.7:9000", {"bind": "10.0.0.1:0"}), ("10.0.0.7:9000", {"io": "dpdk"})):
        assert interfaces.bind_option(ps, options) == {}
    # An address is of the server's family.
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=eth0")
    assert interfaces.bind_option("[2001:db8::9]:9000", {}) == {"bind": "[2001:db8::5]:0"} and interfaces.bind_option("10.0.0.7:9000", {}) == {"bind": "10.0.0.1:0"}
    assert interfaces.bind_option("[::1]:9000", {}) == interfaces.bind_option("localhost:9000", {}) == {}
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=six")
    assert interfaces.chosen_address() == "2001:db8:1::6"
    with pytest.raises(thc.ConfigError, match="six has no IPv4 address"):
        interfaces.bind_option("10.0.0.7:9000", {})
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    monkeypatch.setenv("THC_ADDRESS", "10.9.9.9")
    assert interfaces.bind_option("10.0.0.7:9000", {}) == {}


def test_ranks_use_the_interface_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")
    group = thc.Group.local(0, 1, store=Store(), join=thc.Join(join_timeout=20))
    assert group.ps.startswith("127.0.0.1:")
    group.close()
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "nothing0")
    with pytest.raises(thc.ConfigError, match="nothing0"):
        thc.Group.from_env(worker=0, join=thc.Join(ps="192.0.2.1:9", cookie=1))


def test_an_address_that_is_none_of_the_hosts() -> None:
    """As behind NAT: the server listens on all addresses, and others hear of that one."""
    meeting = rendezvous.meet(0, 1, Store(), thc.Join(address="203.0.113.7", cookie=5))
    assert meeting.server is not None
    host, _, port = meeting.server.address.rpartition(":")
    assert host == "0.0.0.0" and meeting.ps == f"203.0.113.7:{port}"
    meeting.server.close()
    with same_group(2) as store:
        met = run_together(*[lambda r=r: rendezvous.meet(r, 2, store, thc.Join(address=f"203.0.113.{7 + r}", cookie=5)) for r in range(2)])
    assert met[0].ps == met[1].ps and met[0].ps.startswith("203.0.113.7:") and all(each.server for each in met)
    for each in met:
        assert each.server.address.startswith("0.0.0.0:")
        each.server.close()


def test_ranks_without_a_master_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from thc import interfaces

    for name in ("MASTER_ADDR", "THC_ADDRESS", *interfaces.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    assert rendezvous.addresses_among(["a", "a"], [("10.0.0.1", True)] * 2) == ["127.0.0.1"] * 2, "one host needs no other address"
    assert rendezvous.addresses_among(["a", "b"], [("10.0.0.1", True), ("10.0.0.2", True)]) == ["10.0.0.1", "10.0.0.2"]
    with pytest.raises(thc.ConfigError, match="on 2 hosts, and rank 1 has no address for the others, but 127.0.0.1: set MASTER_ADDR"):
        rendezvous.addresses_among(["a", "b"], [("10.0.0.1", True), ("127.0.0.1", True)])


def test_a_port_that_this_process_has_itself() -> None:
    group = thc.Group.local(0, 1, store=Store(), join=thc.Join(port=0, cookie=5, address="127.0.0.1"))
    port = int(group.ps.rpartition(":")[2])
    with pytest.raises(thc.ServerError, match="It is this process itself.*close.*or give this one another port"):
        thc.Group.local(0, 1, store=Store(), join=thc.Join(port=port, cookie=5, address="127.0.0.1"))
    group.close()
    thc.Group.local(0, 1, store=Store(), join=thc.Join(port=port, cookie=5, address="127.0.0.1")).close()
