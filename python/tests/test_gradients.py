"""Gradients of real architectures: files are as long as the index says, and workers differ."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

from conftest import needs
from patience import HANG
from servers import REPOSITORY

needs("torch", "transformers", "sklearn")


def test_files_are_what_the_index_says(tmp_path: Path) -> None:
    # The smallest model after two steps.
    command = [sys.executable, "testbed/bench-torch/gradients.py", "--models", "vit", "--steps", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    (model,) = json.loads((tmp_path / "index.json").read_text())["models"]
    length = sum(math.prod(tensor["shape"]) for tensor in model["tensors"])
    contents = {}
    for name in ("seen", *(f"worker-{worker}" for worker in range(model["workers"]))):
        contents[name] = (tmp_path / model["folder"] / f"{name}.f32").read_bytes()
        assert len(contents[name]) == 4 * length
    assert len(set(contents.values())) == len(contents)
