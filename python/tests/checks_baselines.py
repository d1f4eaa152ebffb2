"""QSGD, TopK and PowerSGD with a parameter for each layer, on any number of ranks."""

from __future__ import annotations

from typing import Any

import namespaces  # noqa: F401 - after it the modules of testbed/bench-torch are found
import rig
import thc
import torch
from rig import (
    RANK,
    SIZE,
    ddp,
    error_of,
    everywhere,
    same_everywhere,
)
from baselines import QSGD, LayerwiseHook, PowerSGD, TopK

SHAPES = ((40, 30), (64, 96), (700,), (16, 8, 3, 3))
SCALES = (1.0, 0.05, 0.3, 2.0)


class Layers(torch.nn.Module):
    """Its value is Σ parameter · input, so the gradient of each parameter is that input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES])

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(layer * given).sum() for layer, given in zip(self.layers, inputs)]).sum()


def gradients(step: int, rank: int = RANK) -> list[torch.Tensor]:
    """Layers of rank two and a little noise, on top of each other."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    found = []
    for shape, scale in zip(SHAPES, SCALES):
        noise = torch.randn(shape, generator=generator)
        if len(shape) > 1:
            rows, columns = shape[0], noise[0].numel()
            low = torch.randn(rows, 2, generator=generator) @ torch.randn(2, columns, generator=generator)
            noise = 0.1 * noise + low.view(shape)
        found.append(scale * noise)
    return found


def mean(step: int) -> list[torch.Tensor]:
    return [torch.stack(column).mean(0) for column in zip(*[gradients(step, rank) for rank in range(SIZE)])]


def make_hook(family: Any, **options: Any) -> tuple[Any, LayerwiseHook]:
    model = ddp(Layers())
    hook = LayerwiseHook(family, model, **options)
    model.register_comm_hook(hook.state, hook.fn)
    return model, hook


def step(model: Any, number: int) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    model(gradients(number)).backward()
    return [layer.grad.clone() for layer in model.module.layers]


def flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.reshape(-1) for tensor in tensors]


def check_qsgd_is_unbiased_and_loses_what_is_foretold() -> None:
    family = QSGD()
    model, hook = make_hook(family, default=3)
    lost = torch.zeros(3)
    means = []
    for number in range(30):
        # The same gradients each time: what differs is chance.
        model.zero_grad(set_to_none=True)
        model(gradients(0)).backward()
        found = [layer.grad.clone() for layer in model.module.layers]
        assert same_everywhere(flat(found))
        means.append(found)
    average = [torch.stack(column).mean(0) for column in zip(*means)]
    one = error_of(flat(means[0]), flat(mean(0)))
    assert 10 * error_of(flat(average), flat(mean(0))) < one, one
    foretold = sum(
        family.errors(layer, [3.0])[0] for rank in range(SIZE) for layer in gradients(0, rank)
    ) / SIZE**2
    mine = sum(float((a - b).square().sum()) for a, b in zip(means[0], mean(0)))
    assert 0.85 < mine / foretold < 1.15, mine / foretold
    assert lost.numel() == 3 and 9 < hook.ratio < 11, hook.ratio


def check_ranks_round_by_random_numbers_of_their_own() -> None:
    """Gradients that are alike: errors average out, with the default seed and with one that all ranks are given."""
    layers = gradients(0, 0)
    for family in (QSGD(), QSGD(7)):
        model, _ = make_hook(family, default=3)
        model.zero_grad(set_to_none=True)
        model(layers).backward()
        found = [layer.grad for layer in model.module.layers]
        lost = sum(float((a - b).square().sum()) for a, b in zip(found, layers))
        foretold = sum(family.errors(layer, [3.0])[0] for layer in layers)
        assert 0.8 < lost * SIZE / foretold < 1.2, lost * SIZE / foretold


def check_what_topk_and_powersgd_leave_out_comes_later() -> None:
    for family, default in ((TopK(), 0.1), (PowerSGD(), 1)):
        model, hook = make_hook(family, default=default)
        exact = [torch.zeros(shape) for shape in SHAPES]
        found = [torch.zeros(shape) for shape in SHAPES]
        for number in range(6):
            for total, each in zip(found, step(model, number)):
                total += each
            for total, each in zip(exact, mean(number)):
                total += each
        assert same_everywhere(flat(found))
        for index, (wanted, have) in enumerate(zip(exact, found)):
            left = hook._left[f"layers.{index}"].clone()
            rig.dist.all_reduce(left)
            assert float((wanted - have - left / SIZE).abs().max()) < 1e-3
        assert hook.ratio > 4, (family.name, hook.ratio)


def check_enough_of_it_is_exact() -> None:
    for family, default in ((TopK(), 1.0), (PowerSGD(), 40)):
        model, hook = make_hook(family, default=default)
        assert error_of(flat(step(model, 0)), flat(mean(0))) < 1e-10
        assert family.errors(gradients(0)[1], [default]) == [0.0]


def check_each_layer_gets_its_own() -> None:
    """What L-GreCo chooses is the same on all ranks, keeps the bound and sends less."""
    for family, default, most in ((QSGD(), 4, 8), (TopK(), 0.1, 1.0), (PowerSGD(), 2, 4)):
        model, hook = make_hook(family, default=default, every=3, exact=family.name == "TopK")
        for number in range(5):
            found = step(model, number)
            assert same_everywhere(flat(found))
        chosen = list(hook.layer_parameters.values())
        assert same_everywhere([torch.tensor(chosen)]) and len(set(chosen)) > 1 and max(chosen) <= most, chosen
        assert everywhere(hook.plan is not None) == [rank == 0 for rank in range(SIZE)]
        if RANK == 0:
            assert hook.plan is not None
            assert hook.plan.ratio > 1.02 and hook.plan.error <= hook.plan.bound * (1 + 1e-6), str(hook.plan)
            assert "layers.3" in str(hook.plan)


def check_accordion_gives_the_bound() -> None:
    for layerwise in (False, True):
        model, hook = make_hook(PowerSGD(), default=2, every=2, accordion=(1, 4), layerwise=layerwise)
        for number in range(7):
            assert same_everywhere(flat(step(model, number)))
        if RANK == 0:
            first, last = hook.plans[0], hook.plans[-1]
            assert last.bound > first.bound  # nothing changes much any more: all may lose more
            assert layerwise or set(first.choices().values()) == {"4"}


def check_accordion_begins_again_at_a_lower_rate() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    model, hook = make_hook(PowerSGD(), default=2, every=2, accordion=(1, 4), layerwise=False, optimizer=optimizer)
    for number in range(11):
        if number == 5:
            optimizer.param_groups[0]["lr"] = 0.01
        if number == 9:
            optimizer.param_groups[0]["lr"] = 0.05  # a higher one is no reason
        step(model, number)
    if RANK == 0:
        # The first choice knows nothing; at step 6 the rate has gone down, and gradients are as they were.
        assert [set(plan.choices().values()) == {"4"} for plan in hook.plans] == [True, False, True, False, False], hook.plans


def check_mistakes_are_told() -> None:
    def expect_error(says: str, family: Any, **options: Any) -> None:
        try:
            LayerwiseHook(family, Layers(), **options)
        except thc.ConfigError as error:
            assert says in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"nothing says {says}")

    expect_error("9 bits", QSGD(), default=9, choices=[9])
    expect_error("share", TopK(), default=2, choices=[2])
    expect_error("ranks 1, 2", PowerSGD(), default=1.5, choices=[1.5])
    expect_error("every", TopK(), default=0.1, every=-1)
