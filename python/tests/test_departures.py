"""A rank that leaves tells the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import needs
from crew import free_port
from patience import HANG

needs("torch")

SCRIPT = """
import os, signal, sys, time, torch, torch.nn as nn, torch.distributed as dist, thc, thc.torch
from torch.nn.parallel import DistributedDataParallel as DDP
rank, way = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=3)
options = {"fallback": False} if way == "exit without a fall-back" else {}
model = thc.torch.wrap(DDP(nn.Linear(300, 300)), **options)
if rank == 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for step in range(12):
    if step == 5 and rank == 1:
        if way == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        elif way == "exception":
            raise ValueError("a data loader's")
        sys.exit(0)
    began = time.monotonic()
    try:
        model(torch.randn(4, 300)).sum().backward()
    except thc.MissingError as error:
        assert error.missing == [1] and "rank 1 has left" in str(error) and "after 5 steps" in str(error), error
        print(f"told after {time.monotonic() - began:.1f} s", flush=True)
        # Rank 0 has the store and the server: the others shall have heard, too.
        sys.stdin.read()
        os._exit(0)
"""


@pytest.mark.parametrize("way", ["exit", "SIGTERM", "exception", "exit without a fall-back"])
def test_a_rank_that_leaves_is_missed_by_its_number(way: str) -> None:
    port = str(free_port())
    environment = {key: value for key, value in os.environ.items() if key not in ("MASTER_ADDR", "LOCAL_WORLD_SIZE")} | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(rank), port, way], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=HANG) for rank in reversed(ranks)][::-1]
    for rank in (0, 2):
        assert ranks[rank].returncode == 0 and "told after" in said[rank][0], said
    assert "a data loader's" in said[1][1] if way == "exception" else ranks[1].returncode == 0, said
