"""SlimGC's model backup, on any number of ranks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_training import loss_of, network
from rig import RANK, SIZE, ddp, everywhere, loses, same_everywhere, served


def loop_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> thc.torch.Overlap:
    made = thc.torch.overlap(model, optimizer, **rig.sort_options(timeout=20, join_timeout=20, **options))
    rig._made.append(made.group)
    return made


def loss(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return float(loss_of(model, 1000))


def train(model: torch.nn.Module, loop: thc.torch.Overlap, first: int, last: int) -> None:
    for step in range(first, last):
        loop._optimizer.zero_grad()
        loss_of(model, step).backward()
        loop.step()


def check_it_is_slimgcs_definition() -> None:
    """w of step i + 1 = w − η · mean of g, with g computed at w − η · own g of the step before: recomputed here from the means that
    arrived, so but for rounding exactly."""
    model, reference = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loop = loop_of(model, optimizer)
    names = [name for name, _ in reference.named_parameters()]
    common = {name: p.detach().clone() for name, p in reference.named_parameters()}
    own: dict[str, torch.Tensor] = {}
    pending: dict[str, torch.Tensor] = {}

    def arrive() -> None:
        for name, mean in pending.items():
            common[name] = common[name] - 0.05 * mean

    for step in range(6):
        # Where the gradients of this step are computed.
        here = {name: common[name] - 0.05 * own[name] if own else common[name] for name in names}
        for name, p in model.named_parameters():
            assert torch.allclose(p, here[name], atol=1e-6), (step, name)
        with torch.no_grad():
            for name, p in reference.named_parameters():
                p.copy_(here[name])
        reference.zero_grad()
        loss_of(reference, step).backward()
        own = {name: p.grad.clone() for name, p in reference.named_parameters()}
        train(model, loop, step, step + 1)
        # Staleness is one: the mean of the step before moves the common parameters, that of this step will at the next.
        arrive()
        loop._pieces[0].wait()
        mean = loop._pieces[0].numbers.clone()
        loop._pieces[0]._arrival = Come()
        exact = torch.cat([own[name].reshape(-1) for name in names])
        dist.all_reduce(exact)
        assert rig.is_compressed(rig.error_of([mean], [exact / SIZE])) or step
        pieces = mean.split([common[name].numel() for name in names])
        pending = {name: piece.view_as(common[name]) for name, piece in zip(names, pieces)}
    arrive()
    loop.settle()
    for name, p in model.named_parameters():
        assert torch.allclose(p, common[name], atol=1e-6), name
    assert same_everywhere(list(model.parameters())) and loop.steps == 6


class Come:
    """The arrival of a mean that has been waited for."""

    def wait(self) -> None:
        pass


def check_it_learns_with_and_without_the_backup() -> None:
    cases: list[Any] = [
        (functools.partial(torch.optim.AdamW, lr=3e-3), {}),
        (functools.partial(torch.optim.SGD, lr=0.2), {"backup": False}),
    ]
    for make, options in cases:
        model = network()
        if RANK:  # what other ranks begin with does not matter
            with torch.no_grad():
                next(model.parameters()).add_(1.0)
        optimizer = make(model.parameters())
        called: list[str] = []
        optimizer.register_step_pre_hook(lambda *_, called=called: called.append("before"))
        optimizer.register_step_post_hook(lambda *_, called=called: called.append("after"))
        loop = loop_of(model, optimizer, **options)
        before = loss(model)
        train(model, loop, 0, 60)
        loop.settle()
        assert called == ["before", "after"] * 60, "once for each mean"
        assert loss(model) < 0.5 * before, (options, before, loss(model))
        assert same_everywhere(list(model.parameters())), options
        assert loop.steps == 60 and not loop.skipped


def check_a_local_update_is_the_optimizers_and_leaves_no_trace() -> None:
    """It is at what the optimizer makes of the common parameters by this rank's own gradient, momentum and all: where that is the mean,
    as here, training is that of one process."""
    for make in (
        functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01),
        functools.partial(torch.optim.Adam, lr=3e-3),
    ):
        model, alone = network(), network()
        optimizer, reference = make(model.parameters()), make(alone.parameters())
        loop = loop_of(model, optimizer)
        loop.engine.begin = lambda pieces: [setattr(piece, "_arrival", Come()) for piece in pieces]
        for step in range(8):
            train(model, loop, step, step + 1)
            reference.zero_grad()
            loss_of(alone, step).backward()
            reference.step()
            for p, q in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(p, q, atol=1e-6), (step, (p - q).abs().max())
        loop.settle()
        for p, q in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(p, q, atol=1e-6)
            for key, value in optimizer.state[p].items():
                assert torch.allclose(torch.as_tensor(value), torch.as_tensor(reference.state[q][key]), atol=1e-6), key


def check_a_scaler() -> None:
    """A rank whose gradients overflow does not leave the others alone, and all leave the step out."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    loop = loop_of(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    before = loss(model)
    for step in range(60):
        optimizer.zero_grad()
        value = loss_of(model, step)
        if step == 5 and RANK == SIZE - 1:
            value = value * float("inf")
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        loop.step()
        scaler.update()
    loop.settle()
    assert loop.skipped == 1, loop.skipped
    assert scaler.get_scale() == (512.0 if RANK == SIZE - 1 else 1024.0)
    assert loss(model) < 0.7 * before and same_everywhere(list(model.parameters()))


