"""Gradients of real architectures: files are as long as the index says, workers differ, and the same seed gives the same again."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from servers import REPOSITORY

pytest.importorskip("transformers")
pytest.importorskip("sklearn")


def make(folder: Path) -> dict[str, object]:
    """The smallest model after two steps."""
    command = [sys.executable, "python/bench/gradients.py", "--models", "vit", "--steps", "2", "--out", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    index = json.loads((folder / "index.json").read_text())
    assert isinstance(index, dict)
    return index


def test_files_are_what_the_index_says(tmp_path: Path) -> None:
    index = make(tmp_path / "one")
    (model,) = index["models"]  # type: ignore[misc]
    length = sum(math.prod(tensor["shape"]) for tensor in model["tensors"])
    contents = {}
    for name in ("seen", *(f"worker-{worker}" for worker in range(model["workers"]))):
        contents[name] = (tmp_path / "one" / model["folder"] / f"{name}.f32").read_bytes()
        assert len(contents[name]) == 4 * length
        assert model["sha256"][name] == hashlib.sha256(contents[name]).hexdigest()
    assert len(set(contents.values())) == len(contents)
    assert make(tmp_path / "two")["models"] == index["models"]
