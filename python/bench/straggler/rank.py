"""A rank of a run: it trains until the time is over; rank 0 keeps its parameters by the clock, and measures their losses afterwards."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import thc
import thc.torch
from problems import Digits, Problem, Text

EVERY = 8
"""Steps of a rank between two averages of parameters, and of an outer step."""
BETAS = (0.9, 0.99)


def _problem(model: str) -> Problem:
    """What a model's name in ``command.MODELS`` stands for."""
    if model == "cnn":
        return Digits(batch=16, held_out=True)
    return Text(648 if model == "transformer" else 64, rows=4, evaluated=64, held_out=True, std=0.02)


@dataclass
class Way:
    """How a rank trains."""

    trained: nn.Module
    optimizer: Any
    ahead: int
    """How many steps a rank may be ahead of another, and more; 0: ranks end by themselves."""
    batches: Callable[[Iterable[int]], Iterator[int]] = iter
    stepped: Callable[[], Any] = lambda: None
    """After each step."""
    settle: Callable[[], Any] = lambda: None
    """Before the last parameters are read."""
    finish: Callable[[], Any] = lambda: None
    close: list[Callable[[], Any]] = field(default_factory=list)
    counts: Callable[[], dict[str, Any]] = dict
    mean: bool = False
    """Whether what training has come to is the mean of the ranks' parameters."""


def _asynchronous(order: dict[str, Any], rank: int, module: nn.Module) -> Way:
    server = thc.ModelServer(order["secret"]) if rank == 0 else None
    box = [server.address if server else ""]
    dist.broadcast_object_list(box)
    size = order["workers"]
    model = thc.Asynchronous(
        box[0], thc.torch.tensors(module), order["rate"], adam=BETAS, secret=order["secret"], worker=rank, workers=size, bits=8,
        overlap=order["model"] == "transformer", delay=8 * size, seed=order["seed"],
    )  # fmt: skip
    optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)

    def counts() -> dict[str, Any]:
        stats = model.stats()
        return {"longest_delay": stats["longest_delay"], "late": optimizer.late}

    close: list[Callable[[], Any]] = [model.close, dist.barrier]
    return Way(module, optimizer, 0, settle=optimizer.settle, close=close + ([server.close] if server else []), counts=counts)


def _synchronous(order: dict[str, Any], module: nn.Module, quorum: int | None) -> Way:
    server = {} if quorum is None else {"server": {"quorum": quorum}}
    ddp = thc.torch.wrap(DistributedDataParallel(module, broadcast_buffers=False), **server)
    optimizer = torch.optim.Adam(module.parameters(), order["rate"], betas=BETAS)
    close = [thc.torch.hook_of(ddp).group.close]
    if quorum is None:
        return Way(ddp, optimizer, 2, close=close)
    keep = thc.torch.keep_up(ddp, optimizer)
    counts = lambda: {"skipped": keep.skipped, "meetings": keep.meetings}  # noqa: E731
    return Way(ddp, optimizer, EVERY, keep.steps, finish=keep.finish, close=close, counts=counts)


def _way(order: dict[str, Any], rank: int, module: nn.Module) -> Way:
    match order["way"]:
        case "async":
            return _asynchronous(order, rank, module)
        case "sync":
            return _synchronous(order, module, None)
        case "quorum":
            return _synchronous(order, module, order["workers"] - 1)
    optimizer = torch.optim.Adam(module.parameters(), order["rate"], betas=BETAS)
    if order["way"] == "outer":
        loop = thc.torch.outer(module, optimizer, every=EVERY)
        return Way(module, optimizer, 3 * EVERY, finish=loop.finish, close=[loop.group.close], mean=True)
    averager = PeriodicModelAverager(period=EVERY)
    return Way(module, optimizer, 2 * EVERY, stepped=lambda: averager.average_parameters(module.parameters()), mean=True)


class End:
    """When ranks end. Where they wait for one another, rank 0 says the step, which nobody has reached."""

    def __init__(self, rank: int, seconds: float, ahead: int) -> None:
        self._store = dist.distributed_c10d._get_default_store()
        self._rank, self._seconds, self._ahead = rank, seconds, ahead
        self._last: int | None = None
        self.began = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.began

    @property
    def is_over(self) -> bool:
        """Whether the time is."""
        return self.elapsed >= self._seconds

    def is_past(self, step: int) -> bool:
        """Whether a step, from 0, is one more than all ranks make."""
        if not self._ahead:
            return self.is_over
        if self._last is None:
            if self._rank == 0 and self.is_over:
                self._last = step + self._ahead
                self._store.set("last step", str(self._last))
            elif self._rank != 0 and self._store.check(["last step"]):
                self._last = int(self._store.get("last step"))
        return self._last is not None and step >= self._last


def _copy(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def work(order: dict[str, Any], rank: int, port: int, report: str) -> None:
    """All of a rank; rank 0 writes what it has found to a file."""
    size, seconds = order["workers"], order["seconds"]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    task = _problem(order["model"])
    torch.manual_seed(order["seed"])
    module = task.module()
    way = _way(order, rank, module)
    generator = torch.Generator().manual_seed(1000 * order["seed"] + rank)
    slower = order["slow"] if rank == size - 1 else 1.0
    dist.barrier()
    end = End(rank, seconds, way.ahead)
    kept = [(0.0, _copy(module))]
    last: list[torch.Tensor] | None = None
    own, computed = 0, 0.0

    def numbers() -> Iterator[int]:
        for step in itertools.count():
            if end.is_past(step):
                return
            yield step

    for _ in way.batches(numbers()):
        over = end.is_over
        if over and last is None:
            last = _copy(module)
        # Averages are of parameters that have a gradient.
        way.optimizer.zero_grad(set_to_none=not over)
        # Once the time is over, ranks only end what they have begun together.
        if not (over and way.mean):
            began = time.perf_counter()
            loss = task.loss(way.trained, generator)
            # Backward takes twice as long as forward, about; its own time has the waiting for others in it.
            own_time = 3 * (time.perf_counter() - began)
            gradient = max(order["pace"], own_time)
            if not over:
                time.sleep(max(0.0, slower * gradient - own_time))
            loss.backward()
        way.optimizer.step()
        way.stepped()
        if over:
            continue
        own, computed = own + 1, computed + gradient
        if rank == 0 and end.elapsed - kept[-1][0] >= seconds / order["evaluations"]:
            kept.append((end.elapsed, _copy(module)))
    way.finish()
    if last is None:
        way.settle()
        last = _copy(module)
    if way.mean:
        for numbers_of_rank in last:
            dist.all_reduce(numbers_of_rank)
            numbers_of_rank.div_(size)
    counts: list[Any] = [None] * size
    dist.all_gather_object(counts, {"steps": own, "gradient": computed / max(1, own), **way.counts()})
    if rank == 0:
        _write(Path(report), task, module, [*kept, (seconds, last)], counts)
    dist.barrier()
    for close in way.close:
        close()
    dist.barrier()
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


def _write(report: Path, task: Any, module: nn.Module, kept: list[Any], counts: list[Any]) -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    points = []
    with torch.no_grad():
        for seconds, parameters in kept:
            for own, then in zip(module.parameters(), parameters):
                own.copy_(then)
            points.append([round(seconds, 3), task.held_out_loss(module)])
    report.write_text(json.dumps({"parameters": sum(p.numel() for p in module.parameters()), "points": points, "ranks": counts}))
