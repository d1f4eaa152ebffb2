"""Workers of unequal speed: synchronous THC against the asynchronous optimizer, to the same loss.

    make bench-async                                     # both models, some minutes each
    target/python-venv-newest/bin/python testbed/bench-torch/unequal.py --model transformer --rates 0.2,0.5 --seconds 60

Every gradient takes `--pace` seconds at least, on the last worker `--slow` times as many: what is computed is computed, the
rest is slept, so that several workers fit on few cores and their pace does not depend on who else uses them. Each method is
tried with each rate, and the rate that reaches the target first is kept, as the paper of double quantization tunes.
All methods are plain SGD; "momentum" is the synchronous one with what the asynchronous cannot have.

`--virtual` computes the same in one process, where only the time is made up: a gradient takes exactly its pace, and
what is exchanged, by the same servers and at the same precision, takes none. What others do on the machine does not matter then.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arguments import among, number, several

MODELS = ("resnet", "transformer")
METHODS = {
    "sync": "synchronous THC",
    "sync-momentum": "synchronous THC, momentum 0.9",
    "async": "asynchronous, 8 bits down, 4 up",
    "async-full": "asynchronous, floats",
}


def read() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="resnet", help="what is trained (%(default)s)")
    parser.add_argument("--methods", type=among(METHODS), default=",".join(METHODS), help="methods, separated by commas (%(default)s)")
    parser.add_argument("--rates", type=several(number(float, 0, above=True)), default="0.05,0.1,0.2,0.4", help="learning rates to try for each method (%(default)s)")
    parser.add_argument("--workers", type=number(int, 1), default=4, help="processes (%(default)s)")
    parser.add_argument("--slow", type=number(float, 1), default=4.0, help="how much slower the last one is (%(default)s)")
    parser.add_argument("--pace", type=number(float, 0), default=0.06, help="seconds that a gradient takes (%(default)s)")
    parser.add_argument("--seconds", type=number(float, 0, above=True), default=40.0, help="seconds of each run (%(default)s)")
    parser.add_argument("--target", type=float, help="the loss to reach (resnet 0.05, transformer 2.5)")
    parser.add_argument("--seed", type=int, default=1, help="seed of parameters and batches (%(default)s)")
    parser.add_argument("--virtual", action="store_true", help="run in one process and in virtual time")
    parser.add_argument("--out", type=Path, help="file for all runs, as JSON")
    parser.add_argument("--plot", type=Path, help="file for a picture of the best runs")
    return parser.parse_args()


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    # Before what takes seconds to import, and may not be installed.
    read()

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thc.torch
from problems import Digits, Problem, Text


PROBLEMS: dict[str, Callable[[], Problem]] = {"resnet": Digits, "transformer": Text}
TARGETS = {"resnet": 0.05, "transformer": 2.5}


def train(order: dict[str, Any]) -> None:
    """A worker process: trains for the seconds ordered; rank 0 prints times, losses and bits."""
    rank, size, method, rate = order["rank"], order["workers"], order["method"], order["rate"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{order['meeting']}", rank=rank, world_size=size)
    problem = PROBLEMS[order["model"]]()
    torch.manual_seed(order["seed"])
    module = problem.module()
    pace = order["pace"] * (order["slow"] if rank == size - 1 else 1.0)
    batches = torch.Generator().manual_seed(1000 * order["seed"] + rank)
    server = model = None
    optimizer: Any
    ddp: nn.Module = module
    if method.startswith("sync"):
        group = thc.Group.local(rank, size, store=dist.distributed_c10d._get_default_store())
        ddp = thc.torch.wrap(DistributedDataParallel(module), group)
        optimizer = torch.optim.SGD(ddp.parameters(), rate, momentum=0.9 if method.endswith("momentum") else 0.0)
    else:
        server = thc.ModelServer(order["secret"]) if rank == 0 else None
        box = [server.address if server else ""]
        dist.broadcast_object_list(box)
        model, optimizer = join_model("model", size, rank, box[0], order["secret"], method, rate, order["seed"], module)
    dist.barrier()
    began, steps, kept = time.perf_counter(), 0, []

    def keep() -> None:
        if rank == 0:
            kept.append((time.perf_counter() - began, [p.detach().clone() for p in module.parameters()]))

    keep()
    while True:
        loss_began = time.perf_counter()
        loss = problem.loss(ddp, batches)
        forward = time.perf_counter() - loss_began
        # Backward takes twice as long as forward, about.
        time.sleep(max(0.0, pace - 3 * forward))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        passed = time.perf_counter() - began
        if kept and passed - kept[-1][0] >= order["seconds"] / 120:
            keep()
        if method.startswith("sync"):
            # All must end with the same step.
            if steps >= order["seconds"] / (order["pace"] * order["slow"]):
                break
        elif passed >= order["seconds"]:
            break
    longest = model.stats()["longest_delay"] if model else 0
    sent = 0
    if model:
        stats = model.stats()
        sent = stats["pulled_bits"] + stats["pushed_bits"]
    counts: list[Any] = [None] * size
    dist.all_gather_object(counts, (steps, longest, sent))
    if rank == 0:
        points = []
        with torch.no_grad():
            for seconds, parameters in kept:
                for own, then in zip(module.parameters(), parameters):
                    own.copy_(then)
                points.append((seconds, problem.held_out_loss(module)))
        print(json.dumps({"method": method, "rate": rate, "points": points, "steps": [c[0] for c in counts],
                          "longest_delay": max(c[1] for c in counts), "bits": sum(c[2] for c in counts),
                          "parameters": sum(p.numel() for p in module.parameters())}), flush=True)
    dist.barrier()
    if model:
        model.close()
    if server:
        server.close()


def join_model(model: str, size: int, rank: int, address: str, secret: str, method: str, rate: float, seed: int,
           module: nn.Module) -> tuple[thc.Asynchronous, thc.torch.AsynchronousSGD]:
    """A worker's side of an asynchronous method."""
    down, up = (32, 32) if method == "async-full" else (8, 4)
    spec = thc.ModelSpec(thc.torch.coordinates(module), rate, workers=size, bits=down, seed=seed)
    own = thc.Asynchronous(address, spec, secret=secret, model=model, worker=rank, bits=up)
    return own, thc.torch.AsynchronousSGD(module.parameters(), own)


