"""The short forms of `python/bench/run accuracy`, `collective` and `accelerator`."""

from __future__ import annotations

import importlib.util
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
    done = subprocess.run([sys.executable, str(REPOSITORY / "python" / "bench"), *words], text=True, capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_trainings_are_compared_with_exact_means_and_not_run_twice(tmp_path: Path) -> None:
    words = ["accuracy", "--tasks", "recommender", "--ways", "exact,thc,nearest", "--seeds", "1", "--steps", "20", "--jobs", "1", "--out", str(tmp_path)]
    said = bench(*words)
    assert "| recommender | thc | 2 |" in said and (tmp_path / "index.html").exists()
    runs = {run["way"]: run for run in json.loads((tmp_path / "results.json").read_text())}
    assert set(runs) == {"exact", "thc", "nearest"}
    # The first step is exact, and the first loss that of all.
    assert len({run["losses"][0] for run in runs.values()}) == 1
    assert abs(runs["thc"]["final"] - runs["exact"]["final"]) < 0.01 and runs["thc"]["final"] != runs["exact"]["final"]
    assert 1e-5 < runs["thc"]["errors"]["all"] < 0.05 and 0.99 < runs["thc"]["cosine"] <= 1
    assert 4 < runs["thc"]["bits"] < 8 and runs["thc"]["update"] < 0.5
    before = (tmp_path / "results.json").read_text()
    assert " of " not in bench(*words).splitlines()[0] and (tmp_path / "results.json").read_text() == before


def test_ways_without_a_server_are_compared_on_links(tmp_path: Path) -> None:
    said = bench("collective", "--hosts", "2", "--rates", "1", "--size", "1", "--rounds", "1", "--ways", "f32,lanes8,int8,shares", "--out", str(tmp_path))
    if "not run: " in said:
        pytest.skip(said[said.index("not run: ") :].splitlines()[0])
    (part,) = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert set(part["seconds"]) == {"f32", "lanes8", "int8", "shares"} and part["nmse"]["f32"] < 1e-12
    assert all(1e-6 < part["nmse"][way] < 0.05 for way in ("lanes8", "int8", "shares")), part["nmse"]


def test_an_accelerator_is_stood_in_for(tmp_path: Path) -> None:
    said = bench("accelerator", "--quick", "--ways", "bf16,thc-faster", "--out", str(tmp_path))
    if "not run: " in said:
        pytest.skip(said[said.index("not run: ") :].splitlines()[0])
    assert said.startswith("stand-in for an accelerator") and "no hook (gloo)" in said
    (part,) = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert part["parameters"] == 25_557_032 and set(part["ways"]) == {"bf16", "thc-faster"}
    for name, way in part["ways"].items():
        # Nobody is done before the accelerator.
        assert min(*way["own"]["seconds"], *way["base"]["seconds"]) >= part["computing"], name
        assert (way["compresses"] is not None) == (name == "thc-faster")


def test_shapes_are_those_of_the_models() -> None:
    found = importlib.util.spec_from_file_location("shapes", REPOSITORY / "python" / "bench" / "accelerator" / "shapes.py")
    assert found is not None and found.loader is not None
    shapes = sys.modules["shapes"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(shapes)
    # As torchvision and Hugging Face count them; BERT-Large with the head that guesses masked words.
    assert [make(1).parameters for make in shapes.MODELS.values()] == [25_557_032, 335_174_458, 124_439_808]
    whole, part = shapes.bert(1), shapes.bert(8)
    assert abs(part.seconds / part.parameters / (whole.seconds / whole.parameters) - 1) < 0.05
