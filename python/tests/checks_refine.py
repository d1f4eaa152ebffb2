"""Two stages: what compression has lost of a mean follows before the next forward pass needs it."""

from __future__ import annotations

import copy
import functools
import io
import threading
import time
from typing import Any

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from hop import Hop
from rig import (
    RANK,
    SIZE,
    ddp,
    everywhere,
    intercept,
    join,
    same_everywhere,
    server_of_all,
)
from thc import adapt
from thc.torch.refine.deadlines import Refinement

TABLES = ["bits=8,lane=16"]
LAYER = 280_000
"""More than a mebibyte, so that DDP makes a bucket of each."""
LAYERS = 4


class Layer(torch.nn.Module):
    """Its value is Σ parameter · input, and to compute that takes a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, LAYER))
        self._seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self._seconds)
        return (self.weight * x).sum()


class Layers(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(seconds) for _ in range(LAYERS))

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([layer(x) for layer, x in zip(self.layers, inputs)]).sum()


def inputs(step: int, rank: int = RANK) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(LAYER, generator=generator) for _ in range(LAYERS)]


def mean(step: int) -> torch.Tensor:
    """Of all ranks' gradients, exactly."""
    every = [torch.cat(inputs(step, rank)) for rank in range(SIZE)]
    return torch.stack(every).double().mean(0)


def refining_model(make: Any = None, seconds: float = 0.02, **options: Any) -> tuple[Any, Any, torch.optim.Optimizer]:
    model = ddp(Layers(seconds))
    optimizer = (make or functools.partial(torch.optim.SGD, lr=1.0))(model.parameters())
    given = {"optimizer": optimizer, **options.pop("refine", {})}
    if "group" not in options:
        options = {"timeout": 20, "join_timeout": 20, "server": {"tables": TABLES}, **options}
    made = thc.torch.wrap(model, refine=given, **options)
    hook = thc.torch.hook_of(made)
    rig._made.append(hook.group)
    return made, hook, optimizer


def decide(hook: Any, *second: tuple[int, int, str], first: str = "4/8") -> None:
    """Has the hook refine buckets by number of call and name of width, whatever it measures."""
    deadlines = hook.refining.deadlines
    widths = {width.name: width for width in deadlines._widths}

    def agree(rows: Any, sizes: Any, shares: Any, behind: bool) -> None:
        deadlines.first = [widths[first]] * len(sizes)
        # DDP makes other buckets, one for each layer, after the first step.
        deadlines.second = [Refinement(bucket, number, widths[name]) for bucket, number, name in second if bucket < len(sizes)]

    deadlines.agree = agree


def step_of(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    model(inputs(step)).backward()
    optimizer.step()


def flat(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().clone().reshape(-1) for p in model.parameters()])


def left_over(hook: Any) -> float:
    """What error feedback has kept, of all ranks' gradients of step 0, as squares."""
    kept = sum(float(each.double().square().sum()) for each in hook.state_dict()["feedback"].values())
    both = torch.tensor([kept, sum(float(x.double().square().sum()) for x in inputs(0))], dtype=torch.float64)
    dist.all_reduce(both)
    return float(both[0] / both[1])


def check_what_is_left_follows_theory() -> None:
    """Each call leaves the share that its table leaves, of what the calls before left; raw nothing."""
    for second, factor in ((), 1), ((("4/8"),), 2), ((("4/8"), ("4/8")), 3), (("raw",), 0):
        model, hook, optimizer = refining_model()
        table = hook.group.tables[0]
        theory = adapt.thc_error(table.bits, SIZE, table.granularity, table.fraction, lane=table.lane).left
        decide(hook, *[(bucket, number, name) for bucket in range(LAYERS) for number, name in enumerate(second)])
        before = flat(model)
        step_of(model, optimizer, 0)
        hook.settle()
        found = left_over(hook)
        if factor == 0:
            assert found < 1e-12, found
        else:
            assert abs(found / theory**factor - 1) < 0.08, (second, found, theory**factor)
        # What is left is exactly what the update lacks.
        error = (before - flat(model)).double() - mean(0)
        assert error.norm() ** 2 / mean(0).norm() ** 2 < 1.5 * max(found, 1e-12) , (second, error.norm())
        assert same_everywhere([flat(model)]) and hook.refining.calls == len(second) * len(hook.refining.widths)
        hook.group.close()


