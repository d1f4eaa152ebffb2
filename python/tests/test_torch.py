"""`thc.torch` in real processes with real gloo and a real parameter server, checks of `checks_*.py` on crews."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import RELEASE, needs, newest_has
from crew import Crews, free_port, names, run

needs("torch")

# Processes of each: what a group of two cannot show is done by three or four.
CREWS = [
    ("checks_hook", 2), ("checks_hook", 3), ("checks_loss", 2), ("checks_loss", 3), ("checks_adapt", 2),
    ("checks_training", 2), ("checks_outer", 2), ("checks_overlap", 2), ("checks_replicate", 4), ("checks_subgroups", 4),
    ("checks_device", 2), ("checks_collective", 2), ("checks_collective", 3), ("checks_blocks", 2), ("checks_blocks", 3),
    ("checks_replicas", 2), ("checks_replicas", 3), ("checks_automatic", 2), ("checks_method", 2), ("checks_faults", 2), ("checks_faults", 3),
]  # fmt: skip
# Where both are run, the numbers of processes are divided between the oldest PyTorch (the least) and the newest (the others), so
# that each check is done with both versions and by each number once.
if RELEASE is not None:
    end = max if RELEASE == "newest" else min
    CREWS = [(module, workers) for module, workers in CREWS if workers == end(size for name, size in CREWS if name == module)]
CASES = [(module, workers, check) for module, workers in CREWS for check in names(module)]


@pytest.mark.parametrize(("module", "workers", "check"), CASES)
def test_ranks(crews: Crews, module: str, workers: int, check: str) -> None:
    report = crews.report((module, workers), check, lambda: run(module, workers))
    if why := report.skip_reason(check):
        if why.startswith("not run: this torch has no"):
            newest_has("what it needs is")
        pytest.skip(why)
    report.verify(check)


@pytest.mark.parametrize("ending", ["", "raise SystemExit('as it should be')", "raise ValueError('as it should be')"])
def test_a_group_left_open_at_the_end_of_a_program(ending: str) -> None:
    script = f"""
import torch.distributed as dist
import thc.torch
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
group = thc.torch.CollectiveGroup()
{ending}
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"})
    assert "AttributeError" not in said.stderr and "Exception ignored" not in said.stderr, said.stderr
    assert "as it should be" in said.stderr if ending else not said.returncode, said.stderr
