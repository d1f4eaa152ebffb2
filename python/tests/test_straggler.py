"""`python/bench/run straggler`: its short form, and how a way is held against synchronous training."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import needs
from patience import HANG
from servers import REPOSITORY

BENCH = REPOSITORY / "python" / "bench"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    found = importlib.util.spec_from_file_location("straggler_report", BENCH / "straggler" / "report.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run(way: str, seed: int, points: list[tuple[float, float]], rate: float = 0.1) -> dict[str, object]:
    return {"model": "cnn", "way": way, "seed": seed, "rate": rate, "points": points, "parameters": 10, "workers": 2, "slow": 4.0,
            "seconds": 8.0, "load": 1.0, "ranks": [{"steps": 8, "gradient": 0.5}, {"steps": 2, "gradient": 9.0}]}  # fmt: skip


def test_a_loss_is_reached_on_the_line_between_two_points(report: ModuleType) -> None:
    points = [(0.0, 4.0), (2.0, 2.0), (4.0, 3.0), (8.0, 1.0)]
    assert report.time_to_loss(points, 3.0) == 1.0
    assert report.time_to_loss(points, 1.5) == 7.0
    assert report.time_to_loss(points, 0.5) is None


def test_verdicts(report: ModuleType) -> None:
    base = {seed: run("sync", seed, [(0.0, 4.0), (8.0, 2.0)]) for seed in (1, 2)}

    def report_of(*points: list[tuple[float, float]]) -> str:
        verdict: str = report.verdict([[run("async", seed, each) for seed, each in enumerate(points, 1)]], base)
        return verdict

    soon, late = [(0.0, 4.0), (3.0, 2.0), (8.0, 1.9)], [(0.0, 4.0), (6.0, 2.0), (8.0, 1.9)]
    assert "pays here: it reaches the loss of synchronous THC 2.7 times" in report_of(soon, soon)
    assert "gains less than twice the speed here: it reaches the loss of synchronous THC 1.3 to 2.7 times" in report_of(soon, late)
    assert "does not pay" in report_of(soon, [(0.0, 4.0), (8.0, 2.0)])
    assert "does not pay" in report_of([(0.0, 4.0), (3.0, 2.0), (8.0, 2.1)])
    assert "never reaches" in report_of([(0.0, 4.0), (8.0, 2.1)])


def test_time_is_counted_in_gradients(report: ModuleType) -> None:
    base, own = run("sync", 1, [(0.0, 4.0), (8.0, 2.0)]), run("async", 1, [(0.0, 4.0), (4.0, 2.0), (8.0, 1.0)])
    assert report.by_clock(own, base) == (2.0, -0.5)
    # A busier machine: its eight seconds are as many gradients as four seconds of the other, when that had a loss of 3.
    own["ranks"] = [{"steps": 8, "gradient": 1.0}, {"steps": 2, "gradient": 9.0}]
    assert report.by_gradients(own, base) == pytest.approx((4.0, 1.0 / 3.0 - 1))


def test_the_rate_of_the_least_loss_counts(report: ModuleType) -> None:
    runs = [run("sync", seed, [(0.0, 4.0), (8.0, 2.0 + rate)], rate) for seed in (1, 2) for rate in (0.1, 0.2)]
    # One seed alone with a rate is no match for two.
    runs.append(run("sync", 1, [(0.0, 4.0), (8.0, 0.1)], 0.3))
    assert [[one["rate"] for one in group] for group in report.best(runs)] == [[0.1, 0.1]]
    found = {"machine": {"cpu": "a processor", "cores": 2, "torch": "2"}, "runs": runs}
    assert "| synchronous THC | 0.1 | 2 | 2.100 (2.100 to 2.100) | 1.00 (1.00 to 1.00) | +0.0 % | 1.00 (1.00 to 1.00) | +0.0 % | 500 | 8, 2 |" in report.table(found)


def test_short(tmp_path: Path) -> None:
    needs("torch")
    words = ["straggler", "--models", "small", "--ways", "quorum,async", "--seeds", "1", "--seconds", "1", "--out", str(tmp_path)]
    for _ in range(2):
        done = subprocess.run([sys.executable, str(BENCH), *words], text=True, capture_output=True, timeout=HANG)
        assert done.returncode == 0 and "not run" not in done.stdout, done.stdout + done.stderr
        text = (tmp_path / "results.json").read_text()
    assert " s  small" not in done.stdout, "what is there already is not run again"
    runs = json.loads(text)["runs"]
    assert [one["way"] for one in runs] == ["quorum", "async"]
    for one in runs:
        assert len(one["ranks"]) == 4 and one["ranks"][0]["steps"] > 0 and one["points"][0][1] > 4
    assert (tmp_path / "loss.svg").exists() and "| asynchronous" in (tmp_path / "results.md").read_text()
