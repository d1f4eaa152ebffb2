"""AQGB between peers, on any number of ranks."""

from __future__ import annotations

import functools
import time
from typing import Any

import thc
import torch
import torch.distributed as dist
from checks_refine import LAYERS, Layers, flat, inputs, mean, step_of
from rig import SIZE, ddp, everywhere, same_everywhere
from thc.torch.baselines import AqgbHook


def make_hook(make: Any = None, seconds: float = 0.0, **options: Any) -> tuple[Any, AqgbHook, torch.optim.Optimizer]:
    model = ddp(Layers(seconds))
    optimizer = (make or functools.partial(torch.optim.SGD, lr=1.0))(model.parameters())
    hook = AqgbHook(model, optimizer, **options)
    model.register_comm_hook(hook.state, hook.fn)
    return model, hook, optimizer


def check_all_bits_are_exact() -> None:
    model, hook, optimizer = make_hook(least=1.0)
    before = flat(model)
    step_of(model, optimizer, 0)
    hook.settle()
    assert torch.allclose((before - flat(model)).double(), mean(0), atol=1e-5) and same_everywhere([flat(model)])
    assert all(bits == 32 for _, bits in hook.bits) and not hook.further
    assert hook.sent == 4 * flat(model).numel()
    hook.close()


def check_what_was_sent_and_what_is_left_are_the_gradients() -> None:
    """Both stages, over steps: updates are what came in, but for what error feedback has."""
    model, hook, optimizer = make_hook(least=6 / 32)
    hook._further_bits = lambda block: 5 if block.index % 2 else 0  # type: ignore[method-assign]
    before, total = flat(model).double(), torch.zeros(flat(model).numel(), dtype=torch.float64)
    for step in range(5):
        step_of(model, optimizer, step)
        total += mean(step)
    hook.settle()
    hook.close()  # then its thread has kept what is left
    left = torch.cat([torch.from_numpy(hook._left[f"layers.{number}.weight"].copy()) for number in range(LAYERS)]).double()
    dist.all_reduce(left)
    assert torch.allclose(before - flat(model).double(), total - left / SIZE, atol=1e-3)
    assert same_everywhere([flat(model)]) and hook.calls > 0
    # Cut off after the sign and five bits of the exponent, far more is left than after five bits more.
    shares = [float(torch.from_numpy(hook._left[f"layers.{number}.weight"].copy()).norm()) for number in range(LAYERS)]
    assert max(shares) > 3 * min(shares), shares


def check_few_bits_deliver_gradients_of_any_size() -> None:
    """Four bits of FP32 are its sign and three of its exponent: everything between 1e-9 and 2 would be the same."""
    for size in (0.5, 1e-5):
        model, hook, optimizer = make_hook()
        hook._further_bits = lambda block: 0  # type: ignore[method-assign]
        before = flat(model).double()
        optimizer.zero_grad(set_to_none=True)
        model([size * each for each in inputs(0)]).backward()
        optimizer.step()
        hook.settle()
        assert all(bits == 4 for _, bits in hook.bits), hook.bits
        exact = size * mean(0)
        lost = float((before - flat(model).double() - exact).norm() ** 2 / exact.norm() ** 2)
        assert lost < 0.6, lost
        assert hook.sent < 4.2 / 8 * flat(model).numel() + 100, hook.sent
        assert same_everywhere([flat(model)])
        hook.close()


def check_an_infinity_is_not_lost() -> None:
    """What scales losses looks for it."""
    model, hook, optimizer = make_hook()
    optimizer.zero_grad(set_to_none=True)
    given = inputs(0)
    given[0].reshape(-1)[3] = float("inf")
    model(given).backward()
    hook.settle()
    assert not all(bool(p.grad.isfinite().all()) for p in model.parameters())
    hook.close()


def check_the_last_block_goes_first() -> None:
    model, hook, optimizer = make_hook(least=0.5)
    step_of(model, optimizer, 0)  # DDP makes a bucket for each layer
    hook.settle()
    broadcast = hook._broadcast

    def slowly(block: Any, bits: int) -> None:
        if not hook.bits:
            time.sleep(0.5)
        broadcast(block, bits)

    hook._broadcast = slowly  # type: ignore[method-assign]
    step_of(model, optimizer, 1)
    hook.settle()
    # While the first one is under way the others are produced.
    _, *rest = [index for index, _ in hook.bits]
    assert len(rest) == LAYERS - 1 and rest == sorted(rest, reverse=True), hook.bits
    assert same_everywhere([flat(model)])
    hook.close()


def check_it_finds_the_time_itself_and_learns() -> None:
    model, hook, optimizer = make_hook(functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9), seconds=0.03)
    target = torch.linspace(1.0, -1.0, flat(model).numel())
    seen = []
    for step in range(10):
        optimizer.zero_grad()
        # Towards a target: the gradient of half the squared distance, with noise of each rank's own.
        away = (flat(model) - target).split([p.numel() for p in model.parameters()])
        model([each + 0.1 * noise for each, noise in zip(away, inputs(step))]).backward()
        optimizer.step()
        hook.settle()
        seen.append((hook.bits, hook.further))
    assert same_everywhere([flat(model)]) and hook.steps == 10
    told: list[Any] = [None] * SIZE
    dist.all_gather_object(told, [bits for bits, _ in seen])
    assert all(each == told[0] for each in told)
    assert all(2 <= bits <= 32 for bits, _ in seen for _, bits in bits)
    assert hook.training.steps == 9 and hook.training.total.hidden >= 0
    assert float((flat(model) - target).norm() / target.norm()) < 1.0
    hook.close()


def check_it_refines_while_the_next_forward_pass_computes() -> None:
    model, hook, optimizer = make_hook(seconds=0.05, least=0.125)
    for step in range(8):
        step_of(model, optimizer, step)
    hook.settle()
    assert same_everywhere([flat(model)])
    assert all(everywhere(hook.calls > 0)), (hook._deadlines, hook.bits)
    assert hook.training.group_hidden > 0
    hook.close()


def check_mistakes_are_told() -> None:
    model = Layers(0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for least in (0.01, 1.5):
        try:
            AqgbHook(model, optimizer, least=least)
        except thc.ConfigError as error:
            assert f"least is {least}" in str(error)
        else:
            raise AssertionError(f"{least} was taken")
