"""Steps a second of workers that only exchange: thc-model, its push and pull in one, against a parameter server of torch.distributed.rpc.

    target/python-venv-newest/bin/python python/bench/parameter_server.py --workers 1,4,16 --coordinates 1000000 --out parameter_server.json

Every worker is a process that sends a gradient and gets the model, as fast as it can; a step is one worker's. The server of rpc takes x −= η·g
under a lock and answers with x, in floats; thc-model has 8 bits both ways and scales by tensor of 2^16 coordinates, or floats.
All processes share this machine's cores, over loopback: what is compared is the work that a step makes, not a network.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from arguments import among, number, several

SECRET = "a secret for benchmarks"
WAYS = {"thc-8": "thc-model, 8 bits", "thc-4": "thc-model, 8 bits down, 4 up", "thc-32": "thc-model, floats", "rpc": "torch.distributed.rpc, floats"}


def read() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", type=among(WAYS), default=list(WAYS), help="ways, separated by commas (all)")
    parser.add_argument("--workers", type=several(number(int, 1)), default=[1, 4, 16], help="processes (1,4,16)")
    parser.add_argument("--coordinates", type=several(number(int, 1)), default=[1_000_000], help="coordinates of the model (1000000)")
    parser.add_argument("--seconds", type=number(float, 0, above=True), default=5.0, help="seconds of each run (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for all runs, as JSON")
    return parser.parse_args()


def free_port() -> int:
    """One that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Held:
    """The model of the rpc server."""

    def __init__(self, coordinates: int) -> None:
        import torch

        self.x = torch.zeros(coordinates)
        self.lock = threading.Lock()


_held: dict[str, Held] = {}


def exchange(gradient: Any) -> Any:
    """At the rpc server: a step, and the model after it."""
    held = _held["model"]
    with held.lock:
        held.x.add_(gradient, alpha=-1e-3)
        return held.x.clone()


def rpc_process(rank: int, workers: int, coordinates: int, seconds: float, port: int, barrier: Any, counts: Any) -> None:
    """Rank 0 is the server."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=max(4, workers), rpc_timeout=600)
    if rank == 0:
        _held["model"] = Held(coordinates)
    rpc.init_rpc(f"rank-{rank}", rank=rank, world_size=workers + 1, rpc_backend_options=options)
    if rank > 0:
        gradient = torch.full((coordinates,), 0.01)
        rpc.rpc_sync("rank-0", exchange, (gradient,))
        barrier.wait()
        until, steps = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            rpc.rpc_sync("rank-0", exchange, (gradient,))
            steps += 1
        counts.put(steps)
    rpc.shutdown()


def thc_process(address: str, worker: int, workers: int, way: str, coordinates: int, seconds: float, barrier: Any, counts: Any) -> None:
    """A worker of thc-model."""
    import numpy as np
    import thc

    up = int(way.removeprefix("thc-"))
    tensors: Any = coordinates
    if up != 32:
        sizes = [1 << 16] * (coordinates >> 16) + [coordinates & 0xFFFF]
        tensors = [thc.Tensor(size) for size in sizes if size]
    down = 32 if up == 32 else 8
    with thc.Asynchronous(
        address, tensors, 1e-3, secret=SECRET, worker=worker, workers=workers, bits=up, model_bits=down, timeout=600
    ) as model:
        x, gradient = np.zeros(coordinates, np.float32), np.sin(np.arange(coordinates)).astype(np.float32)
        model.initialise(x)
        model.pull(x)
        model.push_pull(gradient, x)
        barrier.wait()
        until, steps = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            model.push_pull(gradient, x)
            steps += 1
        counts.put(steps)


def measure(way: str, workers: int, coordinates: int, seconds: float) -> float:
    """Steps a second of all workers together."""
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(workers), context.Queue()
    server = None
    if way == "rpc":
        port = free_port()
        tasks = [(rpc_process, (rank, workers, coordinates, seconds, port, barrier, counts)) for rank in range(workers + 1)]
    else:
        import thc

        server = thc.ModelServer(SECRET)
        tasks = [
            (thc_process, (server.address, worker, workers, way, coordinates, seconds, barrier, counts)) for worker in range(workers)
        ]
    processes = [context.Process(target=target, args=arguments) for target, arguments in tasks]
    for process in processes:
        process.start()
    total = sum(counts.get(timeout=seconds + 600) for _ in range(workers))
    for process in processes:
        process.join()
    if server is not None:
        server.close()
    return total / seconds


def main() -> None:
    """Runs all, and prints a line for each."""
    arguments = read()
    import torch.distributed.rpc

    found = []
    for coordinates in arguments.coordinates:
        for workers in arguments.workers:
            rates: dict[str, float] = {}
            for way in arguments.ways:
                if way == "rpc" and not torch.distributed.rpc.is_available():
                    print("not run: rpc: this PyTorch was built without torch.distributed.rpc", flush=True)
                    continue
                rates[way] = measure(way, workers, coordinates, arguments.seconds)
                ratio = rates[way] / rates["rpc"] if "rpc" in rates else None
                print(f"{WAYS[way]:32} {workers:3} workers, {coordinates:9} coordinates: {rates[way]:8.1f} steps/s", flush=True)
                found.append({"way": way, "workers": workers, "coordinates": coordinates, "steps_per_second": rates[way], "ratio": ratio})
            for row in found:
                if row["workers"] == workers and row["coordinates"] == coordinates and "rpc" in rates:
                    row["ratio"] = row["steps_per_second"] / rates["rpc"]
    if arguments.out:
        from machine import machine

        arguments.out.write_text(json.dumps({"machine": machine(), "seconds": arguments.seconds, "runs": found}, indent=1))


if __name__ == "__main__":
    main()