class Simulation:
    """All workers in this process, in virtual time."""

    def __init__(self, arguments: argparse.Namespace, method: str, rate: float) -> None:
        torch.set_num_threads(1)
        self.arguments, self.method, self.rate = arguments, method, rate
        self.problem = PROBLEMS[arguments.model]()
        self.paces = [arguments.pace] * (arguments.workers - 1) + [arguments.pace * arguments.slow]
        self.batches = [torch.Generator().manual_seed(1000 * arguments.seed + rank) for rank in range(arguments.workers)]
        self.points: list[tuple[float, float]] = []
        self.steps = [0] * arguments.workers

    def module(self) -> nn.Module:
        torch.manual_seed(self.arguments.seed)
        return self.problem.module()

    def gradients(self, module: nn.Module, rank: int) -> None:
        module.zero_grad()
        self.problem.loss(module, self.batches[rank]).backward()
        self.steps[rank] += 1

    def see(self, now: float, module: nn.Module) -> None:
        if not self.points or now - self.points[-1][0] >= self.arguments.seconds / 120:
            with torch.no_grad():
                self.points.append((now, self.problem.held_out_loss(module)))

    def synchronous(self) -> None:
        """The replicas are the same, so one does for all; the mean is that of THC among as many members."""
        module, size, now = self.module(), self.arguments.workers, 0.0
        momentum = 0.9 if self.method.endswith("momentum") else 0.0
        optimizer = torch.optim.SGD(module.parameters(), self.rate, momentum=momentum)
        parameters = list(module.parameters())
        with thc.Server(size, 0x5EED) as server, ThreadPoolExecutor(size) as threads:
            groups = list(threads.map(lambda rank: thc.Group(server.address, 1, rank, 0x5EED), range(size)))
            while now < self.arguments.seconds:
                self.see(now, module)
                vectors = []
                for rank in range(size):
                    self.gradients(module, rank)
                    vectors.append(torch.cat([p.grad.reshape(-1) for p in parameters]).numpy())
                list(threads.map(lambda group, vector: group.allreduce(vector, feedback=1), groups, vectors))
                for parameter, mean in zip(parameters, torch.from_numpy(vectors[0]).split([p.numel() for p in parameters])):
                    parameter.grad = mean.view_as(parameter)
                optimizer.step()
                now += max(self.paces)
            list(threads.map(thc.Group.close, groups))

    def asynchronous(self) -> tuple[int, int]:
        """The longest delay, and bits."""
        secret, size = secrets.token_hex(16), self.arguments.workers
        modules = [self.module() for _ in range(size)]
        with thc.ModelServer(secret, threads=1) as server:
            workers = [join_model("model", size, rank, server.address, secret, self.method, self.rate, self.arguments.seed, modules[rank])
                       for rank in range(size)]
            # Who is done with a gradient, and when; what it was computed at was pulled when it began.
            done = sorted((pace, rank) for rank, pace in enumerate(self.paces))
            self.see(0.0, modules[0])
            while done[0][0] <= self.arguments.seconds:
                now, rank = heapq.heappop(done)
                self.gradients(modules[rank], rank)
                workers[rank][1].step()
                heapq.heappush(done, (now + self.paces[rank], rank))
                if rank == 0:
                    self.see(now, modules[0])
            stats = [model.stats() for model, _ in workers]
            for model, _ in workers:
                model.close()
        return max(s["longest_delay"] for s in stats), sum(s["pulled_bits"] + s["pushed_bits"] for s in stats)

    def run(self) -> dict[str, Any]:
        longest, bits = 0, 0
        try:
            if self.method.startswith("sync"):
                self.synchronous()
            else:
                longest, bits = self.asynchronous()
        except thc.ThcError as error:
            # Gradients that are no longer finite.
            print(f"# {error}", file=sys.stderr)
            self.points.append((self.arguments.seconds, float("nan")))
        return {"method": self.method, "rate": self.rate, "points": self.points, "steps": self.steps, "longest_delay": longest,
                "bits": bits, "parameters": thc.torch.coordinates(self.module()),
                "seconds": time_to_loss(self.points, self.arguments.target)}


