"""ROW by hand, and what a clock makes of a step."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request

import pytest
import thc
from conftest import run_together
from patience import HANG
from servers import COOKIE, ParameterServer
from thc import adapt
from thc.row import Row, Training


def test_a_step_by_hand() -> None:
    # A second of a step: gradients travel from 0.1 to 0.3, from 0.2 to 0.4 and from 0.6 to 0.9, the last 0.2 of that waited for.
    row = Row.from_spans((0.0, 1.0), [(0.6, 0.9), (0.1, 0.3), (0.2, 0.4)], [(0.7, 0.9)])
    assert row.computing == pytest.approx(0.8) and row.waited == pytest.approx(0.2)
    assert row.hidden == pytest.approx(0.3 + 0.1) and row.row == pytest.approx(2.0)
    # T_update has the pause in it.
    assert row.updating == pytest.approx(0.8) and row.updating_hidden == pytest.approx(0.6)
    assert row.osf == pytest.approx(0.8 / (0.8 + 0.2))


def test_what_is_outside_of_a_step_does_not_count() -> None:
    row = Row.from_spans((1.0, 2.0), [(0.5, 1.2), (1.9, 5.0), (0.0, 0.9)], [(1.9, 2.5), (0.0, 0.5)])
    assert row.hidden == pytest.approx(0.2) and row.waited == pytest.approx(0.1) and row.updating == pytest.approx(1.0)


def test_steps_without_waiting_or_travelling() -> None:
    assert Row.from_spans((0.0, 1.0), [(0.2, 0.4)], []).row == math.inf
    assert math.isnan(Row.from_spans((0.0, 1.0), [], []).row) and math.isnan(Row().osf)
    assert Row.from_spans((0.0, 1.0), [], [(0.0, 0.5)]).row == 0.0


def test_of_a_group_the_shortest_overlap_over_the_longest_wait() -> None:
    training = Training()
    training.note_comparison([(0.5, 0.1), (0.4, 0.2)])
    assert training.group_last == pytest.approx(2.0)
    training.note_comparison([(0.6, 0.3), (0.8, 0.1)])
    assert training.group_last == pytest.approx(2.0)
    assert training.totals()["group_hidden"] == pytest.approx(1.0) and training.totals()["group_waited"] == pytest.approx(0.5)
    training.step(Row(0.8, 0.8, 0.6, 0.4, 0.2))
    training.step(Row(0.2, 0.2, 0.1, 0.2, 0.1))
    assert training.total.row == pytest.approx(2.0) and training.last.row == pytest.approx(2.0)


def test_prometheus_hears_of_it() -> None:
    with ParameterServer({"workers": 1}) as server, thc.Group(server.address, 1, 0, COOKIE) as group:
        group.training.step(Row(0.8, 0.8, 0.6, 0.4, 0.2))
        group.training.note_comparison([(0.4, 0.2), (0.3, 0.3)])
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
    assert stats.row == pytest.approx(2.0) and stats.group_row == pytest.approx(1.0)
    assert "ROW 2.00, of the group 1.00; OSF 0.80" in stats.summary(2)
    for line in ("thc_training_row{%s} 2", "thc_training_group_row{%s} 1", "thc_training_waited_seconds_total{%s} 0.2"):
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


def test_bandwidth_and_ratios_are_those_of_the_library() -> None:
    bandwidth = adapt.Bandwidth()
    assert bandwidth.get() is None
    bandwidth.note(100.0, 1.0)
    for _ in range(2):
        bandwidth.note(30.0, 1.0)
    assert 30.0 < (bandwidth.get() or 0.0) < 37.0
    assert adapt.first_ratio(100.0, 50.0, 1.0) == 0.5 and adapt.first_ratio(100.0, 50.0, None, least=0.25) == 0.25
    assert adapt.second_ratio(100.0, 50.0, 0.2) is None and adapt.second_ratio(100.0, 50.0, 9.0) == 1.0
    assert run_together(lambda: adapt.second_ratio(100.0, 50.0, 1.0)) == [0.5]
