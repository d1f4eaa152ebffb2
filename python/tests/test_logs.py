"""What the package reports on stderr, and how much of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import thc
from conftest import needs, run_ranks
from crew import free_port

PROGRAM = """
import sys
import torch
import torch.distributed as dist
import thc.torch
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
model = thc.torch.wrap(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300)), over="process-group")
for _ in range(2):
    model(torch.ones(2, 300)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("level", "lines"), [(None, 1), ("info", 1), ("warn", 0), ("off", 0)])
def test_rank_0_says_once_how_gradients_travel(level: str | None, lines: int) -> None:
    needs("torch")
    said = run_ranks(PROGRAM, str(free_port()), **({} if level is None else {"THC_LOG": level}))
    assert [error.count("gradients on cpu are compressed by cpu") for _, error in said] == [lines, 0], said


def test_one_level_for_the_package_and_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("thc")
    before = logger.level
    try:
        thc.log("debug")
        assert logger.getEffectiveLevel() == logging.DEBUG
        thc.log("warn")
        assert logger.getEffectiveLevel() == logging.WARNING
        with pytest.raises(thc.ConfigError, match="write one of off, error, warn"):
            thc.log("loud")
    finally:
        logger.setLevel(before)


def test_the_library_reports_from_the_level_on() -> None:
    script = """
import thc
server = thc.Server(1, 5, job=1)
for level in ("info", "warn"):
    thc.log(level)
    print(level, flush=True)
    thc.Group(server.address, 1, 0, 5).close()
"""
    variables = {key: value for key, value in os.environ.items() if key != "THC_LOG"}
    said = subprocess.run([sys.executable, "-u", "-c", script], capture_output=True, text=True, env=variables, check=True)
    assert "INFO" in said.stderr and said.stderr.count("INFO") < 30, said.stderr
