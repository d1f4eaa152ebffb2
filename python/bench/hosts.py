"""One stream per host against a stream for each rank, and gloo: seconds for a step's gradients.

    target/python-venv-newest/bin/python python/bench/hosts.py --hosts 2 --ranks 2 --rate 1

Each host is a network namespace with a shaped link (links.py), with so many ranks. A step's gradients of `--size` MiB are averaged, by
DistributedDataParallel and nothing else; the ways take turns, `--rounds` times `--steps` steps each. The parameter server is the
ranks' own, a share on each host. Means are checked before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thc.torch
from links import NotPossible, Network
from machine import machine

WAYS: dict[str, dict[str, Any] | None] = {
    "gloo": None,
    "a stream for each rank": {"one_stream_per_host": False},
    "one stream per host": {"one_stream_per_host": True},
    "one stream per host, one bucket at a time": {"one_stream_per_host": True, "in_flight": 1},
    "a stream for each rank, one bucket at a time": {"one_stream_per_host": False, "in_flight": 1},
}
PARAMETERS = 16


class Weights(torch.nn.Module):
    """The gradient of each parameter is what the forward pass gets, so nothing but the averaging takes time."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(length)) for _ in range(PARAMETERS))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([weight @ inputs for weight in self.weights]).sum()


def rank(arguments: argparse.Namespace) -> None:
    """One of the processes; the first writes what was measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me, ranks = dist.get_rank(), dist.get_world_size()
    length = arguments.size * (1 << 18) // PARAMETERS
    inputs = [torch.randn(length, generator=torch.Generator().manual_seed(each)) for each in range(ranks)]
    exact = torch.stack(inputs).mean(0)
    models = {}
    for name, options in WAYS.items():
        ddp = DistributedDataParallel(Weights(length), bucket_cap_mb=arguments.bucket_mb, gradient_as_bucket_view=True)
        models[name] = ddp if options is None else thc.torch.wrap(ddp, **options)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(arguments.rounds + 1):
        for name, model in models.items():
            for _ in range(arguments.steps):
                model.zero_grad(set_to_none=False)
                dist.barrier()
                began = time.perf_counter()
                model(inputs[me]).backward()
                if turn:
                    times[name].append(time.perf_counter() - began)
                else:
                    found = next(model.parameters()).grad
                    assert found is not None
                    error = float((found - exact).square().sum() / exact.square().sum())
                    assert error < 0.2, (name, error)
    if me == 0:
        Path(arguments.report).write_text(json.dumps(times))
    dist.barrier()
    for name, options in WAYS.items():
        if options is not None:
            thc.torch.hook_of(models[name]).group.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="hosts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="on each host")
    parser.add_argument("--rate", type=float, default=1, help="of a host's link in Gb/s; 0: not shaped")
    parser.add_argument("--size", type=int, default=32, help="of the gradients in MiB")
    parser.add_argument("--bucket-mb", type=float, default=8, help="DDP's bucket_cap_mb")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path, help="where results go, too")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report:
        rank(arguments)
        return 0
    try:
        with Network(arguments.hosts) as network, tempfile.TemporaryDirectory() as folder:
            network.shape(arguments.rate or None)
            times = measure(arguments, network, f"{folder}/times.json")
    except NotPossible as why:
        print(f"not run: {why}")
        return 0
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(f"{arguments.hosts} hosts of {arguments.ranks} ranks, {arguments.rate} Gb/s, {arguments.size} MiB: {machine()['cpu']}")
    for name, median in medians.items():
        print(f"{name:45} {1e3 * median:8.1f} ms (least {1e3 * min(times[name]):.1f})  {medians['gloo'] / median:.2f} × gloo")
    if arguments.json:
        arguments.json.write_text(json.dumps({"medians": medians, "times": times, "machine": machine()}, indent=1))
    return 0


def measure(arguments: argparse.Namespace, network: Network, report: str) -> dict[str, list[float]]:
    """Starts the ranks and waits for what the first one measured."""
    world = arguments.hosts * arguments.ranks
    environment = os.environ | {
        "MASTER_ADDR": network.worker(0), "MASTER_PORT": "29500", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(arguments.ranks),
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": secrets.token_hex(4),
    }
    processes = [
        subprocess.Popen(
            [*network.inside(f"w{each // arguments.ranks}"), sys.executable, __file__, *sys.argv[1:], "--report", report],
            env=environment | {"RANK": str(each), "LOCAL_RANK": str(each % arguments.ranks)},
        )
        for each in range(world)
    ]
    try:
        for process in processes:
            if process.wait(300):
                raise SystemExit(f"rank {processes.index(process)} failed")
    finally:
        for process in processes:
            process.kill()
    found: dict[str, list[float]] = json.loads(Path(report).read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