def check_a_lost_server() -> None:
    """On one rank, at any call: all go on through the process group with the same common parameters, and back when it is there again."""
    for lost in range(1, 6):
        server, group = served(timeout=1.5)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        loop = thc.torch.overlap(model, optimizer, group=group)
        before = loss(model)
        train(model, loop, 0, 2)
        loop.settle()
        undo = loses(group, lost) if RANK == SIZE - 1 else None
        train(model, loop, 2, 40)
        loop.settle()
        assert same_everywhere(list(model.parameters())) and all(everywhere(loop.fallback_active)), lost
        assert loss(model) < 0.5 * before and loop.steps == 40 and not loop.skipped, (lost, before, loss(model))
        if undo is not None:
            undo()
        if lost == 1:
            dist.barrier()
            assert loop.resume() and not loop.fallback_active
            train(model, loop, 40, 44)
            loop.settle()
            assert same_everywhere(list(model.parameters())) and group.stats().calls > 4


def check_a_checkpoint_has_error_feedback() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loop = loop_of(model, optimizer)
    train(model, loop, 0, 5)
    saved = loop.state_dict()
    assert same_everywhere(list(model.parameters())), "saving settles"
    assert saved["steps"] == 5 and set(saved["feedback"]) == {name for name, _ in model.named_parameters()}
    again = network()
    other = torch.optim.SGD(again.parameters(), 0.1, momentum=0.9)
    second = loop_of(again, other)
    second.load_state_dict(saved)
    # The loop, which was there before, goes on from what is loaded now.
    again.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    loaded = second.state_dict()["feedback"]
    assert all(bool(kept.any()) and torch.equal(kept, loaded[name]) for name, kept in saved["feedback"].items())
    train(again, second, 5, 6)
    second.settle()
    assert second.state_dict()["steps"] == 6 and same_everywhere(list(again.parameters()))
    for p, q in zip(again.parameters(), model.parameters()):
        assert not torch.equal(p, q) and float((p.detach() - q).norm()) < 0.5 * float(q.norm())


def check_parameters_are_frozen_unfrozen_and_added() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    unused = torch.nn.Parameter(torch.randn(2000))
    model.register_parameter("unused", unused)
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([*model[0].parameters(), *model[1].parameters(), unused], 0.01)
    loop = loop_of(model, optimizer)
    generator = torch.Generator().manual_seed(RANK)

    def train(steps: int) -> None:
        for _ in range(steps):
            model(torch.randn(8, 64, generator=generator)).square().sum().backward()
            loop.step()
            optimizer.zero_grad()

    def moved(parameter: torch.nn.Parameter, before: torch.Tensor) -> bool:
        return not torch.equal(parameter, before)

    first, second, idle = model[0].weight.detach().clone(), model[1].weight.detach().clone(), unused.detach().clone()
    train(3)
    loop.settle()
    assert not moved(model[0].weight, first) and moved(model[1].weight, second)
    model[0].requires_grad_(True)
    with pytest.raises(thc.ConfigError, match="overlap anew"):
        train(1)
    optimizer.zero_grad()
    with pytest.raises(thc.ConfigError, match="in place of optimizer.step"):
        optimizer.step()
    third = model[2].weight.detach().clone()
    optimizer.add_param_group({"params": list(model[2].parameters())})
    loop = thc.torch.overlap(model, optimizer, group=loop.group)
    train(3)
    loop.settle()
    assert moved(model[0].weight, first) and moved(model[2].weight, third) and same_everywhere(list(model.parameters()))
    # What nothing uses has no gradient, and no noise of what travels beside it.
    assert not moved(unused, idle)


def check_mistakes_are_told() -> None:
    module = network().double()
    with pytest.raises(thc.ConfigError, match="f64"):
        thc.torch.overlap(module, torch.optim.SGD(module.parameters(), 0.1))


def check_a_backup_adapts() -> None:
    """Choices are those of the ranks together, the plan names the model's parameters, and it learns."""
    model = ddp(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    adapting = {"threshold": False, "every": 6}
    loop = loop_of(model, optimizer, adapt=adapting, server={"tables": ["bits=2,lane=8", "bits=8,lane=16"]})
    before = loss(model.module)
    train(model, loop, 0, 40)
    loop.settle()
    chosen = {row.layer: row.choice for row in loop.plans[-1].rows}
    assert set(chosen) == {name for name, _ in model.module.named_parameters()}
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, chosen)
    assert all(each == chosen for each in every)
    assert loss(model.module) < 0.5 * before and same_everywhere(list(model.parameters()))
    with pytest.raises(thc.ConfigError, match="every is 0"):
        thc.torch.overlap(network(), optimizer, compression=thc.torch.Compression(adapt=thc.torch.Adapt(every=0)))
