"""How a layer's error and its effect on the loss go together, in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from baselines import PowerSGD
from torch import Tensor, nn

from adapt.tasks import TASKS

PERIOD = 40
"""Steps of which gradients are accumulated."""
RATE, SHORT_RATE = 0.3, 0.03
"""Learning rates of the training and of the short runs: low in these, so that what is seen is the layer's error and not chaos."""


class Alone:
    """Carries nothing: one rank is all there is."""

    size = 1

    def mean(self, tensor: Tensor, whole: bool = False) -> None:
        pass

    def gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]


class Piece:
    """A layer's gradient."""

    def __init__(self, name: str, gradient: Tensor) -> None:
        self.name, self.gradient = name, gradient


def step(task: Any, model: nn.Module, optimizer: Any, number: int, seed: int = 0) -> Tensor:
    """A backward pass; the loss before it."""
    loss = task.loss(model, seed, number, 0)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    return loss.detach()


def accumulate(task: Any, model: nn.Module, optimizer: Any, first: int) -> dict[str, Tensor]:
    """The next steps of a training, and the sums of their gradients."""
    sums: dict[str, Tensor] = {}
    for number in range(first, first + PERIOD):
        step(task, model, optimizer, number)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            sums[name] = sums[name] + parameter.grad if name in sums else parameter.grad.clone()
        optimizer.step()
    return sums


def correlation(x: list[float], y: list[float]) -> float:
    """Pearson's."""
    a, b = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-300))


def ranks_of(x: list[float]) -> list[float]:
    """For Spearman's."""
    order = sorted(range(len(x)), key=lambda i: x[i])
    found = [0.0] * len(x)
    for rank, i in enumerate(order):
        found[i] = float(rank)
    return found


def sensitivity(say: Callable[[str], None]) -> dict[str, Any]:
    """The paper's Fig. 7a: from checkpoints of an uncompressed training, short runs in which one layer alone is compressed by PowerSGD;
    how the change of the loss goes with the error of that layer, over all layers of one rank."""
    task = TASKS["transformer"]()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    found: dict[str, Any] = {"task": task.name, "points": []}
    for checkpoint, ranks in ((PERIOD, (1, 2, 4)), (4 * PERIOD, (1, 2, 4))):
        while_training = 0 if checkpoint == PERIOD else PERIOD * 2
        for number in range(while_training, checkpoint - PERIOD):
            step(task, model, optimizer, number)
            optimizer.step()
        sums = accumulate(task, model, optimizer, checkpoint - PERIOD)
        layers = [name for name, gradient in sums.items() if gradient.dim() > 1]
        batches = range(checkpoint, checkpoint + 10)
        base = _loss_after(task, model, None, 0, batches)
        for rank in ranks:
            errors, changes = [], []
            for name in layers:
                errors.append(PowerSGD().errors(sums[name], [rank])[0])
                changes.append(_loss_after(task, model, name, rank, batches) - base)
            both = [(e, c) for e, c in zip(errors, changes)]
            point = {"step": checkpoint, "rank": rank, "layers": layers, "errors": errors, "changes": changes,
                     "correlation": correlation([e for e, _ in both], [c for _, c in both]),
                     "spearman": correlation(ranks_of(errors), ranks_of(changes))}
            found["points"].append(point)
            say(f"sensitivity after {checkpoint} steps, rank {rank}: correlation {point['correlation']:.3f}, of ranks {point['spearman']:.3f}")
    return found


def _loss_after(task: Any, model: nn.Module, compressed: str | None, rank: int, batches: range) -> float:
    """The mean loss of the batches that follow some steps, with one layer's gradient compressed in each."""
    own = copy.deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), SHORT_RATE)
    for number in batches:
        step(task, own, optimizer, number)
        if compressed is not None:
            parameter = own.get_parameter(compressed)
            assert parameter.grad is not None
            (averaged, _), = PowerSGD().average([Piece(compressed, parameter.grad)], [rank], Alone())
            parameter.grad.copy_(averaged)
        optimizer.step()
    with torch.no_grad():
        # Of the batches it was trained on: what the layer's error did to what was to be learned.
        return float(sum(task.loss(own, 0, number, 0) for number in batches) / len(batches))
