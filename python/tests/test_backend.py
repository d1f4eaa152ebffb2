"""The backend "thc" of torch.distributed on crews of real processes; checks of `checks_backend*.py`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs, newest_has
from crew import Crews, free_port, names, run

needs("torch")
newest_has("a backend in Python is")

# Modules, processes, and of which backend all of them together are a group.
CREWS = [("checks_backend", 4, "gloo"), ("checks_backend", 3, "thc"), ("checks_backend_training", 4, "gloo"), ("checks_backend_training", 2, "thc")]
CASES = [(*crew, check) for crew in CREWS for check in names(crew[0])]


@pytest.mark.parametrize(("module", "workers", "world", "check"), CASES)
def test_ranks(crews: Crews, module: str, workers: int, world: str, check: str) -> None:
    report = crews.report((module, world), check, lambda: run(module, workers, THC_TEST_BACKEND=world))
    if why := report.skip_reason(check):
        pytest.skip(why)
    report.verify(check)


def test_torch_finds_it_without_an_import() -> None:
    """The package's entry point registers it, where torch looks for one."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["torch.distributed.backends"].items()
    importlib.metadata.EntryPoint(name, value, "torch.distributed.backends").load()()
    import torch.distributed as dist

    assert name == "thc" and "THC" in dist.Backend._plugins


def test_a_program_of_one_rank() -> None:
    """There is nothing to add up, and nothing to say at its end."""
    script = f"""
import torch, torch.distributed as dist
import thc.torch
dist.init_process_group("cpu:thc", init_method="tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
tensor = torch.randn(100_000)
before = tensor.clone()
dist.all_reduce(tensor)
assert torch.equal(tensor, before)
dist.destroy_process_group()
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"})
    assert said.returncode == 0 and "Traceback" not in said.stderr, said.stderr