def check_putting_updates_off_changes_nothing() -> None:
    """The bits of a run whose optimizer waits for all refinements at once."""
    second = [(0, 0, "4/8"), (2, 0, "raw"), (3, 0, "4/8"), (3, 1, "8/16")]
    for make in (
        functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
        functools.partial(torch.optim.Adam, lr=1e-2),
    ):
        runs = []
        for at_once in (False, True):
            model, hook, optimizer = refining_model(make, seconds=0.0, cookie=77)
            decide(hook, *second)
            if at_once:
                updates = hook.refining.updates
                updates.step = functools.partial(lambda step, at_once: step(at_once=True), updates.step)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            seen = []
            for step in range(6):
                optimizer.zero_grad()
                model(inputs(step)).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 30.0)
                optimizer.step()
                scheduler.step()
                assert bool(hook.refining.updates._due) != at_once
                seen.append({name: p.clone() for name, p in model.state_dict().items()})
                assert not hook.refining.updates._due, "a checkpoint has all updates in it"
            runs.append((seen, optimizer.state_dict()["state"]))
            assert same_everywhere([flat(model)])
            hook.group.close()
        (one, state), (other, same) = runs
        for a, b in zip(one, other):
            assert all(torch.equal(a[name], b[name]) for name in a)
        for number in state:
            for key, value in state[number].items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(same[number][key])), key


def check_clipping_holds_for_what_follows() -> None:
    """A refinement is scaled as the gradient was, so that raw ones make it exact."""
    model, hook, optimizer = refining_model()
    decide(hook, *[(bucket, 0, "raw") for bucket in range(LAYERS)])
    before = flat(model)
    optimizer.zero_grad()
    model(inputs(0)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    hook.settle()
    moved = (before - flat(model)).double()
    assert torch.allclose(moved, mean(0) * (10.0 / float(norm)), atol=1e-5), (moved - mean(0) * (10.0 / float(norm))).abs().max()


def check_it_finds_the_time_itself() -> None:
    """Layers that are needed late are refined, in the time that computing leaves; nothing where there is no time."""
    model, hook, optimizer = refining_model(seconds=0.05)
    calls = []
    for step in range(10):
        step_of(model, optimizer, step)
        calls.append([(each.bucket, each.number, each.width.name) for each in hook.refining.refined])
    hook.settle()
    assert same_everywhere([flat(model)])
    told: list[Any] = [None] * SIZE
    dist.all_gather_object(told, (calls, hook.refining.widths))
    assert all(each == told[0] for each in told), told
    # DDP's first bucket is of the last layers, which the next forward pass needs last.
    assert calls[-1] and calls[-1][-1][0] == 0, calls
    assert hook.refining.deadlines.bandwidth > 0
    stats = hook.group.stats()
    assert stats.hidden > 0 and stats.row > 0
    hook.group.close()
    model, hook, optimizer = refining_model(seconds=0.0)
    decided = hook.refining.deadlines
    for step in range(6):
        step_of(model, optimizer, step)
        assert all(each.bucket != decided and each.number < 2 for each in decided.second)
    hook.settle()
    assert same_everywhere([flat(model)])


def check_accumulation_evaluation_and_steps_that_are_left_out() -> None:
    model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01), seconds=0.0)
    decide(hook, *[(bucket, 0, "4/8") for bucket in range(LAYERS)])
    for step in range(6):
        optimizer.zero_grad()
        with model.no_sync():
            model(inputs(2 * step)).backward()
        model(inputs(2 * step + 1)).backward()
        if step == 3:
            continue  # as a GradScaler would
        optimizer.step()
        if step % 2:
            with torch.no_grad():
                value = model(inputs(0))
            assert all(everywhere(bool(torch.isfinite(value)))) and not hook.refining.updates._due
    hook.settle()
    assert same_everywhere([flat(model)]) and hook.steps == 6
    # Not finite: no refinement, on no rank.
    optimizer.zero_grad()
    bad = inputs(9)
    if RANK == 0:
        bad[1][5] = float("nan")
    model(bad).backward()
    assert hook.skipped and not hook.refining.refined
    step_of(model, optimizer, 10)
    hook.settle()
    assert same_everywhere([flat(model)])


