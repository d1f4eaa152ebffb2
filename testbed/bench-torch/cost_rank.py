"""One rank of the measurement in `cost`."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import thc.torch
from thc.torch.engine.pipeline import _Stages
from thc.torch.engine.steps import BucketTask

RANKS = 2
WAYS = ("nothing", "gloo", "bf16", "thc", "python")
"""No averaging; torch's hooks of f32 and bf16; THC; THC whose calls of the library do nothing, which leaves Python's own part."""


class OwnTime:
    """The processor time of methods that have been wrapped, on whatever threads; of those that call one another, the outermost counts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._here = threading.local()

    def wrap(self, owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            if getattr(self._here, "is_timed", False):
                return work(*arguments)
            self._here.is_timed, began = True, time.thread_time()
            try:
                return work(*arguments)
            finally:
                self.seconds += time.thread_time() - began
                self._here.is_timed = False

        setattr(owner, name, timed)


class Give(torch.autograd.Function):
    """Has parameters get these gradients."""

    @staticmethod
    def forward(context: Any, given: list[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        context.given = given
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> Any:
        return None, *context.given


class Model(torch.nn.Module):
    """Parameters of these shapes. A rank's gradient is (1 + rank) times what all have, so that the mean is known."""

    def __init__(self, shapes: list[tuple[int, ...]], rank: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
        generator = torch.Generator().manual_seed(5)
        self.rank, self.given = rank, [torch.randn(shape, generator=generator).mul_(1 + rank) for shape in shapes]

    def forward(self) -> torch.Tensor:
        return Give.apply(self.given, *self.weights)

    def error(self) -> float:
        """The squared error of the mean, over the square of the exact one."""
        exact = [(1 + RANKS) / 2 / (1 + self.rank) * each for each in self.given]
        wrong = sum(float((p.grad - e).square().sum()) for p, e in zip(self.weights, exact))
        return wrong / sum(float(e.square().sum()) for e in exact)


class Over:
    """A call that is over."""

    def wait(self) -> None:
        pass


def skip(array: Any, mode: str = "", **_: Any) -> Over:
    """In place of an all-reduce: nothing, but for the ranks' numbers at the end of a step, where the others' are taken for this one's."""
    if mode == "raw":
        array[:] = array.sum() / RANKS
    return Over()


def leave(_: Any, bucket: Any) -> Any:
    """A hook that leaves each rank its gradients."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Measurement:
    """A model, and the hook of each way."""

    def __init__(self, shapes: list[tuple[int, ...]], rank: int, own: OwnTime) -> None:
        self.model, self._own = Model(shapes, rank), own
        self._ddp = DistributedDataParallel(self.model)
        self._state = thc.torch.State(self._ddp)
        self.hook = self._state.connect()
        self._hooks = {"nothing": leave, "gloo": default_hooks.allreduce_hook, "bf16": default_hooks.bf16_compress_hook}
        self._way, self.buckets = "", 0
        self._ddp.register_comm_hook(None, self._average)

    def _average(self, _: Any, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
        self.buckets += 1
        torchs = self._hooks.get(self._way)
        return thc.torch.thc_hook(self._state, bucket) if torchs is None else torchs(None, bucket)

    def step(self, way: str) -> float:
        """Averages one way; the processor time of this process, or of its Python alone."""
        group = self.hook.group
        if way == "python":
            group.allreduce = group.allreduce_async = skip  # type: ignore[method-assign, assignment]
        self._way = way
        dist.barrier()
        began, self._own.seconds, self.buckets = time.process_time(), 0.0, 0
        self.model.zero_grad(set_to_none=True)
        self._ddp().backward()
        took = time.process_time() - began
        if way == "python":
            del group.allreduce, group.allreduce_async
            return self._own.seconds
        return took


def measure(name: str, shapes: list[tuple[int, ...]], rounds: int, rank: int, own: OwnTime) -> dict[str, Any]:
    """A model's row."""
    this = Measurement(shapes, rank, own)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(-2, rounds):
        for way in WAYS:
            took = this.step(way)
            if turn >= 0:
                found[way].append(took)
            elif turn == -1 and way in ("gloo", "bf16", "thc"):
                assert (error := this.model.error()) < 0.05, f"{way}: the squared error of the mean is {error}"
    this.hook.close()
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, found)
    # A step's processor time is that of all ranks, the server's included; the least of the turns counts, since what disturbs one adds to it.
    cpu = {way: min(map(sum, zip(*(one[way] for one in every)))) for way in WAYS}
    return {
        "model": name, "parameters": sum(p.numel() for p in this.model.parameters()), "tensors": len(shapes), "buckets": this.buckets,
        "cpu": {way: cpu[way] - cpu["nothing"] for way in WAYS[1:4]}, "python": cpu["python"] / RANKS / this.buckets,
    }  # fmt: skip


def main(rank: int, port: int, models: Mapping[str, list[tuple[int, ...]]], rounds: int, out: str) -> None:
    """Measures on one of the ranks; the first writes what was found."""
    os.environ |= {"LOCAL_WORLD_SIZE": str(RANKS), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    own = OwnTime()
    for owner, method in ((thc.torch.Hook, "start"), (_Stages, "_advance"), (BucketTask, "wait")):
        own.wrap(owner, method)
    rows = [measure(name, shapes, rounds, rank, own) for name, shapes in models.items()]
    if rank == 0:
        Path(out).write_text(json.dumps(rows, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()
