"""What checks packaging/ for clusters: `.ci/cluster-tools` installs it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import HANG
from servers import REPOSITORY

PACKAGING = REPOSITORY / "packaging"
CHART = PACKAGING / "helm" / "thc"


def tool(name: str) -> Path:
    """One of its programs; skips what cannot run without."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "cluster-tools"
    if not (folder / "complete").exists():
        pytest.skip(f"not run: {name} of .ci/cluster-tools is not installed")
    return folder / "bin" / name


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(tool("helm")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG)


def render(*arguments: object) -> list[dict[str, Any]]:
    """The resources that the chart makes."""
    import yaml

    done = helm("template", "thc", CHART, *arguments)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def resources_of_kind(resources: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """By name."""
    return {each["metadata"]["name"]: each for each in resources if each["kind"] == kind}


# Reads resources as YAML, makes models of them and back, and prints what is left of each: an unknown field is not.
THROUGH_MODELS = """
import json, sys, yaml
from cloudcoil.models.prometheus_operator import v1 as monitoring

def round_trip(resource):
    model = getattr(monitoring, resource["kind"]).model_validate(resource)
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))

json.dump([round_trip(each) for each in yaml.safe_load_all(sys.stdin) if each], sys.stdout)
"""


def through_models(resources: str) -> Any:
    """Custom resources, as the models of their operators understand them."""
    command = [str(tool("python")), "-c", THROUGH_MODELS]
    done = subprocess.run(command, input=resources, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def until_connected(list_targets: Callable[[], subprocess.CompletedProcess[str]]) -> None:
    """Waits until a controller's one target is there: `list_targets` is `thc-controller target list --json`."""
    began = time.monotonic()
    while not ((said := list_targets()).returncode == 0 and json.loads(said.stdout)["targets"][0].get("connected")):
        assert time.monotonic() - began < HANG, said
        time.sleep(0.1)


def scripts() -> Iterator[Path]:
    """All shell scripts of the project that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        path = REPOSITORY / name
        if name and path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                first = file.readline()
            if first.startswith(b"#!") and first.split()[-1].rpartition(b"/")[2] in (b"sh", b"bash"):
                yield path
