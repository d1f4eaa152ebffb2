"""Ranks that no torchrun has started: two network namespaces, and `init_method="tcp://…"` in place of variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import needs, run_ranks
from crew import free_port
from namespaces import Network, NotPossible
from patience import HANG

needs("torch")

SCRIPT = """
import sys, time, torch, torch.nn as nn, torch.distributed as dist, thc, thc.torch
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
began = time.monotonic()
model = thc.torch.wrap(DDP(nn.Linear(300, 300)))
hook = thc.torch.hook_of(model)
for step in range(2):
    model(torch.randn(4, 300)).sum().backward()
assert not hook.fallback_active and hook.engine.fallback.counters._counters._store is not None, "ranks cannot warn each other"
assert hook.group.server is not None, "each host has a share"
took = time.monotonic() - began
dist.barrier()
print(f"{took:.1f} s")
"""


def test_two_hosts_without_variables() -> None:
    try:
        with Network(2) as network:
            environment = {key: value for key, value in os.environ.items() if not key.startswith(("THC_", "MASTER_", "WORLD", "LOCAL_")) or "PROGRAM" in key}
            environment |= {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            ranks = [
                subprocess.Popen(
                    [*network.prefix(f"w{rank}"), sys.executable, "-c", SCRIPT, str(rank), f"tcp://{network.worker(0)}:29500"],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
                for rank in range(2)
            ]  # fmt: skip
            said = [rank.communicate(timeout=HANG) for rank in ranks]
    except NotPossible as error:
        pytest.skip(f"not run: {error}")
    assert [rank.returncode for rank in ranks] == [0, 0], said


LAZY = """
import torch, torch.nn as nn, torch.distributed as dist, thc, thc.torch
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group()
torch.manual_seed(0)
model = thc.torch.wrap(DDP(nn.Linear(300, 300)))
torch.manual_seed(dist.get_rank())
model(torch.randn(4, 300)).sum().backward()
mean = model.module.weight.grad.clone()
dist.broadcast(mean, 0)
assert torch.equal(mean, model.module.weight.grad)
assert not thc.torch.hook_of(model).fallback_active
print(dist.get_backend())
"""


def test_a_process_group_without_a_named_backend() -> None:
    """torch chooses a backend for each kind of device, and names none."""
    said = run_ranks(LAZY, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    assert {out.strip() for out, _ in said} <= {"undefined", "gloo"}, said
