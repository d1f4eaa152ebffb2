"""Each failure that the Rust library reports has its exception, and each says what is wrong."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import thc
from conftest import outcomes, run_together
from patience import HANG
from servers import COOKIE, ParameterServer, joining

_next_job = itertools.count(1)


def join(server: ParameterServer, job: int, worker: int, **options: Any) -> thc.Group:
    return thc.Group(server.address, job, worker, COOKIE, **joining(**{"timeout": 10, "join_timeout": 10, **options}))


def ones(length: int = 3000) -> Any:
    return np.ones(length, np.float32)


def test_every_exception_is_a_thc_error() -> None:
    classes = [kind for name, kind in vars(thc).items() if name.endswith("Error")]
    assert len(classes) > 15
    assert all(issubclass(each, thc.ThcError) for each in classes)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"job": 400}, "job"),
        ({"cookie": 1}, "cookie"),
        ({"worker": 5}, "worker"),
    ],
)
def test_join_refused(jobs: ParameterServer, arguments: dict[str, Any], says: str) -> None:
    given = {"job": 40, "worker": 0, "cookie": COOKIE, **arguments}
    with pytest.raises(thc.JoinError) as caught:
        thc.Group(jobs.address, given["job"], given["worker"], given["cookie"], join=thc.Join(join_timeout=5))
    assert says in caught.value.reason and caught.value.reason in str(caught.value)
    assert isinstance(caught.value, thc.JoinError)


def test_nobody_answers() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(thc.JoinError) as caught:
            thc.Group("127.0.0.1:%d" % deaf.getsockname()[1], cookie=1, join=thc.Join(join_timeout="300ms"))
    assert 0.3 <= caught.value.waited < 5


def test_others_do_not_come(jobs: ParameterServer) -> None:
    with pytest.raises(thc.JoinError) as caught:
        join(jobs, next(_next_job), 1, join_timeout=0.5)
    assert caught.value.missing == [0]
    assert caught.value.waited >= 0.5


def test_another_worker_stops_sending(jobs: ParameterServer) -> None:
    number = next(_next_job)
    groups = run_together(*[lambda w=w: join(jobs, number, w, timeout=2) for w in range(2)])
    with pytest.raises(thc.MissingError) as caught:
        groups[0].allreduce(ones())
    assert caught.value.missing == [1]
    run_together(*[group.close for group in groups])


def test_the_server_dies_and_comes_back() -> None:
    with ParameterServer({}) as server:
        groups = run_together(*[lambda w=w: join(server, 1, w, timeout=1, join_timeout=20) for w in range(2)])
        server.kill()
        failed = outcomes(*[lambda g=g: g.allreduce(ones()) for g in groups])
        assert [type(error) for error in failed] == [thc.SilentError] * 2
        assert all(error.waited >= 0.9 for error in failed)
        with ParameterServer({}, listen=server.address):
            run_together(*[group.rejoin for group in groups])
            arrays = [ones(), ones()]
            run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(groups, arrays)])
            assert np.allclose(arrays[0], 1.0)
            run_together(*[group.close for group in groups])


def test_whether_the_server_is_there() -> None:
    with ParameterServer({}) as server:
        groups = run_together(*[lambda w=w: join(server, 1, w, timeout=1, join_timeout=20) for w in range(2)])
        assert all(run_together(*[group.find_server for group in groups]))
        # Nobody has taken a place by it, and the session goes on.
        run_together(*[lambda g=g: g.allreduce(ones()) for g in groups])
        server.kill()
        assert not any(run_together(*[lambda g=g: g.find_server("50ms") for g in groups]))
        with pytest.raises(thc.ConfigError, match="patience"):
            groups[0].find_server(0)
        # Another server, without this job, is not the one.
        with ParameterServer({"job": 2}, listen=server.address):
            assert not groups[0].find_server()
        with ParameterServer({}, listen=server.address):
            assert groups[0].find_server()
            run_together(*[group.rejoin for group in groups])
            run_together(*[lambda g=g: g.allreduce(ones()) for g in groups])
            run_together(*[group.close for group in groups])


def test_a_restarted_server_does_not_disturb_a_running_session() -> None:
    with ParameterServer({}) as server:
        groups = run_together(*[lambda w=w: join(server, 1, w, timeout=30) for w in range(2)])
        run_together(*[lambda g=g: g.allreduce(ones()) for g in groups])
        server.kill()
        with ParameterServer({}, listen=server.address):
            arrays = [ones(), ones()]
            run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(groups, arrays)])
            assert np.allclose(arrays[1], 1.0)
            run_together(*[group.close for group in groups])


def test_a_worker_restarts(jobs: ParameterServer) -> None:
    number = next(_next_job)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A process that joins as worker 1 and crashes; the second one has the same address, but is another incarnation.
    script = (
        f"import os, thc; thc.Group({jobs.address!r}, {number}, 1, {COOKIE}, join=thc.Join(bind='127.0.0.1:{port}', join_timeout=3))\n"
        "os._exit(0)"
    )
    crash = [sys.executable, "-c", script]
    first = run_together(lambda: join(jobs, number, 0), lambda: subprocess.run(crash, timeout=HANG, check=True))[0]
    found = outcomes(lambda: first.allreduce(ones()), lambda: subprocess.run(crash, timeout=HANG, capture_output=True))
    # On a slow machine the first one's death is known before the second one comes.
    if isinstance(found[0], thc.MissingError):
        assert found[0].missing == [1], found[0]
    else:
        assert isinstance(found[0], thc.LostError), found[0]
        assert found[0].worker in (1, None)
    first.close()


def test_left_behind_by_a_quorum() -> None:
    with ParameterServer({"quorum": 1, "data_slots": 8, "norm_slots": 2}) as server:
        groups = run_together(*[lambda w=w: join(server, 1, w) for w in range(2)])
        for _ in range(4):
            groups[0].allreduce(ones(1 << 15))
        behind = outcomes(*[lambda: [groups[1].allreduce(ones(1 << 15)) for _ in range(4)]])[0]
        stats = groups[1].stats()
        assert isinstance(behind, thc.SessionError) or stats.stragglers > 0, behind
        run_together(*[group.close for group in groups])


def fingerprint(welcome: bytes) -> bytes:
    """Of a WELCOME whose session, nonce and fingerprint are zero (P23)."""
    digest = 0
    for (word,) in struct.iter_unpack(">Q", welcome):
        z = digest ^ word
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
        z = (z ^ z >> 27) * 0x94D049BB133111EB % (1 << 64)
        digest = ((z ^ z >> 31) + 1) % (1 << 64)
    return struct.pack(">Q", digest)


def test_the_job_is_unusable() -> None:
    """A server whose table is not one, as an incompatible version might have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)

        def welcome() -> None:
            join_packet, worker = server.recvfrom(2048)
            nonce = join_packet[20:28]
            header = struct.pack(">BBBBHBBIIHBB", 2, 0x31, 0, 1, 1, 0, 0, COOKIE, 0, 0, 0, 0)
            numbers = struct.pack(">IIIBBBBIBBHd", 77, 64, 8, 1, 8, 0, 1, 200_000, 1, 4, 30, 1 / 32)
            table = bytes([5] * 16)  # not increasing
            last = struct.pack(">BBBBII", 20, 1, 1, 4, 0, 0) + bytes(36)
            parts = [numbers + table + bytes(8), nonce, struct.pack(">d", 2.153875), bytes(8), last]
            parts[3] = fingerprint(bytes(4) + parts[0][4:] + bytes(8) + parts[2] + bytes(8) + last)
            server.sendto(header + b"".join(parts), worker)

        teller = threading.Thread(target=welcome, daemon=True)
        teller.start()
        with pytest.raises(thc.JoinError):
            thc.Group("127.0.0.1:%d" % server.getsockname()[1], cookie=COOKIE, join=thc.Join(join_timeout=5))
        teller.join(10)


