"""`bench adapt`: a published gain is reached only where accuracy is recovered, and docs/adapt.md says so of its own figures."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from servers import REPOSITORY


def _verdict() -> Any:
    path = REPOSITORY / "testbed" / "bench-torch" / "adapt" / "verdict.py"
    spec = importlib.util.spec_from_file_location("verdict", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verdict = _verdict()


def test_more_accuracy_and_less_perplexity_are_better() -> None:
    assert verdict.score_loss("accuracy", 0.90, 0.95) == pytest.approx(0.0526, abs=1e-4)
    assert verdict.score_loss("accuracy", 0.96, 0.95) < 0 < verdict.score_loss("perplexity", 15.0, 14.0)
    assert verdict.percent(0.01) == "+1.0 %" and verdict.percent(0.0149) == "**+1.5 %**" and verdict.percent(-0.02) == "-2.0 %"


def test_a_gain_needs_both_ways_to_recover() -> None:
    assert verdict.verdict(1.2, 1.1, 0.0, 0.01) == "aim 1.1: reached"
    assert verdict.verdict(1.05, 1.1, 0.0, 0.0) == "aim 1.1: **not reached**: too few bytes saved"
    assert verdict.verdict(4.2, 2.6, 0.14, 0.0) == "aim 2.6: **not reached**: uniform is off"
    assert verdict.verdict(4.2, 2.6, 0.0, 0.12) == "aim 2.6: **not reached**: L-GreCo is off"


def test_the_page_says_what_follows_from_its_figures() -> None:
    judged, uniform = 0, 0.0
    for line in (REPOSITORY / "docs" / "adapt.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 8 or not re.fullmatch(r"(\*\*)?[+-][\d.]+ %(\*\*)?", cells[4]):
            continue
        share = float(cells[4].strip("*").removesuffix(" %")) / 100
        assert cells[4] == verdict.percent(share), line
        said = re.fullmatch(r"\*\*([\d.]+) ×\*\* \((aim ([\d.]+).*)\)", cells[6])
        if said is None:
            uniform = share
            continue
        assert said[2] == verdict.verdict(float(said[1]), float(said[3]), uniform, share), line
        assert float(said[3]) == verdict.AIMS[cells[0].split(",")[0]], line
        judged += 1
    assert judged == 6
