"""One rank: a model whose gradients are ready when an accelerator would have them, and DistributedDataParallel with a way to average them.

The gradients lie in DDP's buckets from the first step on, so that a backward pass has nothing to compute, copy or add: it sleeps, and tells DDP of one
layer after the other. What DDP and its hooks do with the buckets is real.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

from accelerator.shapes import MODELS, Model
from methods import powersgd_in_turn

SETTLE = 4
"""First steps of each way: DDP makes its final buckets, PowerSGD and THC compress from the second or third on."""


class Schedule:
    """When layers are ready in the step under way."""

    def __init__(self) -> None:
        self._due = 0.0
        self.computes = True

    def begin(self) -> None:
        self._due = time.perf_counter()

    def compute(self, seconds: float) -> None:
        """An accelerator goes on whatever the host does: what comes late is not made up for by waiting less than it computes."""
        if not self.computes:
            return
        self._due += seconds
        left = self._due - time.perf_counter()
        if left > 0:
            time.sleep(left)


class _Layer(torch.autograd.Function):
    """A layer of which autograd knows only when it is ready."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, schedule: Schedule, forward: float, backward: float, *parameters: torch.Tensor) -> torch.Tensor:
        schedule.compute(forward)
        ctx.schedule, ctx.seconds, ctx.parameters = schedule, backward, len(parameters)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.schedule.compute(ctx.seconds)
        # No gradients: those in the buckets stay, and DDP hears that they are ready all the same.
        return (gradients[0], None, None, None, *[None] * ctx.parameters)


class StandIn(nn.Module):
    """Computes nothing for as long as the model would."""

    def __init__(self, model: Model, schedule: Schedule) -> None:
        super().__init__()
        self._model, self._schedule = model, schedule
        self.layers = nn.ModuleList(nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in layer.shapes) for layer in model.layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, parameters in zip(self._model.layers, self.layers):
            x = _Layer.apply(x, self._schedule, self._model.forward(layer), self._model.backward(layer), *parameters)
        return x.sum()


class Way:
    """A way to average, in its own DDP."""

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.schedule = Schedule()
        self.module = StandIn(model, self.schedule)
        self.ddp = DistributedDataParallel(self.module, gradient_as_bucket_view=True)
        self.hook: Any = None
        if name == "bf16":
            self.ddp.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)
        elif name.startswith("powersgd"):
            rank = int(name.removeprefix("powersgd"))
            self.ddp.register_comm_hook(PowerSGDState(dist.group.WORLD, matrix_approximation_rank=rank, start_powerSGD_iter=2), powersgd_in_turn)
        elif name.startswith("thc"):
            import thc.torch

            options: dict[str, Any] = {"thc": {}, "thc-lanes": {"over": "process-group"}, "thc-faster": {"only_if_faster": True}}[name]
            self.hook = thc.torch.hook_of(thc.torch.wrap(self.ddp, threads=1, **options))
        self.schedule.computes = False
        self.step()
        # DDP has made its buckets anew before the second step.
        self.step()
        generator = torch.Generator().manual_seed(dist.get_rank())
        for parameter in self.module.parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(torch.randn(parameter.shape, generator=generator))
        for _ in range(SETTLE - 2):
            self.step()
        while self.hook is not None and name == "thc-faster" and self.hook.comparison is None:
            self.schedule.computes = True
            self.step()
        self.schedule.computes = True

    def step(self) -> float:
        """Seconds of one."""
        dist.barrier()
        began = time.perf_counter()
        self.schedule.begin()
        self.ddp(torch.ones(1, requires_grad=True)).backward()
        return time.perf_counter() - began

    def communication_time(self) -> float:
        """Seconds of communication with nothing to hide behind."""
        self.schedule.computes = False
        seconds = self.step()
        self.schedule.computes = True
        return seconds

    def agrees(self) -> bool:
        """Whether gradients are numbers, and the same on all ranks."""
        mine = torch.stack([parameter.grad.double().square().sum() for parameter in self.module.parameters() if parameter.grad is not None])
        least, most = mine.clone(), mine.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return bool(torch.isfinite(mine).all()) and bool((mine > 0).all()) and bool(torch.equal(least, most))

    def close(self) -> None:
        if self.hook is not None:
            self.hook.group.close()


def work(part: dict[str, Any]) -> None:
    """Each way in turn beside no hook; the first rank writes what was measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    model = MODELS[part["model"]](part["part"])
    base = Way("gloo", model)
    found: dict[str, Any] = {"parameters": model.parameters, "computing": model.seconds, "ways": {}}
    for name in part["ways"]:
        way = Way(name, model)
        each = {one.name: {"seconds": [], "alone": [], "cpu": 0.0} for one in (base, way)}
        for turn in range(part["rounds"]):
            for one in (base, way) if turn % 2 == 0 else (way, base):
                record, started = each[one.name], time.process_time()
                record["seconds"].append(one.step())
                record["cpu"] += (time.process_time() - started) / part["rounds"]
                record["alone"].append(one.communication_time())
        if not way.agrees():
            raise SystemExit(f"{name}: ranks differ, or have no numbers")
        compared = None if way.hook is None else way.hook.comparison
        found["ways"][name] = {"own": each[name], "base": each[base.name], "compresses": None if compared is None else compared.compresses}
        way.close()
        del way
        gc.collect()
    if dist.get_rank() == 0:
        Path(part["report"]).write_text(json.dumps(found))
    dist.barrier()
    # Nothing is left to agree on.
    os._exit(0)