def test_no_controller() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = "thc://127.0.0.1:%d/train" % closed.getsockname()[1]
        with pytest.raises(thc.JoinError, match="train") as caught:
            thc.Group(url, join=thc.Join(join_timeout=0.5))
    assert url in str(caught.value)


def test_the_network_refuses() -> None:
    with pytest.raises(thc.NetworkError, match="192.0.2.77") as caught:
        thc.Group("127.0.0.1:9", cookie=1, join=thc.Join(bind="192.0.2.77:0", join_timeout=1))
    assert isinstance(caught.value, OSError)


def test_a_server_that_cannot_start(jobs: ParameterServer) -> None:
    with pytest.raises(thc.ServerError, match=jobs.address.split(":")[1]):
        thc.Server(2, COOKIE, listen=jobs.address)
    with thc.Server(1, COOKIE) as server:
        server.close()
        with pytest.raises(thc.ClosedError):
            server.stats()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ps": "nowhere", "cookie": 1}, "ps"),
        ({"ps": "127.0.0.1:9", "cookie": "0xzz"}, "cookie"),
        ({"ps": "127.0.0.1:9", "cookie": 1 << 40}, "cookie"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "worker": 64}, "worker"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "job": 1 << 16}, "job"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "timeout": 0}, "timeout"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "timeout": "soon"}, "timeout"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "bind": "here"}, "bind"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "threads": 0}, "threads"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "inject": "loss=2"}, "loss|inject"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "io": "pigeon"}, "io"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "io": "dpdk", "dpdk": {"speed": 9}}, "speed"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "io": "dpdk", "dpdk": {"devices": ["net_null0"], "address": "10.0.0.1/99"}}, "prefix"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "dpdk": {"address": "10.0.0.1/24"}}, "io"),
        ({"ps": "thc://controller/job", "cookie": 1}, "cookie is given"),
        ({"ps": "thc://controller/job", "job": 1}, "job is given"),
        ({"ps": "thc://controller/job", "controller_cert": "a.pem"}, "controller_key"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    with pytest.raises(thc.ConfigError, match=says) as caught:
        thc.Group(**joining(**options))
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 65}, "workers"),
        ({"workers": 4, "granularity": 200}, "granularity"),
        ({"workers": 2, "policy": "hopeful"}, "policy"),
        ({"workers": 2, "data_slots": 3}, "data_slots"),
        ({"workers": 2, "listen": "here"}, "listen"),
        ({"workers": 2, "cookie": "secret"}, "cookie"),
    ],
)
def test_wrong_server_options(options: dict[str, Any], says: str) -> None:
    with pytest.raises(thc.ConfigError, match=says) as caught:
        thc.Server(**{"cookie": COOKIE, **options})
    assert "secret" not in str(caught.value)


def test_keys_of_a_job_are_those_of_the_server_program() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'hope'"):
        thc.Server(2, COOKIE, hope=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        thc.Server(2, COOKIE, data_slots="many")  # type: ignore[arg-type]
    with thc.Server(2, COOKIE, data_slots=512, deadline=0.5, tables=["bits=2"], policy="best-effort", seed=None) as server:
        assert server.stats()["jobs"]


def test_a_server_has_the_usual_port_unless_one_is_given():
    with pytest.raises(thc.JoinError, match=re.escape("127.0.0.9:9000")):
        thc.Group("127.0.0.9", cookie=1, join=thc.Join(join_timeout=0.3))
    with pytest.raises(thc.ConfigError, match="no server has port 0; the usual port is 9000"):
        thc.Group("127.0.0.9:0", cookie=1)
