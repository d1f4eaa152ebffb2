"""One training process. It is started by `crew`, takes commands as lines of JSON on standard input, and answers
each with one line on standard output. All processes of a crew get the same commands in the same order."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from methods import Averaging
from model import SHAPES, Shape, Text, build

HELD_OUT = 512


class Run:
    """A model in training under one method."""

    def __init__(self, averaging: Averaging, text: Text, method: str, shape: Shape, seed: int, dense_steps: int):
        self.text, self.shape, self.seed = text, shape, seed
        self.rank = dist.get_rank()
        self.module: nn.Module = build(shape, text, seed)
        self.optimizer = torch.optim.SGD(self.module.parameters(), shape.rate)
        self.ddp = DistributedDataParallel(self.module, gradient_as_bucket_view=True)
        averaging.attach(method, self.ddp, dense_steps)
        self.done = 0

    def step(self) -> float:
        """One step on the next batch; its loss here."""
        contexts, targets = self.text.batch(self.seed, self.done, self.rank, self.shape.batch)
        loss = functional.cross_entropy(self.ddp(contexts), targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return float(loss.detach())

    def settle(self) -> None:
        """With a hook that chooses: measures the link and lets it choose."""
        import thc.torch

        hook = thc.torch.hook_of(self.ddp)
        hook.engine.ask(lambda: hook.engine.adaptive.restart(hook.steps))
        plans = len(hook.plans)
        while len(hook.plans) == plans:
            self.step()

    def held_out(self) -> float:
        """Loss on the part of the text that is not trained on."""
        with torch.no_grad():
            contexts, targets = self.text.held_out(HELD_OUT)
            return float(functional.cross_entropy(self.module(contexts), targets))


def status(key: str) -> float:
    """A line of /proc/self/status, in MiB."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    raise KeyError(key)


class Trainer:
    """Carries out commands."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.averaging = Averaging(settings["server"], settings["cookie"])
        self.text = Text()
        self.paced: dict[tuple[str, str], Run] = {}

    def pace(self, model: str, methods: list[str], rounds: int, warmup: int, steps: int) -> dict[str, Any]:
        """Durations of steps. Methods take turns, so that what else happens on the machine hits all alike."""
        shape = SHAPES[model]
        for method in methods:
            if method == "thc-adapt" and (model, method) in self.paced:
                # Another link: it measures anew.
                self.paced[model, method].settle()
            if (model, method) not in self.paced:
                run = self.paced[model, method] = Run(self.averaging, self.text, method, shape, 0, 2)
                # Two steps before PowerSGD compresses and DDP has its final buckets, one with both.
                for _ in range(3):
                    run.step()
                if method == "thc-adapt":
                    run.settle()
        out: dict[str, dict[str, Any]] = {m: {"seconds": []} for m in methods}
        for turn in range(rounds):
            for method in methods[turn % len(methods):] + methods[:turn % len(methods)]:
                run, record = self.paced[model, method], out[method]
                for _ in range(warmup):
                    run.step()
                dist.barrier()
                for _ in range(steps):
                    started = time.perf_counter()
                    run.step()
                    record["seconds"].append(time.perf_counter() - started)
                dist.barrier()
        return out

    def train(self, model: str, method: str, seed: int, steps: int, every: int) -> dict[str, Any]:
        """A training run: held-out loss each `every` steps, over time and steps. The clock stands still meanwhile."""
        run = Run(self.averaging, self.text, method, SHAPES[model], seed, steps // 10)
        first = [(0, 0.0, run.held_out())]
        points, losses, clock = first, [], 0.0
        dist.barrier()
        started = time.perf_counter()
        for step in range(1, steps + 1):
            losses.append(run.step())
            if step % every == 0 or step == steps:
                clock += time.perf_counter() - started
                points.append((step, clock, run.held_out()))
                dist.barrier()
                started = time.perf_counter()
        # Whether the processes still have the same parameters.
        digest = torch.tensor([sum(float(p.detach().double().sum()) for p in run.ddp.parameters())], dtype=torch.float64)
        low, high = digest.clone(), digest.clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        del run
        gc.collect()
        return {"points": points, "losses": losses, "in_step": bool(low == high)}

    def memory(self, model: str, method: str, steps: int) -> dict[str, Any]:
        """Memory of this process in MiB after `steps`: the peak, what it is then, and what it was before there was
        a model."""
        before = status("VmRSS")
        run = Run(self.averaging, self.text, method, SHAPES[model], 0, 2)
        parameters = sum(p.numel() for p in run.ddp.parameters())
        for _ in range(steps):
            run.step()
        return {"before": before, "peak": status("VmHWM"), "steady": status("VmRSS"), "gradient": parameters * 4 / 2**20}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Does what `command` says."""
        action = getattr(self, command.pop("do"))
        return action(**command)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    settings = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    trainer = Trainer(settings)
    print(json.dumps({"parameters": {name: sum(p.numel() for p in build(shape, trainer.text, 0).parameters())
                                     for name, shape in SHAPES.items()}}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = trainer.answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
        if "error" in answer:
            os._exit(1)
    trainer.averaging.close()
    # The others may have ended already; there is nothing to agree on any more.
    os._exit(0)


if __name__ == "__main__":
    main()
