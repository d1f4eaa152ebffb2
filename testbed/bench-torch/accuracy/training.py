"""One training, and what is seen of it."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch

from accuracy.quorum import Late
from accuracy.tasks import TASKS, Task
from accuracy.ways import Exact, exact_mean, way

LAST = 20
"""Steps whose mean loss is the final one."""
LOOK = 50
"""Every so many steps the mean's error and the update's are measured."""


def train(name: str, way_name: str, ranks: int, seed: int, steps: int | None = None) -> dict[str, Any]:
    """Trains a task; losses by step, held-out loss, the errors of the mean and of the update."""
    torch.set_num_threads(1)
    task: Task = TASKS[name]
    steps = steps or task.steps
    model = task.model(seed)
    optimizer = task.optimizer(model)
    parameters = list(model.parameters())
    averages = way(way_name, model, ranks, seed)
    losses: list[float] = []
    errors: list[float] = []
    updates: list[float] = []
    began = time.perf_counter()
    for step in range(steps):
        examples = task.examples(seed, step, task.batch)
        gradients, loss = [], 0.0
        for rank in range(ranks):
            optimizer.zero_grad(set_to_none=True)
            share = tuple(part[rank::ranks] for part in examples)
            own = task.loss(model, share)
            own.backward()
            loss += float(own.detach()) / ranks
            gradients.append(torch.cat([torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1) for p in parameters]))
        losses.append(loss)
        looks = not isinstance(averages, Exact) and (step % LOOK == LOOK - 1 or step == steps - 1)
        exact = exact_mean(gradients) if looks else None
        mean = averages.mean(gradients)
        if exact is not None:
            errors.append(float((mean.double() - exact.double()).square().sum() / exact.double().square().sum()))
            updates.append(_update_error(model, optimizer, task, exact, mean))
        _step(model, optimizer, task, mean)
    if isinstance(averages, Late):
        averages.close()
    model.eval()
    with torch.no_grad():
        held_out = float(task.loss(model, task.held_out()))
        accuracy = task.accuracy(model, task.held_out()) if task.accuracy else None
    return {
        "task": name, "way": way_name, "ranks": ranks, "seed": seed, "steps": steps, "losses": losses, "final": sum(losses[-LAST:]) / LAST,
        "held_out": held_out, "accuracy": accuracy, "nmse": sum(errors) / len(errors) if errors else None,
        "update": sum(updates) / len(updates) if updates else None,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, task: Task, mean: torch.Tensor) -> None:
    at = 0
    for parameter in model.parameters():
        parameter.grad = mean[at : at + parameter.numel()].view_as(parameter).clone()
        at += parameter.numel()
    if task.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), task.clip)
    optimizer.step()


def _update_error(model: torch.nn.Module, optimizer: torch.optim.Optimizer, task: Task, exact: torch.Tensor, mean: torch.Tensor) -> float:
    """How far the optimizer's step is from the one that it would make of the exact mean, squared, over that one's length."""
    steps = []
    before = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    for gradient in (exact, mean):
        twin, its = copy.deepcopy((model, optimizer))
        _step(twin, its, task, gradient)
        steps.append(torch.cat([p.detach().reshape(-1) for p in twin.parameters()]) - before)
    return float((steps[1] - steps[0]).double().square().sum() / steps[0].double().square().sum())
