"""What is compared: ways to average the gradients of `DistributedDataParallel`."""

import os
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

#: Name in results and what it is, in the order of tables.
METHODS = {
    "gloo": "no hook: gloo's all-reduce",
    "fp16": "torch's fp16_compress_hook",
    "bf16": "torch's bf16_compress_hook",
    "powersgd1": "torch's PowerSGD hook, rank 1",
    "powersgd4": "torch's PowerSGD hook, rank 4",
    "thc": "THC",
    "thc-adapt": "THC, each tensor's compression chosen while training",
    "thc-lanes": "THC's sums through gloo, lanes of 8 bits, without a server",
    "thc-raw": "THC's server, nothing compressed",
}

#: Those that are measured when asked for by name.
BY_NAME = ("bf16", "thc-lanes", "thc-raw")

#: The job of the server that a method uses.
JOBS = {"thc": 1, "thc-adapt": 3, "thc-raw": 4}


def powersgd_in_turn(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch's PowerSGD hook, one bucket after the other.

    Its callbacks wait for further all-reduces while they hold a thread of gloo, and start them in the order in which
    they happen to run, so several buckets at once hang on gloo (pytorch/pytorch issue 48478). What this costs is overlap
    with the backward pass; there is little to overlap, since hardly anything is sent.
    """
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(powerSGD_hook(state, bucket).wait())
    return done


@dataclass
class Averaging:
    """Equips models with hooks; all that belongs to one process, shared by its models."""

    server: str | None
    cookie: int
    groups: dict[int, Any] = field(default_factory=dict)

    def attach(self, method: str, ddp: DistributedDataParallel, dense_steps: int) -> None:
        """Registers the hook of `method`. PowerSGD averages the first `dense_steps` without compression, as its
        documentation advises; at least 2."""
        if method == "fp16":
            ddp.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
        elif method == "bf16":
            ddp.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)
        elif method.startswith("powersgd"):
            state = PowerSGDState(dist.group.WORLD, matrix_approximation_rank=int(method.removeprefix("powersgd")),
                                  start_powerSGD_iter=max(2, dense_steps))
            ddp.register_comm_hook(state, powersgd_in_turn)
        elif method in JOBS:
            import thc.torch

            adapt = thc.torch.Adapt(every=40) if method == "thc-adapt" else None
            exclude = ["*"] if method == "thc-raw" else []
            thc.torch.wrap(ddp, group=self.group(method), exclude=exclude, compression=thc.torch.Compression(adapt=adapt))
        elif method == "thc-lanes":
            import thc.torch

            thc.torch.wrap(ddp, over="process-group")
        elif method != "gloo":
            raise ValueError(f"no method {method!r}: one of {', '.join(METHODS)}")

    def group(self, method: str) -> Any:
        """The `thc.Group` of a method, joined when first asked for."""
        import thc

        job = JOBS[method]
        if job not in self.groups:
            self.groups[job] = thc.Group(ps=self.server, job=job, worker=int(os.environ["RANK"]), cookie=self.cookie)
        return self.groups[job]

    def close(self) -> None:
        """Leaves all groups."""
        for group in self.groups.values():
            group.close()
        self.groups.clear()
