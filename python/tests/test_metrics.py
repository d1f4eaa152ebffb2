"""What a clock makes of a step, and what Prometheus hears."""

from __future__ import annotations

import dataclasses
import re
import socket
import urllib.error
import urllib.request

import pytest
import thc
from conftest import needs
from patience import HANG
from servers import COOKIE, ParameterServer
from thc.stats import Training


def test_a_step_is_computing_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("torch")
    from thc.torch.engine import clock

    now = iter([1.0, 1.5, 2.0, 2.25, 3.0, 3.5, 4.0])
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(now))
    training = Training()
    timed = clock.Clock(training)
    timed.end_step()  # 1.0: the first step has no beginning
    timed.produced = clock.time.perf_counter()  # 1.5
    timed.end_step()  # 2.0
    assert (training.steps, training.computing, training.waited) == (1, 0.5, 0.5)
    with timed.measure_wait():  # 2.25 to 3.0
        pass
    timed.produced = clock.time.perf_counter()  # 3.5
    timed.end_step()  # 4.0
    assert (training.steps, training.computing, training.waited) == (2, 1.25, 1.75)


def test_prometheus_hears_of_it() -> None:
    with ParameterServer({"workers": 1}) as server, thc.Group(server.address, 1, 0, COOKIE) as group:
        group.training.add_step(0.8, 0.2)
        metrics = thc.serve_metrics("127.0.0.1:0")
        try:
            with urllib.request.urlopen(f"http://{metrics.address}/metrics", timeout=HANG) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                text = answer.read().decode()
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://{metrics.address}/other", timeout=HANG)
        finally:
            metrics.close()
        stats = group.stats()
    assert "steps computed 0.80 s and waited for gradients 0.20 s" in stats.summary(2)
    assert "ring all-reduce" not in stats.summary(1)
    of_much = dataclasses.replace(stats, coordinates=1_000_000, bytes_up=550_000, bytes_down=1_050_000).summary(2)
    assert "of f32 moves 8.0 MB: 6.4 MB saved (80 %)" in of_much and "of bf16 moves 4.0 MB: 2.4 MB saved (60 %)" in of_much
    for line in ("thc_training_steps_total{%s} 1", "thc_training_computing_seconds_total{%s} 0.8", "thc_training_waited_seconds_total{%s} 0.2"):
        assert line % 'thc_job="1",worker="0"' in text, text
    # Whatever the library counts, under its names.
    counted = thc._native.group_metrics()
    assert {field for field, *_ in counted} <= set(vars(stats)) and {"window", "network", "lost"} <= {field for field, *_ in counted}
    for field, name, kind, _ in counted:
        sample = f'thc_group_{name}{"_total" if kind == "counter" else ""}{{thc_job="1",worker="0"}} '
        assert float(text.partition(sample)[2].partition("\n")[0]) >= 0 and f"# TYPE thc_group_{name} {kind}\n" in text, (name, text)
    # As OpenMetrics wants it: every line a comment or a sample, and an end.
    assert text.endswith("# EOF\n")
    assert all(re.fullmatch(r"# (TYPE|HELP) \S+ .+|# EOF|\w+\{[^}]*\} (\+Inf|NaN|[-+.e\d]+)", line) for line in text.splitlines())


def test_an_address_that_is_none() -> None:
    for wrong in ("9702", "127.0.0.1:", "127.0.0.1:99999"):
        with pytest.raises(thc.ConfigError, match="host:port"):
            thc.serve_metrics(wrong)


def test_the_ranks_of_a_host_take_neighbouring_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    opened = []
    try:
        for rank in range(2):
            monkeypatch.setenv("LOCAL_RANK", str(rank))
            opened.append(thc.serve_metrics(f"127.0.0.1:{port}"))
        assert [metrics.address for metrics in opened] == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    finally:
        for metrics in opened:
            metrics.close()