def check_a_scaler() -> None:
    """Refinements are scaled as gradients are, by a GradScaler itself or by a fused optimizer; a step that overflows on one rank is left
    out on all."""
    for fused in (False, True):
        model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=1.0, fused=fused), seconds=0.0)
        decide(hook, *[(bucket, 0, "raw") for bucket in range(LAYERS)])
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
        for step in range(4):
            before = flat(model)
            optimizer.zero_grad()
            value = model(inputs(step))
            if step == 2 and RANK == SIZE - 1:
                value = value * float("inf")
            scaler.scale(value).backward()
            if step == 1:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            assert bool(hook.refining.updates._due) == (step != 2 and not fused)
            hook.settle()
            moved = (before - flat(model)).double()
            wanted = mean(step) if step != 2 else torch.zeros_like(moved)
            assert float((moved - wanted).abs().max()) < 1e-4, (fused, step, (moved - wanted).abs().max())
            assert same_everywhere([flat(model)])
        assert scaler.get_scale() == 512.0
        hook.group.close()


def check_copies_are_whole_and_by_themselves() -> None:
    """A copy of the model, as of an average of its parameters: with the updates that had been put off, and none of those that come."""
    from torch.optim.swa_utils import AveragedModel

    model, hook, optimizer = refining_model(seconds=0.0)
    decide(hook, *[(bucket, 0, "raw") for bucket in range(LAYERS)])
    updates = hook.refining.updates
    for step, copied in enumerate((copy.deepcopy, lambda module: AveragedModel(module).module, saved_and_loaded)):
        step_of(model, optimizer, step)
        assert updates._due
        made = copied(model.module)
        reached = flat(made)
        assert not updates._due and torch.equal(reached, flat(model)), step
        # It computes, trains and tells its parameters by itself.
        with torch.no_grad():
            made(inputs(step))
            for p in made.parameters():
                p.zero_()
        assert not any(bool(each.any()) for each in made.state_dict().values())
        assert torch.equal(reached, flat(model)) and all(bool(each.any()) for each in model.state_dict().values())
    step_of(model, optimizer, 3)
    other = copy.deepcopy((model.module, optimizer))
    reached = flat(other[0])
    assert not updates._due and torch.equal(reached, flat(model))
    # A copied optimizer is one of torch's, of the copied model.
    other[0](inputs(3)).backward()
    other[1].step()
    assert torch.equal(reached, flat(model)) and not torch.equal(reached, flat(other[0])) and not updates._due
    step_of(model, optimizer, 4)
    one_layer = model.module.layers[2]
    assert updates._due and torch.equal(one_layer.state_dict()["weight"], one_layer.weight) and not updates._due


def saved_and_loaded(module: torch.nn.Module) -> torch.nn.Module:
    box = io.BytesIO()
    torch.save(module, box)
    box.seek(0)
    found: torch.nn.Module = torch.load(box, weights_only=False)
    return found


def check_a_checkpoint_goes_on() -> None:
    model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9), seconds=0.0)
    decide(hook, (0, 0, "4/8"), (1, 0, "raw"))
    for step in range(3):
        step_of(model, optimizer, step)
    box = io.BytesIO()
    torch.save((model.module.state_dict(), optimizer.state_dict(), hook.state_dict()), box)
    for step in range(3, 5):
        step_of(model, optimizer, step)
    hook.settle()
    reached = flat(model)
    hook.group.close()
    box.seek(0)
    parameters, state, kept = torch.load(box)
    model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9), seconds=0.0)
    decide(hook, (0, 0, "4/8"), (1, 0, "raw"))
    model.module.load_state_dict(parameters)
    optimizer.load_state_dict(state)
    hook.load_state_dict(kept)
    assert hook.steps == 3
    for step in range(3, 5):
        step_of(model, optimizer, step)
    hook.settle()
    # The job counts its rounds anew, so signs differ, and with them what compression loses.
    assert same_everywhere([flat(model)]) and float((flat(model) - reached).norm() / reached.norm()) < 0.05


