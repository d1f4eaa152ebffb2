"""Each parameter has blocks of its own: what errors come to, above all where a gradient is zero at first, and what stays exact."""

from __future__ import annotations

from typing import Any

import plain  # noqa: F401 - device="torch"
import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import (
    COMPRESSED,
    RANK,
    SIZE,
    Weights,
    backward,
    ddp,
    error_of,
    everywhere,
    join,
    same_everywhere,
    server_of_all,
    wrap_model,
)
from torch import nn

torch.set_num_threads(1)

SIZES = (200_000, 700, 100, 60_000, 300, 90_000)
"""Large parameters, and small ones between them."""
SIZE_OF = (1.0, 30.0, 1e-3, 1e-4, 0.01, 0.3)
"""How large their gradients are."""
EXACT = 1e-5
"""Error of what travels as it is: 32-bit integers, of parameters that are packed together."""
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


class Gated(nn.Module):
    """A block whose gate and shift are zero at first, as in ReZero and adaLN-zero, and an output layer that is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.gate, self.shift = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(width))
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gate * torch.tanh(self.inner(x) + self.shift) + self.out(x) * self.shift


def exact_means(model: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    """What process groups would make of the gradients."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return [_mean(gradient) for gradient in gradients]


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


def check_gates_that_are_zero_at_first() -> None:
    torch.manual_seed(0)
    _train(nn.Sequential(*[Gated(96) for _ in range(3)]), 96, 12)


class Branches(nn.Module):
    """Branches of equal shape, of which each rank uses another one."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.branches[which](x)


def check_branches_that_are_used_late() -> None:
    """Each parameter's error is small when it is used for the first time, and its mean zero while nobody uses it. Ranks that do not use it
    add errors of the size of those that do: with one of SIZE ranks, the error is SIZE times that of equal gradients."""
    torch.manual_seed(0)
    net = Branches()
    model = thc.torch.wrap(ddp(net, find_unused_parameters=True), join=thc.Join(timeout=20, join_timeout=20))
    rig._made.append(thc.torch.hook_of(model).group)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for step in range(24):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * step + RANK))
        which = (step // 3 + RANK) % 4
        want = exact_means(net, net(x, which).square().mean())
        optimizer.zero_grad()
        model(x, which).square().mean().backward()
        for (name, parameter), exact in zip(net.named_parameters(), want):
            mean = torch.zeros_like(exact) if parameter.grad is None else parameter.grad
            assert error_of([mean], [exact]) < SIZE * BOUND if exact.any() else not mean.any(), (step, name)
        optimizer.step()


# What else holds.


def check_a_step_that_is_not_finite() -> None:
    model, hook = wrap_model(Weights(SIZES), feedback=False)
    bad = gradients(0)
    for gradient in bad:
        gradient[5] = float("nan") if RANK == 0 else 1.0
    backward(model, bad)
    assert hook.skipped
    means = backward(model, gradients(1))
    assert max(errors(means, 1)) < BOUND and same_everywhere(means)


def check_what_is_left_out_stays_exact() -> None:
    for options in ({"exclude": "*.0"}, {"min_size": 1000}, {"exclude": ["*.0", "*.5"]}):
        model, hook = wrap_model(Weights(SIZES), feedback=False, **options)
        for step in range(3):
            means = backward(model, gradients(step))
            for name, error in zip([f"weights.{index}" for index in range(len(SIZES))], errors(means, step)):
                exact = not hook._buckets.compresses(name, means[int(name[-1])].numel())
                assert error < 1e-4 if exact else 2e-4 < error < BOUND, (options, step, name, error)


def check_half_precision_and_devices() -> None:
    """Where gradients are compressed makes no bit of difference, f16 comes out as accurate as it is."""
    host, _ = wrap_model(Weights(SIZES), feedback=False, server={"seed": 77})
    device, hook = wrap_model(Weights(SIZES), feedback=False, server={"seed": 77}, device="torch")
    half, _ = wrap_model(Weights(SIZES, torch.float16), feedback=False)
    for step in range(3):
        mine = gradients(step)
        means, others = backward(host, mine), backward(device, mine)
        assert all(torch.equal(a, b) for a, b in zip(means, others)), step
        short = backward(half, [g.half() for g in mine])
        assert short[0].dtype == torch.float16 and same_everywhere(short)
        assert error_of([short[0]], [mean_of(step)[0]]) < BOUND
    assert hook.device is not None and hook.device.where != "cpu"


def check_a_loss_and_a_server_that_is_back() -> None:
    address, server = server_of_all()
    group = join(address, timeout=1.5)
    model, hook = wrap_model(Weights(SIZES), group=group, feedback=False)
    for step in range(2):
        backward(model, gradients(step))
    if server is not None:
        server.kill()
    means = backward(model, gradients(2))
    assert all(everywhere(hook.fallback_active)) and max(errors(means, 2)) < 1e-9
    if server is not None:
        from servers import ParameterServer

        server = ParameterServer({"workers": SIZE}, listen=address)
    rig.dist.barrier()
    assert hook.resume()
    means = backward(model, gradients(3))
    assert 1e-4 < max(errors(means, 3)) < BOUND and same_everywhere(means)
    group.close()
    if server is not None:
        server.kill()
