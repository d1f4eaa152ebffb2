"""DiLoCo's outer loop through THC, on any number of ranks."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_training import loss_of, network
from rig import RANK, everywhere, loses, same_everywhere, served, refused


def loop_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> thc.torch.Outer:
    made = thc.torch.outer(model, optimizer, **rig.sort_options(timeout=20, join_timeout=20, **options))
    rig._made.append(made.group)
    return made


def train(model: torch.nn.Module, loop: thc.torch.Outer, first: int, last: int) -> None:
    for step in range(first, last):
        loop._optimizer.zero_grad()
        loss_of(model, step).backward()
        loop._optimizer.step()
        loop.step()


def train_by_definition(
    reference: torch.nn.Module, inner: torch.optim.Optimizer, islands: Any = None, average: Callable[[], None] = lambda: None
) -> None:
    """Twelve inner steps, before each of which gradients are averaged inside an island; after each fourth one Nesterov on the mean difference."""
    common = [torch.nn.Parameter(p.detach().clone()) for p in reference.parameters()]
    above = torch.optim.SGD(common, 0.7, momentum=0.9, nesterov=True)
    for step in range(12):
        inner.zero_grad()
        loss_of(reference, step).backward()
        average()
        inner.step()
        if step % 4 == 3:
            for all_, mine in zip(common, reference.parameters()):
                all_.grad = all_.detach() - mine.detach()
                dist.all_reduce(all_.grad, group=islands)
                all_.grad /= dist.get_world_size(islands)
            above.step()
            with torch.no_grad():
                for all_, mine in zip(common, reference.parameters()):
                    mine.copy_(all_)


def same_parameters(model: torch.nn.Module, reference: torch.nn.Module) -> bool:
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(model.parameters(), reference.parameters()))


def check_it_is_diloco() -> None:
    """Uncompressed and without delay, bit for bit up to fixed point what the definition says."""
    model, reference = network(), network()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loop = loop_of(model, optimizer, every=4, delay=0, mode="raw")
    train(model, loop, 0, 12)
    train_by_definition(reference, torch.optim.Adam(reference.parameters(), 3e-3))
    assert loop.steps == 12 and loop.rounds == 3
    assert same_parameters(model, reference) and same_everywhere(list(model.parameters()))


def check_a_lost_server() -> None:
    """On one rank, at any call, with differences of several parts under way: all go on through the process group, with the same
    parameters at the end."""
    for lost in range(1, 5):
        server, group = served(timeout=1.5)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        loop = thc.torch.outer(model, optimizer, every=4, parts=2, delay=2, group=group)
        train(model, loop, 0, 4)
        loop.finish()
        if RANK == 0:
            loses(group, lost)
        train(model, loop, 4, 24)
        loop.agree()
        assert same_everywhere(list(model.parameters())) and all(everywhere(loop.fallback_active)), lost
        assert not loop.skipped and all(bool(torch.isfinite(p).all()) for p in model.parameters())
        # Two parts every four steps, and both once more at the end.
        assert loop.rounds == 2 * 24 // 4 + 2, (lost, loop.rounds)


def check_it_learns_compressed_in_parts_while_steps_go_on() -> None:
    model = network()
    if RANK:  # what other ranks begin with does not matter
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loop = loop_of(model, optimizer, every=8, parts=4)
    assert len(loop._parts) == 4 and loop.delay == 2
    with torch.no_grad():
        before = float(loss_of(model, 1000))
    for step in range(0, 96, 12):
        train(model, loop, step, step + 12)
        assert same_everywhere([part.agreed for part in loop._parts]), "what is common is the same bits at any time"
    loop.agree()
    with torch.no_grad():
        after = float(loss_of(model, 1000))
    assert after < 0.67 * before, (before, after)
    assert same_everywhere(list(model.parameters()))
    coordinates = sum(p.numel() for p in model.parameters())
    assert loop.group.stats().coordinates <= 14 * coordinates, "an eighth of what every step would send"


def check_a_rank_that_is_not_finite_goes_on_from_the_others() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loop = loop_of(model, optimizer, every=4, delay=0)
    train(model, loop, 0, 5)
    if RANK == 0:
        with torch.no_grad():
            next(model.parameters())[0, 0] = float("nan")
    train(model, loop, 5, 8)
    assert loop.skipped == 1 and loop.rounds == 1
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    train(model, loop, 8, 12)
    assert loop.rounds == 2
    loop.agree()
    assert same_everywhere(list(model.parameters()))


def check_checkpoint() -> None:
    """A run that stops and goes on ends with the bits of one that does not."""

    def begin() -> tuple[torch.nn.Module, torch.optim.Optimizer, thc.torch.Outer]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        return model, optimizer, loop_of(model, optimizer, every=4, parts=2, mode="raw")

    model, optimizer, loop = begin()
    train(model, loop, 0, 10)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "outer": loop.state_dict()}, saved)
    state = torch.load(io.BytesIO(saved.getvalue()), weights_only=True)
    train(model, loop, 10, 20)
    again, other, second = begin()
    # Loading comes after making the loop, which copies rank 0's parameters.
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    second.load_state_dict(copy.deepcopy(state["outer"]))
    train(again, second, 10, 20)
    loop.finish()
    second.finish()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))


def check_parameters_are_frozen_and_unfrozen() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    loop = loop_of(model, optimizer, every=4, parts=2, delay=1)
    generator = torch.Generator().manual_seed(RANK)

    def steps(count: int) -> None:
        for _ in range(count):
            model(torch.randn(8, 64, generator=generator)).square().sum().backward()
            optimizer.step()
            loop.step()
            optimizer.zero_grad()

    first = model[0].weight.detach().clone()
    steps(10)
    assert torch.equal(model[0].weight, first)
    loop.agree()
    model[0].requires_grad_(True)
    with refused(thc.ConfigError, "outer anew"):
        steps(1)
    loop = thc.torch.outer(model, optimizer, every=4, parts=2, delay=1, group=loop.group)
    steps(10)
    loop.agree()
    assert not torch.equal(model[0].weight, first) and same_everywhere(list(model.parameters()))


def check_mistakes_are_told() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for options, says in (
        ({"every": 0}, "every is 0"),
        ({"every": 4, "parts": 5}, "parts is 5: give 1 to 4"),
        ({"every": 4, "delay": 5}, "delay is 5"),
    ):
        with refused(thc.ConfigError, says):
            thc.torch.outer(model, optimizer, **rig.sort_options(**options))
    with refused(thc.ConfigError, "average every gradient"):
        thc.torch.outer(rig.ddp(model), optimizer, every=4)
