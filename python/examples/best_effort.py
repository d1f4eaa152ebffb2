"""Training when packets get lost and nobody waits for them (policy best-effort, section 6 of the THC paper).

    torchrun --nproc_per_node 2 python/examples/best_effort.py

A packet that has not come after a deadline, though it was asked for again, counts as zero, and training goes on. Three
in ten packets are dropped here on purpose (`--loss`). Since processes lose different packets, their parameters drift
apart; every `--every` steps `thc.torch.sync_parameters` makes them equal again. `--every 0` shows what happens
without that.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thc.torch


def drift(model: nn.Module) -> float:
    """How far the parameters of the processes are apart: the largest difference from rank 0's."""
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    furthest = (mine - first).abs().max()
    dist.all_reduce(furthest, dist.ReduceOp.MAX)
    return furthest.item()


def examples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points of two spirals with noise, and which spiral each is of."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    radius = torch.rand(count, generator=generator).sqrt()
    angle = 9 * radius + 3.1416 * labels
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return points + 0.02 * torch.randn(count, 2, generator=generator), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="training steps (%(default)s)")
    parser.add_argument("--loss", type=float, default=0.3, help="share of packets that is dropped (%(default)s)")
    parser.add_argument("--deadline", default="20ms", help="time after which a packet counts as lost (%(default)s)")
    parser.add_argument("--every", type=int, default=20, help="steps between synchronizations (%(default)s)")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    layers = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    model = thc.torch.wrap(
        DistributedDataParallel(layers),
        join=thc.Join(server={"policy": "best-effort", "deadline": arguments.deadline}, inject=f"loss={arguments.loss}", inject_seed=rank),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    group = thc.torch.hook_of(model).group
    copies = 0
    for step in range(1, arguments.steps + 1):
        points, labels = examples(64, 1000 * step + rank)
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        apart = drift(model) if step % 50 == 0 or step == arguments.steps else None
        if arguments.every and thc.torch.sync_parameters(model, arguments.every, optimizer=optimizer):
            copies += 1
        if rank == 0 and apart is not None:
            print(f"step {step:4}  loss {loss.item():.4f}, parameters differ by {apart:.1e} at most, "
                  f"{group.stats().lost} packets lost", flush=True)

    with torch.no_grad():
        points, labels = examples(2000, 0)
        scores = layers(points)
        loss = nn.functional.cross_entropy(scores, labels).item()
        accuracy = (scores.argmax(1) == labels).float().mean().item()
    if rank == 0:
        print(f"on points not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %")
        print(f"times that parameters were synchronized: {copies}")
        print(group.stats().summary(dist.get_world_size()))
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
