"""A classifier of handwritten digits (scikit-learn's, 1797 images of 8 × 8), trained on all processes through THC.

    torchrun --nproc_per_node 2 python/examples/digits.py

`--without-thc` trains the same with the process group's own all-reduce.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thc.torch

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install scikit-learn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images per process and step (%(default)s)")
    parser.add_argument("--without-thc", action="store_true", help="average by the process group instead")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:300], order[300:]

    layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(layers)
    if not arguments.without_thc:
        model = thc.torch.wrap(model)  # the one line
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    # Every process its own batches.
    batches = torch.Generator().manual_seed(100 + rank)
    began = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        chosen = train[torch.randint(len(train), (arguments.batch,), generator=batches)]
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 50 == 0 or step == arguments.steps):
            print(f"step {step:4}  loss {loss.item():.4f}", flush=True)
    seconds = time.perf_counter() - began

    with torch.no_grad():
        scores = layers(images[test])
        loss = nn.functional.cross_entropy(scores, labels[test]).item()
        accuracy = (scores.argmax(1) == labels[test]).float().mean().item()
    if rank == 0:
        print(f"on images not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %; {seconds:.1f} s")
        if not arguments.without_thc:
            print(thc.torch.hook_of(model).group.stats().summary(dist.get_world_size()))
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
