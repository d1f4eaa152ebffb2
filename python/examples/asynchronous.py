"""A small residual network for handwritten digits (scikit-learn's), trained asynchronously by workers of unequal speed.

    torchrun --nproc_per_node 4 python/examples/asynchronous.py --slow 4

Rank 0 has a model server on threads of its own. Every rank pulls the parameters from it and pushes gradients, both in
low precision, as fast as it can; the last one is `--slow` times slower, and nobody waits for it. Training ends after `--steps`
steps of all ranks together. `--correct` adds SVRG's correction, for which all ranks average one full gradient per epoch
by THC. Across machines, `thc-model` is the server: give its address to `thc.Asynchronous`, and the secret by THC_MODEL_SECRET.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

import thc.torch

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install scikit-learn")


class Residual(nn.Module):
    """Two convolutions beside which the input goes on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.GroupNorm(4, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(4, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.layers(x)
        return result


def network() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), Residual(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), Residual(32),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200, help="steps of all ranks together (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images per step (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate (%(default)s)")
    parser.add_argument("--bits", type=int, default=4, help="bits of a gradient's coordinate; the model has 8 (%(default)s)")
    parser.add_argument("--slow", type=float, default=4.0, help="how much slower the last rank is (%(default)s)")
    parser.add_argument("--delay", type=int, help="most steps that a gradient may be old: older ones are refused")
    parser.add_argument("--correct", action="store_true", help="with SVRG's correction, in epochs of 100 steps")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:300], order[300:]
    part = train[rank * (len(train) // size) : (rank + 1) * (len(train) // size)]

    secret = secrets.token_hex(16)
    server = thc.ModelServer(secret) if rank == 0 else None
    box = [server.address if server else "", secret]
    dist.broadcast_object_list(box)

    module = network()
    spec = thc.ModelSpec(
        thc.torch.coordinates(module), arguments.rate, workers=size, delay=arguments.delay, corrected=arguments.correct,
        epoch=100 if arguments.correct else None,
    )
    model = thc.Asynchronous(box[0], spec, secret=box[1], worker=rank, bits=arguments.bits)

    def gradients(chosen: Tensor) -> Tensor:
        started = time.thread_time()
        module.zero_grad()
        loss = nn.functional.cross_entropy(module(images[chosen]), labels[chosen])
        loss.backward()
        if rank == size - 1:
            time.sleep((arguments.slow - 1) * (time.thread_time() - started))
        return loss

    if arguments.correct:
        group = thc.Group.local(rank, size)
        optimizer = thc.torch.AsynchronousSGD(
            module.parameters(), model, full=lambda: gradients(part), group=group)
    else:
        group = None
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)

    def goes_on() -> bool:
        # With correction all ranks must leave in the same epoch, as the next one needs them all.
        return optimizer.version < arguments.steps if optimizer.epoch is None else optimizer.epoch * 100 < arguments.steps

    batches = torch.Generator().manual_seed(100 + rank)
    began, told = time.perf_counter(), 0
    while goes_on():
        chosen = part[torch.randint(len(part), (arguments.batch,), generator=batches)]
        if arguments.correct:
            loss = optimizer.step(lambda: gradients(chosen))
        else:
            loss = gradients(chosen)
            optimizer.step()
        if rank == 0 and optimizer.version >= told + 200:
            told = optimizer.version
            print(f"step {told:5}  loss {loss.item():.4f}", flush=True)
    seconds = time.perf_counter() - began

    stats = model.stats()
    steps = [None] * size
    dist.all_gather_object(steps, stats["pushes"])
    model.close()
    if group:
        group.close()
    with torch.no_grad():
        scores = module(images[test])
        loss = nn.functional.cross_entropy(scores, labels[test]).item()
        accuracy = (scores.argmax(1) == labels[test]).float().mean().item()
    if rank == 0:
        floats = 32 * thc.torch.coordinates(module) * (stats["pulls"] + stats["pushes"])
        bits = stats["pulled_bits"] + stats["pushed_bits"]
        print(f"on images not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %; {seconds:.1f} s")
        print(f"steps of the ranks: {steps}; longest delay {stats['longest_delay']}")
        print(f"pulled and pushed by rank 0: {bits / 8e6:.1f} MB, as floats {floats / 8e6:.1f} MB")
    dist.barrier()
    if server:
        server.close()
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
