"""Help and checks that need what is not here say so at once: nothing is built or installed first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from servers import REPOSITORY

PARTS = ["", "accuracy", "cost", "device"]
COMMANDS = [
    *[f"testbed/bench-torch/run {part} --help" for part in PARTS],
    f"{sys.executable} -S testbed/bench-torch/gradients.py --help",
    "python/tests/run --help",
    "python/tests/run --gpu --help",
]


def run(command: str, folder: Path) -> str:
    """In a target folder that there is not, by a Python that finds no packages."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    target = folder / "target"
    variables = os.environ | {"CARGO_TARGET_DIR": str(target), "PYTHON": str(python), "PYTHONPATH": ""}
    variables.pop("THC_NOT_RUN", None)
    done = subprocess.run(command.split(), cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not target.exists(), f"{command} has made {list(target.iterdir())}"
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, tmp_path: Path) -> None:
    said = run(command, tmp_path)
    assert "--gpu" in said if "tests" in command else said.startswith("usage: "), said


def test_what_a_gpu_can_check_is_not_run_without_one(tmp_path: Path) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("not run: what is said without a GPU: there is one")
    assert run("python/tests/run --gpu", tmp_path) == "not run: no CUDA device\n"
