"""Each failure that the Rust library reports has its exception, and each says what is wrong."""

from __future__ import annotations

import itertools
import re
import socket
from typing import Any

import numpy as np
import pytest
import thc
from conftest import outcomes, run_together
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
        assert all(run_together(*[group.find_server for group in groups]))
        # Nobody has taken a place by it, and the session goes on.
        run_together(*[lambda g=g: g.allreduce(ones()) for g in groups])
        server.kill()
        failed = outcomes(*[lambda g=g: g.allreduce(ones()) for g in groups])
        assert [type(error) for error in failed] == [thc.SilentError] * 2 and all(error.waited >= 0.9 for error in failed)
        assert not any(run_together(*[lambda g=g: g.find_server("50ms") for g in groups]))
        with pytest.raises(thc.ConfigError, match="patience"):
            groups[0].find_server(0)
        # Another server, without this job, is not the one.
        with ParameterServer({"job": 2}, listen=server.address):
            assert not groups[0].find_server()
        with ParameterServer({}, listen=server.address):
            assert groups[0].find_server()
            run_together(*[group.rejoin for group in groups])
            arrays = [ones(), ones()]
            run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(groups, arrays)])
            assert np.allclose(arrays[0], 1.0)
            run_together(*[group.close for group in groups])


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
        ({"ps": "127.0.0.1:9", "cookie": 1, "worker": 64}, "worker"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "timeout": "soon"}, "timeout"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "bind": "here"}, "bind"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "threads": 0}, "threads"),
        ({"ps": "127.0.0.1:9", "cookie": 1, "io": "dpdk", "dpdk": {"speed": 9}}, "speed"),
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
        ({"workers": 2, "policy": "hopeful"}, "policy"),
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
