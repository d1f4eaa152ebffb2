"""Each parameter has blocks of its own: what errors come to, above all where a gradient is zero at first, and what stays exact."""

from __future__ import annotations

from typing import Any

import plain  # noqa: F401 - device="torch"
import torch
import torch.distributed as dist
from rig import (
    COMPRESSED,
    RANK,
    SIZE,
    Weights,
    backward,
    error_of,
    same_everywhere,
    wrap_model,
)
from torch import nn

torch.set_num_threads(1)

SIZES = (200_000, 700, 100, 60_000, 300, 90_000)
"""Large parameters, and small ones between them."""
SIZE_OF = (1.0, 30.0, 1e-3, 1e-4, 0.01, 0.3)
"""How large their gradients are."""
BOUND = COMPRESSED[1]


def gradients(step: int, rank: int = RANK) -> list[torch.Tensor]:
    """Coordinates of each parameter are of very different sizes, too, which stay."""
    steady = torch.Generator().manual_seed(7)
    generator = torch.Generator().manual_seed(1000 * step + rank)
    found = []
    for length, size in zip(SIZES, SIZE_OF):
        own = torch.exp(1.5 * torch.randn(length, generator=steady))
        found.append(size * own * (0.5 + torch.randn(length, generator=generator)))
    return found


def mean_of(step: int) -> list[torch.Tensor]:
    every = [gradients(step, rank) for rank in range(SIZE)]
    return [torch.stack([g.double() for g in column]).mean(0) for column in zip(*every)]


def errors(means: list[torch.Tensor], step: int) -> list[float]:
    return [error_of([mean], [exact]) for mean, exact in zip(means, mean_of(step))]


def check_no_parameter_sets_the_error_of_another() -> None:
    for options in ({}, {"feedback": True}, {"over": "process-group"}, {"exclude": "*.1"}):
        model, hook = wrap_model(Weights(SIZES), **{"feedback": False, **options})
        for step in range(4):
            means = backward(model, gradients(step), [2, 0, 3, 5, 1, 4])
            found = errors(means, step)
            # What error feedback returns is of the step before.
            assert max(found) < (2 if "feedback" in options else 1) * BOUND, (options, step, found)
            assert same_everywhere(means)
        assert bool(hook.state_dict()["feedback"]) == ("feedback" in options)


def check_feedback_is_the_default_where_it_is_needed() -> None:
    assert not wrap_model(Weights((3_000,)), feedback=None)[1].options.feedback
    for options in ({"adapt": {}}, {"server": {"policy": "best-effort"}}):
        assert wrap_model(Weights((3_000,)), **{"feedback": None, **options})[1].options.feedback


# Gradients that are zero at first.


class Adapted(nn.Module):
    """A frozen matrix beside a low-rank one, as in LoRA: A has no gradient until B is not zero."""

    def __init__(self, width: int, rank: int = 4) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width, bias=False).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.b = nn.Parameter(torch.zeros(width, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.frozen(x) + (x @ self.a.T) @ self.b.T)


def _mean(value: torch.Tensor) -> torch.Tensor:
    mean = value.clone()
    dist.all_reduce(mean)
    return mean / SIZE


def _train(net: nn.Module, width: int, steps: int, **options: Any) -> None:
    """Every parameter's mean has a small error in every step, and is zero where the exact one is. A parameter below a thousandth of the
    coordinates is compared with the ranks' own gradients: a single number's may cancel almost wholly."""
    torch.manual_seed(0)
    model, _ = wrap_model(net, **{"feedback": False, "server": {"seed": 5}, **options})
    trained = [p for p in net.parameters() if p.requires_grad]
    coordinates = sum(p.numel() for p in trained)
    optimizer = torch.optim.AdamW(trained, 1e-3)
    for step in range(steps):
        generator = torch.Generator().manual_seed(SIZE * step + RANK)
        x, y = torch.randn(2, 32, width, generator=generator)
        own = torch.autograd.grad((net(x) - y).square().mean(), trained)
        want = [_mean(gradient) for gradient in own]
        squares = [_mean(gradient.square().sum()) for gradient in own]
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        for index, (parameter, exact) in enumerate(zip(trained, want)):
            assert parameter.grad is not None
            if exact.any():
                error = error_of([parameter.grad], [exact])
                if 1000 * parameter.numel() < coordinates:
                    error *= float(exact.square().sum() / squares[index])
                assert error < BOUND, (options, width, step, index, error)
            else:
                assert not parameter.grad.any(), (options, width, step, index)
        optimizer.step()


def check_lora_from_its_first_steps() -> None:
    """A's gradient is zero in the first step, and a millionth of B's in the next ones."""
    for width in (320, 256):
        torch.manual_seed(0)
        _train(nn.Sequential(*[Adapted(width) for _ in range(6)]), width, 12)
    torch.manual_seed(0)
    _train(nn.Sequential(*[Adapted(320) for _ in range(3)]), 320, 4, device="torch")


# What else holds.
