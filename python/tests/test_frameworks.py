"""Lightning, Accelerate and Hugging Face's Trainer with their own packages, on two ranks; checks of `checks_frameworks.py`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import needs, newest_has
from crew import Report, names, run

newest_has("what frameworks need is")
needs("torch")


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    yield run("checks_frameworks", 2)


@pytest.mark.parametrize("check", names("checks_frameworks"))
def test_ranks(report: Report, check: str) -> None:
    if why := report.skip_reason(check):
        pytest.skip(why)
    report.verify(check)


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_what_is_missing_is_told(framework: str) -> None:
    hidden = [framework]
    script = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); import thc.{framework}"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ConfigError" in said.stderr and f"pip install {framework}" in said.stderr, said.stderr


@pytest.mark.parametrize("check", names("checks_deepspeed"))
def test_deepspeed(check: str) -> None:
    """DeepSpeed compiles an extension for the CPU before it does anything, which takes minutes: it is run where somebody has installed it."""
    needs_deepspeed = importlib.util.find_spec("deepspeed") is None or shutil.which("ninja") is None
    if needs_deepspeed:
        pytest.skip("not run: DeepSpeed over the backend thc: Python has no deepspeed (pip install deepspeed ninja, DS_ACCELERATOR=cpu)")
    run("checks_deepspeed", 2, THC_TEST_BACKEND="thc", THC_BACKEND_EVERYWHERE="1", DS_ACCELERATOR="cpu").verify(check)
