"""The group of a rank that is alone, and what one on rails sees of its server."""

from __future__ import annotations

import subprocess
import sys
import typing
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import needs
from crew import free_port

needs("torch")

import thc.torch  # noqa: E402
from thc.torch.hosts.rails import RailGroup  # noqa: E402
from thc.torch.ranks.health import ServerProbe  # noqa: E402


class _Rail:
    """A rail whose server comes back."""

    server = ps = job_number = None
    sums_in_lanes = False
    method = "default"

    def __init__(self) -> None:
        self.asked = 0

    def find_server(self, patience: float | str) -> bool:
        self.asked += 1
        return self.asked > 1

    def _leave(self, linger: float) -> None:
        pass


def test_ranks_on_rails_see_that_their_server_is_back() -> None:
    rail: Any = _Rail()
    group = RailGroup(rail, SimpleNamespace(place=0), SimpleNamespace(ranks=[[0], [1]]), 0)  # type: ignore[arg-type]
    probe = ServerProbe(group)
    probe.look()
    assert not probe.sees_server
    probe.look()
    assert probe.sees_server and rail.asked == 2


SCRIPT = """
import os, sys, torch, torch.nn as nn, torch.distributed as dist, thc, thc.torch
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:PORT", rank=0, world_size=1)
OPTIONS = dict(OPTIONS)
servers = []
made = thc.Server.__init__
thc.Server.__init__ = lambda self, *a, **o: (servers.append(self), made(self, *a, **o))[1]
torch.manual_seed(0)
net = nn.Linear(300, 300)
model = thc.torch.wrap(DDP(net), **OPTIONS)
hook = thc.torch.hook_of(model)
for step in range(3):
    x = torch.randn(4, 300)
    exact = torch.autograd.grad(net(x).square().sum(), net.weight)[0]
    model.zero_grad()
    model(x).square().sum().backward()
    assert torch.equal(net.weight.grad, exact), (net.weight.grad - exact).norm()
model.zero_grad()
model(torch.full((1, 300), float("inf"))).sum().backward()
assert hook.skipped and hook.steps == 4 and not hook.fallback_active and not servers and hook.group.server is None
hook.load_state_dict(hook.state_dict())
assert repr(hook) == "<thc.torch.Hook of <thc.torch, one rank alone>>", hook
print(hook.group.stats().calls, hook.device)
"""


COMPRESSIONS = ["lane=8", "feedback=False", "adapt=thc.torch.Adapt()"]


@pytest.mark.parametrize("options", ["", "over='process-group'", *[f"compression=thc.torch.Compression({each})" for each in COMPRESSIONS]])
def test_one_rank_averages_exactly_and_starts_no_server(options: str) -> None:
    script = SCRIPT.replace("PORT", str(free_port())).replace("dict(OPTIONS)", f"dict({options})")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_hints_are_types_that_programs_can_read() -> None:
    for function in (thc.torch.wrap, thc.torch.outer, thc.torch.overlap, thc.torch.replicate):
        typing.get_type_hints(function)
