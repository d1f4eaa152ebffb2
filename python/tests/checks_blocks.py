"""Each parameter has blocks of its own: what errors come to, above all where a gradient is zero at first, and what stays exact."""

from __future__ import annotations

import plain  # noqa: F401 - device="torch"
import torch
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


def check_no_parameter_sets_the_error_of_another() -> None:
    for options in ({}, {"feedback": True}, {"over": "process-group"}, {"exclude": "*.1"}):
        model, hook = wrap_model(Weights(SIZES), **{"feedback": False, **options})
        for step in range(4):
            means = backward(model, gradients(step), [2, 0, 3, 5, 1, 4])
            found = [error_of([mean], [exact]) for mean, exact in zip(means, mean_of(step))]
            # What error feedback returns is of the step before.
            assert max(found) < (2 if "feedback" in options else 1) * BOUND, (options, step, found)
            assert same_everywhere(means)
        assert bool(hook.state_dict()["feedback"]) == ("feedback" in options)


def check_feedback_is_the_default_where_it_is_needed() -> None:
    assert not wrap_model(Weights((3_000,)), feedback=None)[1].options.feedback
    for options in ({"adapt": {}}, {"server": {"policy": "best-effort"}}):
        assert wrap_model(Weights((3_000,)), **{"feedback": None, **options})[1].options.feedback


def check_a_gradient_that_is_zero_at_first() -> None:
    """It stays exactly zero, and is as good as any other when it is a millionth of its later size, as that of LoRA's A is."""
    for options in ({}, {"device": "torch"}):
        model, _ = wrap_model(Weights(SIZES), feedback=None, **options)
        for step, scale in enumerate((0.0, 1e-6, 1.0)):
            mine, exact = gradients(step), mean_of(step)
            mine[3] *= scale
            exact[3] *= scale
            means = backward(model, mine)
            assert scale or not means[3].any()
            assert max(error_of([mean], [wanted]) for mean, wanted in zip(means, exact) if wanted.any()) < BOUND, (options, step)