def run(arguments: argparse.Namespace, method: str, rate: float) -> dict[str, Any]:
    """All processes of one run."""
    if arguments.virtual:
        return Simulation(arguments, method, rate).run()
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        order = {"workers": arguments.workers, "method": method, "rate": rate, "seed": arguments.seed, "secret": secret,
                 "pace": arguments.pace, "slow": arguments.slow, "seconds": arguments.seconds, "model": arguments.model,
                 "meeting": f"{folder}/meeting"}
        children = []
        for rank in range(arguments.workers):
            # In its environment and not among its arguments, which everybody can list.
            environment = {**os.environ, "THC_UNEQUAL": json.dumps({**order, "rank": rank}), "OMP_NUM_THREADS": "1"}
            children.append(subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True))
        try:
            said = [child.communicate(timeout=arguments.seconds * 3 + 120)[0] for child in children]
        finally:
            for child in children:
                child.kill()
    if any(child.returncode for child in children):
        # Gradients that are no longer finite, which a model server does not take.
        return {"method": method, "rate": rate, "points": [[0.0, float("nan")]], "steps": [], "longest_delay": 0,
                "bits": 0, "parameters": 0, "seconds": None}
    found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    found["seconds"] = time_to_loss(found["points"], arguments.target)
    return found


def time_to_loss(points: list[tuple[float, float]], target: float) -> float | None:
    """When the loss, averaged over three points, first was at most the target."""
    if len(points) < 3:
        return None
    losses = np.convolve([loss for _, loss in points], np.ones(3) / 3, mode="valid")
    below = np.flatnonzero(losses <= target)
    return points[int(below[0]) + 2][0] if len(below) else None


def draw(path: Path, arguments: argparse.Namespace, best: list[dict[str, Any]]) -> None:
    from thc.torch.adapt.plot import picture

    with picture(path, 6.4, 3.8) as (_, ((panel,),)):
        for found, style in zip(best, ["-", "--", "-", "--"]):
            colour = "#d55e00" if found["method"].startswith("sync") else "#0072b2"
            panel.plot(*zip(*found["points"]), style, color=colour, label=f"{METHODS[found['method']]}, η {found['rate']}")
        panel.axhline(arguments.target, color="#bbbbbb", linewidth=0.8, zorder=0)
        panel.set(xlabel="seconds of training", ylabel="loss", xlim=(0, arguments.seconds))
        if arguments.model == "resnet":
            panel.set_yscale("log")
        panel.legend(frameon=False)


def main() -> None:
    arguments = read()
    if arguments.target is None:
        arguments.target = TARGETS[arguments.model]
    every, best = [], []
    for method in arguments.methods:
        mine = []
        for rate in arguments.rates:
            # What momentum adds up to.
            mine.append(run(arguments, method, rate / 10 if method.endswith("momentum") else rate))
            print(f"# {method} {mine[-1]['rate']:g}: {mine[-1]['seconds']} s, last loss {mine[-1]['points'][-1][1]:.4f}",
                  file=sys.stderr, flush=True)
        every += mine
        best.append(min(mine, key=lambda found: (found["seconds"] or 1e9, np.nan_to_num(found["points"][-1][1], nan=1e9))))
    base = next((found["seconds"] for found in best if found["method"] == "sync"), None)
    print(f"{arguments.model}, {best[0]['parameters']} parameters, {arguments.workers} workers, one {arguments.slow:g} × slower; "
          f"a gradient takes {1000 * arguments.pace:g} ms{' of virtual time' if arguments.virtual else ''}; to a loss of {arguments.target}:\n")
    print("| method | rate | seconds | against sync | last loss | steps of the workers | longest delay |\n|-|-|-|-|-|-|-|")
    for found in best:
        seconds = found["seconds"]
        ratio = f"{base / seconds:.2f} ×" if base and seconds else "–"
        print(f"| {METHODS[found['method']]} | {found['rate']:g} | {f'{seconds:.1f}' if seconds else '–'} | {ratio} | "
              f"{found['points'][-1][1]:.4f} | {', '.join(map(str, found['steps']))} | {found['longest_delay']} |")
    if arguments.out:
        arguments.out.write_text(json.dumps({"target": arguments.target, "runs": every}))
    if arguments.plot:
        draw(arguments.plot, arguments, best)


if __name__ == "__main__":
    if "THC_UNEQUAL" in os.environ:
        train(json.loads(os.environ["THC_UNEQUAL"]))
    else:
        main()