def check_a_rank_loses_the_server_while_it_refines() -> None:
    """At each call of the second stage, also at those that tell that all have it: it is left out or in on all ranks."""
    for lost in range(6):
        address, server = server_of_all()
        group = join(address, timeout=1.5)
        model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01), seconds=0.0, group=group)
        decide(hook, (0, 0, "4/8"), (1, 0, "raw"), (3, 0, "4/8"))
        step_of(model, optimizer, 0)
        hook.settle()
        dist.barrier()
        allreduce, calls = group.allreduce, []

        def fails(array: Any, **options: Any) -> Any:
            calls.append(array.size)
            allreduce(array, **options)
            # Buckets and the end of the first stage, then the second.
            if len(calls) > LAYERS + 1 + lost:
                array[: array.size // 2] = 7.0
                raise thc.SilentError("the parameter server has not answered")

        if RANK == SIZE - 1:
            intercept(group, fails)
        for step in (1, 2, 3):
            step_of(model, optimizer, step)
        hook.settle()
        assert same_everywhere([flat(model)]), lost
        assert all(everywhere(hook.fallback_active)) and hook.steps == 4, lost
        before = flat(model)
        step_of(model, optimizer, 4)
        assert float(((before - flat(model)).double() / 0.01 - mean(4)).abs().max()) < 1e-2, "exact, by the process group"
        group.close()
        if server is not None:
            server.kill()


def check_the_last_answer_of_the_first_stage_is_lost() -> None:
    """The others know what is to be refined, and one rank does not; or there is nothing to refine."""
    for second in ([(0, 0, "4/8"), (2, 0, "raw")], []):
        address, server = server_of_all()
        group = join(address, timeout=1.5)
        model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01), seconds=0.0, group=group)
        decide(hook, *second)
        step_of(model, optimizer, 0)
        hook.settle()
        dist.barrier()
        allreduce, calls = group.allreduce, []

        def fails(array: Any, **options: Any) -> Any:
            calls.append(array.size)
            if len(calls) > LAYERS + 1:
                raise thc.SilentError("the parameter server has not answered")
            allreduce(array, **options)
            if len(calls) == LAYERS + 1:
                raise thc.SilentError("the parameter server has not answered")

        if RANK == 0:
            intercept(group, fails)
        for step in (1, 2, 3):
            step_of(model, optimizer, step)
        hook.settle()
        assert same_everywhere([flat(model)]), second
        assert all(everywhere(hook.fallback_active)) and hook.steps == 4, second
        group.close()
        if server is not None:
            server.kill()


def check_the_server_dies_while_it_refines() -> None:
    address, server = server_of_all()
    group = join(address, timeout=1.5)
    model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01), seconds=0.005, group=group)
    decide(hook, *[(bucket, 0, "raw") for bucket in range(LAYERS)])
    step_of(model, optimizer, 0)
    step_of(model, optimizer, 1)
    begin = hook.refining.begin

    def dies(buckets: Any) -> Any:
        found = begin(buckets)
        if server is not None and hook.steps == 3:
            # Within one of these calls or between two.
            threading.Timer(0.003, server.kill).start()
        return found

    hook.refining.begin = dies
    for step in range(2, 7):
        step_of(model, optimizer, step)
    hook.settle()
    assert same_everywhere([flat(model)]) and hook.steps == 7
    assert all(everywhere(hook.fallback_active))
    group.close()


def check_the_link_vanishes_for_five_seconds_while_it_refines() -> None:
    """One rank's link: all wait for it, and then they go on as if nothing had been."""
    address, server = server_of_all()
    hop = Hop(address)
    group = join(hop.address, timeout=20)
    model, hook, optimizer = refining_model(functools.partial(torch.optim.SGD, lr=0.01), seconds=0.005, group=group)
    second = [*[(bucket, 0, "4/8") for bucket in range(LAYERS)], (3, 1, "raw")]
    decide(hook, *second)
    begin = hook.refining.begin

    def vanishes(buckets: Any) -> Any:
        found = begin(buckets)
        if hook.steps == 3 and RANK == SIZE - 1:
            hop.vanish(5.0)
        return found

    hook.refining.begin = vanishes
    began = time.monotonic()
    for step in range(6):
        step_of(model, optimizer, step)
    hook.settle()
    assert time.monotonic() - began > 5.0
    assert same_everywhere([flat(model)]) and not any(everywhere(hook.fallback_active))
    assert hook.steps == 6 and len(hook.refining.refined) == len(second)
    assert RANK < SIZE - 1 or hop.lost > 0
    # It was a forward pass that waited.
    assert hook.group.training.total.waited > 4.0
    group.close()
    hop.close()
    if server is not None:
        server.kill()


def check_mistakes_are_told() -> None:
    model = ddp(Layers(0.0))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for options, says in (
        ({"refine": model}, "give it the model's optimizer"),
        ({"refine": {"least": 0.5}}, "needs optimizer"),
        ({"refine": {"optimizer": optimizer, "least": 0.0}}, "least is 0.0"),
        ({"refine": {"optimizer": optimizer, "calls": 0}}, "calls is 0"),
        ({"refine": optimizer, "feedback": False}, "leave feedback=False out"),
        ({"refine": optimizer, "fallback": False}, "leave fallback=False out"),
        ({"refine": optimizer, "server": {"policy": "best-effort"}}, "loses nothing"),
    ):
        try:
            thc.torch.wrap(ddp(Layers(0.0)), timeout=20, join_timeout=20, **options)
        except thc.ConfigError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{options} were taken")
