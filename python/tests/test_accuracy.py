"""The short form of `testbed/bench-torch/run accuracy`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs
from patience import HANG
from servers import REPOSITORY

needs("torch")


def bench(*words: str) -> str:
    done = subprocess.run([sys.executable, str(REPOSITORY / "testbed" / "bench-torch"), *words], text=True, capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_trainings_are_compared_with_exact_means_and_not_run_twice(tmp_path: Path) -> None:
    words = ["accuracy", "--tasks", "gpt2", "--ways", "exact,thc,thc-paper", "--seeds", "1", "--steps", "20", "--jobs", "1", "--out", str(tmp_path)]
    said = bench(*words)
    assert "| gpt2, 2, 20 | thc |" in said
    runs = {run["way"]: run for run in json.loads((tmp_path / "results.json").read_text())}
    assert set(runs) == {"exact", "thc", "thc-paper"}
    # The first step is exact, and the first loss that of all.
    assert len({run["losses"][0] for run in runs.values()}) == 1
    assert abs(runs["thc"]["final"] - runs["exact"]["final"]) < 0.03 and runs["thc"]["final"] != runs["exact"]["final"]
    assert 1e-5 < runs["thc"]["nmse"] < 0.02 and runs["thc"]["update"] < 0.8
    before = (tmp_path / "results.json").read_text()
    assert "min left" not in bench(*words) and (tmp_path / "results.json").read_text() == before


def test_the_page_has_the_table_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "testbed" / "bench-torch"))
    from accuracy.report import table

    page = (REPOSITORY / "docs" / "measuring.md").read_text().splitlines()
    lines = table(json.loads((REPOSITORY / "docs" / "papers" / "accuracy.json").read_text())).splitlines()
    assert len(lines) > 4 and [line for line in lines if line not in page] == []
