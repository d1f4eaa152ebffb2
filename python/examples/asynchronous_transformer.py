"""A transformer over the bytes of Python's documentation, trained by workers of unequal speed; the server is killed on the way.

    torchrun --nproc_per_node 4 python/examples/asynchronous_transformer.py --seconds 40 --kill 15
    torchrun --nproc_per_node 4 python/examples/asynchronous_transformer.py --method wrap      # the same, synchronous
    torchrun --nproc_per_node 4 python/examples/asynchronous_transformer.py --method outer     # DiLoCo's outer loop

Rank 0 starts `thc-model` (or, where the program is not found, a server on threads of its own, which is not killed). The last
rank takes `--slow` times as long for a gradient, which is slept: every gradient takes `--pace` seconds at least, so that four ranks fit on few
cores. Rank 0 evaluates the exact model by the clock and saves it as a checkpoint. The transformer has 2 layers of width 64, 0.12 million
parameters: it shows how the parts work together, and is too small to say how large ones train.
"""

from __future__ import annotations

import argparse
import copy
import pydoc_data.topics
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thc.torch

LENGTH = 32


class Transformer(nn.Module):
    """Scores for the byte after each of a row."""

    def __init__(self, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.bytes = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.norm(self.layers(self.bytes(rows) + self.places, mask=self.mask)))
        return scores


class Server:
    """thc-model as a process; or a server on threads, where the program is not found."""

    def __init__(self, secret: str, program: str | None) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.inside: thc.ModelServer | None = None
        if program is None:
            self.inside = thc.ModelServer(secret)
            self.address = self.inside.address
            return
        self.folder = tempfile.TemporaryDirectory()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{one.getsockname()[1]}"
        self.command = [program, "--listen", self.address, "--job", "train", "--state", self.folder.name, "--durable", "200ms"]
        self.environment = {"THC_MODEL_SECRET": secret, "RUST_LOG": "error"}
        self.start()

    def start(self) -> None:
        """Starts the program, which goes on from its folder."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, env=self.environment)
        assert self.process.stdout is not None and self.process.stdout.readline(), "thc-model has not started"

    def kill(self) -> None:
        """Kills the program, and starts it again."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.start()

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        if self.inside is not None:
            self.inside.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=("async", "wrap", "outer"), default="async", help="how ranks train (%(default)s)")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds of training (%(default)s)")
    parser.add_argument("--pace", type=float, default=0.06, help="seconds that a gradient takes (%(default)s)")
    parser.add_argument("--slow", type=float, default=4.0, help="how much slower the last rank is (%(default)s)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of Adam (%(default)s)")
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill the server after this time, and start it again")
    parser.add_argument("--program", default=shutil.which("thc-model"), help="path of thc-model (%(default)s)")
    parser.add_argument("--checkpoint", type=Path, help="save the model here at each evaluation")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    number = {byte: index for index, byte in enumerate(sorted(set(text)))}
    data = torch.tensor([number[byte] for byte in text])

    def loss_of(module: nn.Module, starts: Tensor) -> Tensor:
        places = starts[:, None] + torch.arange(LENGTH)
        return nn.functional.cross_entropy(module(data[places]).transpose(1, 2), data[places + 1])

    module: nn.Module = Transformer(len(number))
    evaluated = copy.deepcopy(module)
    server: Server | None = None
    model: thc.Asynchronous | None = None
    group: thc.Group | None = None
    loop: thc.torch.Outer | None = None
    trained: nn.Module = module
    optimizer: Any
    if arguments.method == "async":
        secret = secrets.token_hex(16)
        if rank == 0:
            server = Server(secret, arguments.program)
            if arguments.kill is not None and server.process is None:
                print("not run: the killed server: thc-model not found (cargo build --release -p thc-model, and --program)", flush=True)
        box = [server.address if server else "", secret]
        dist.broadcast_object_list(box)
        spec = thc.ModelSpec(thc.torch.tensors(module), arguments.rate, adam=(0.9, 0.99), workers=size, delay=8 * size)
        model = thc.Asynchronous(box[0], spec, secret=box[1], worker=rank)
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)
    else:
        optimizer = torch.optim.Adam(module.parameters(), arguments.rate, betas=(0.9, 0.99))
        if arguments.method == "wrap":
            group = thc.Group.local(rank, size)
            trained = thc.torch.wrap(DistributedDataParallel(module), group=group)
        else:
            loop = thc.torch.outer(module, optimizer, every=10)

    pace = arguments.pace * (arguments.slow if rank == size - 1 else 1.0)
    batches = torch.Generator().manual_seed(100 + rank)
    dist.barrier()
    began, told, steps, killed = time.perf_counter(), 0.0, 0, False

    def elapsed() -> float:
        return time.perf_counter() - began

    def goes_on() -> bool:
        if model is not None:
            return elapsed() < arguments.seconds
        # Synchronous ranks must end with the same step.
        if steps % 10:
            return True
        flag = torch.tensor(float(elapsed() < arguments.seconds))
        dist.broadcast(flag, 0)
        return bool(flag)

    while goes_on():
        at = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(trained, torch.randint(len(data) - LENGTH - 1, (8,), generator=batches))
        loss.backward()
        time.sleep(max(0.0, pace - (time.perf_counter() - at)))
        optimizer.step()
        if loop is not None:
            loop.step()
        steps += 1
        if rank == 0 and elapsed() >= told + arguments.seconds / 8:
            told = elapsed()
            if model is not None:
                optimizer.export_into(evaluated)
            else:
                evaluated.load_state_dict(module.state_dict())
            with torch.no_grad():
                measured = loss_of(evaluated, torch.linspace(0, len(data) - LENGTH - 2, 200).long()).item()
            print(f"{told:6.1f} s  loss {measured:.3f}", flush=True)
            if arguments.checkpoint is not None:
                torch.save(evaluated.state_dict(), arguments.checkpoint)
        if server and server.process and arguments.kill is not None and not killed and elapsed() >= arguments.kill:
            killed = True
            server.kill()
            print(f"{elapsed():6.1f} s  the server is killed", flush=True)

    counts: list[Any] = [None] * size
    dist.all_gather_object(counts, steps)
    if model is not None:
        version = optimizer.settle()
        stats = model.stats()
        if rank == 0:
            print(f"version {version}; longest delay {stats['longest_delay']}, steps of shards forgotten {stats['forgotten']}, reconnections "
                  f"{stats['reconnections']}, refused {stats['refused']}", flush=True)
        model.close()
    if rank == 0:
        print(f"{arguments.method}: steps of the ranks {counts}", flush=True)
    dist.barrier()
    if server:
        server.close()
    if group:
        group.close()
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
