"""What training programs do with a DDP model, done through the hook: scalers, clipping, compiled modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from rig import RANK, SIZE, same_everywhere, wrap_model

torch.set_num_threads(1)

IN, OUT = 64, 8


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(IN, 256), torch.nn.ReLU(), torch.nn.Linear(256, OUT))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + RANK)
    teacher = torch.randn(IN, OUT, generator=torch.Generator().manual_seed(9)) / IN**0.5
    x = torch.randn(32, IN, generator=generator)
    return x, torch.tanh(x @ teacher)


def loss_of(model: torch.nn.Module, step: int) -> torch.Tensor:
    x, y = batch(step)
    return torch.nn.functional.mse_loss(model(x).float(), y)


def learns(model: torch.nn.Module, step_of: Callable[[int], None], steps: int = 40) -> None:
    """Training lowers the loss by a third at least, and all ranks keep the same parameters."""
    with torch.no_grad():
        before = float(loss_of(model, 1000))
    for step in range(steps):
        step_of(step)
    with torch.no_grad():
        after = float(loss_of(model, 1000))
    assert after < 0.67 * before, (before, after)
    assert same_everywhere(list(model.parameters()))


def check_grad_scaler() -> None:
    """An overflow on one rank makes all ranks skip the step and halve the scale."""
    model, hook = wrap_model(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    skipped = []

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss = loss_of(model, number)
        if number == 5 and RANK == SIZE - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = [p.detach().clone() for p in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        if all(torch.equal(a, b) for a, b in zip(before, model.parameters())):
            skipped.append(number)

    learns(model, step)
    assert skipped == [5] and scaler.get_scale() == 512.0, (skipped, scaler.get_scale())
    assert not hook.skipped


class Twice(torch.nn.Module):
    """Uses its first layer twice, which DDP takes with a static graph, and in a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = torch.nn.Linear(IN, IN), torch.nn.Linear(IN, OUT)
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        for _ in range(2):
            x = checkpoint(lambda y: torch.relu(self.first(y)) + y, x, use_reentrant=False)
        return self.last(x)


def check_static_graph() -> None:
    model, _ = wrap_model(Twice(), {"static_graph": True})
    optimizer = torch.optim.Adam([p for n, p in model.named_parameters() if "unused" not in n], 3e-3)

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss_of(model, number).backward()
        optimizer.step()

    learns(model, step)


def check_compiled() -> None:
    """torch.compile around the DDP model and under it: DDP's own splitting of graphs hands over the same buckets."""
    for inside in (False, True):
        model, hook = wrap_model(torch.compile(network(), backend="aot_eager") if inside else network())
        used = model if inside else torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)

        def step(number: int, used: Any = used, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            loss_of(used, number).backward()
            optimizer.step()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learns(model, step)
        assert hook.steps == 40 and hook.group.stats().coordinates > 0
