"""Handwritten digits with Hugging Face's Accelerate: one line after `prepare` puts gradients through THC.

    torchrun --nproc_per_node 2 python/examples/accelerate_digits.py
"""

from __future__ import annotations

import argparse
import itertools
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import thc.torch

try:
    from accelerate import Accelerator
    from sklearn.datasets import load_digits
except ImportError as error:
    sys.exit(f"this example needs {error.name}: pip install accelerate scikit-learn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    arguments = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:300], order[300:]

    layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(layers, optimizer, loader)
    if accelerator.num_processes > 1:
        thc.torch.wrap(model)  # the one line
        accelerator.register_for_checkpointing(thc.torch.Checkpoint(model))  # for accelerator.save_state

    batches = (batch for _ in itertools.count() for batch in loader)
    for inputs, targets in itertools.islice(batches, arguments.steps):
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
        accelerator.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    if accelerator.is_main_process:
        with torch.no_grad():
            scores = accelerator.unwrap_model(model)(images[test])
        loss = nn.functional.cross_entropy(scores, labels[test]).item()
        accuracy = (scores.argmax(1) == labels[test]).float().mean().item()
        print(f"on images not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %")
        if accelerator.num_processes > 1:
            print(thc.torch.hook_of(model).group.stats().summary(accelerator.num_processes))
    accelerator.end_training()


if __name__ == "__main__":
    main()
