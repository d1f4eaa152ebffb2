"""Handwritten digits with Lightning: a strategy puts its model's gradients through THC.

    python python/examples/lightning_digits.py --processes 2

On a cluster leave `--processes` out and start it as Lightning says (srun, torchrun).
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning
    from sklearn.datasets import load_digits
except ImportError as error:
    sys.exit(f"this example needs {error.name}: pip install lightning scikit-learn")

import thc.lightning


class Digits(lightning.LightningModule):
    """A classifier of 8 × 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_end(self) -> None:
        if self.global_rank == 0:
            stats = self.trainer.strategy.hook.group.stats()
            print(stats.summary(self.trainer.world_size), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="processes of this host (%(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    arguments = parser.parse_args()

    lightning.seed_everything(0, verbose=False)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:300], order[300:]

    model = Digits()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.processes,
        strategy=thc.lightning.THCStrategy(process_group_backend="gloo"),  # the one line; strategy="thc" without options
        max_steps=arguments.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(images[train], labels[train]), batch_size=32, shuffle=True))
    if trainer.global_rank == 0:
        with torch.no_grad():
            scores = model.layers(images[test])
        loss = nn.functional.cross_entropy(scores, labels[test]).item()
        accuracy = (scores.argmax(1) == labels[test]).float().mean().item()
        print(f"on images not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %", flush=True)


if __name__ == "__main__":
    main()
