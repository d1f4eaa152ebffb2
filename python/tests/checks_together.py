"""Each tensor's own compression, two stages and the model backup in one training run."""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_training import batch, loss_of, network
from rig import RANK, SIZE, ddp, everywhere, loses, join, same_everywhere, server_of_all
from thc import adapt
from thc.torch.refine.deadlines import Refinement

TABLES = ["bits=2,lane=8", "bits=8,lane=16"]
ADAPT = {"threshold": False, "every": 6}


def loop_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> thc.torch.Overlap:
    if "group" not in options:
        options = {"timeout": 20, "join_timeout": 20, "server": {"tables": TABLES}, **options}
    made = thc.torch.overlap(model, optimizer, **options)
    rig._made.append(made.group)
    return made


def decide(refining: Any, *second: tuple[int, int, str]) -> None:
    """Has buckets refined by number of call and name of width, whatever is measured."""
    deadlines = refining.deadlines
    widths = {width.name: width for width in deadlines._widths}

    def agree(rows: Any, sizes: Any, shares: Any, behind: bool) -> None:
        deadlines.second = [Refinement(bucket, number, widths[name]) for bucket, number, name in second if bucket < len(sizes)]

    deadlines.agree = agree


def loss(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return float(loss_of(model, 1000))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int, seconds: float = 0.0) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        time.sleep(seconds)
        optimizer.step()


def check_a_mean_behind_the_step_is_refined() -> None:
    """Each further call leaves the share that its table leaves."""
    for second, factor in ((), 1), (("4/8",), 2), (("4/8", "4/8"), 3), (("raw",), 0):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        loop = loop_of(model, optimizer, refine={"calls": 2})
        table = loop.group.tables[0]
        theory = adapt.thc_error(table.bits, SIZE, table.granularity, table.fraction, lane=table.lane).left
        decide(loop.refining, *[(0, number, name) for number, name in enumerate(second)])
        train(model, optimizer, 0, 1)
        exact = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double()
        dist.all_reduce(exact)
        loop._later.note_need()
        loop._pieces[0].wait()
        lost = (loop._pieces[0].numbers.double() - exact / SIZE).norm() ** 2 / (exact / SIZE).norm() ** 2
        assert len(loop.refining.refined) == len(second)
        if factor == 0:
            assert lost < 1e-10, lost
        else:
            assert 0.1 < float(lost) / theory**factor < 10, (second, float(lost), theory**factor)
        loop._under_way = False
        loop.group.close()


def check_pieces_that_are_there_before_the_step_is_over_are_refined() -> None:
    """Each piece is told of further calls when the last one of the step is there: on all ranks alike, however early the first ones are."""
    module = sys.modules["thc.torch.loops.gradients"]
    usual, module.PIECE = module.PIECE, 3_000
    try:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        loop = loop_of(model, optimizer, refine={"calls": 1})
    finally:
        module.PIECE = usual
    assert len(loop._pieces) > 1
    decide(loop.refining, *[(bucket, 0, "4/8") for bucket in range(len(loop._pieces))])
    end = loop.engine.steps._end_step

    def end_late(last: Any) -> Any:
        # Training waits for the first pieces already.
        time.sleep(0.0 if last.is_further else 0.02)
        return end(last)

    loop.engine.steps._end_step = end_late
    added = []
    for piece in loop._pieces:
        wait = piece.wait

        def count(piece: Any = piece, wait: Any = wait) -> bool:
            added.append(piece.further is not None)
            return wait()

        piece.wait = count
    train(model, optimizer, 0, 6)
    loop.settle()
    assert added and all(added), added
    assert same_everywhere(list(model.parameters()))


def check_a_backup_finds_the_time_to_refine() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loop = loop_of(model, optimizer, refine=True)
    before, found = loss(model), []
    for step in range(30):
        train(model, optimizer, step, step + 1, 0.03)
        found.append([(each.bucket, each.number, each.width.name) for each in loop.refining.refined])
    loop.settle()
    assert found[-1] and loop.refining.calls > 10, found
    assert all(each == found[-1] for each in everywhere_list(found[-1]))
    assert loss(model) < 0.5 * before and same_everywhere(list(model.parameters()))


def everywhere_list(value: Any) -> list[Any]:
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, value)
    return every


def check_a_backup_adapts() -> None:
    """Choices are those of the ranks together, the plan names the model's parameters, and it learns."""
    model = ddp(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loop = loop_of(model, optimizer, adapt=ADAPT)
    before = loss(model.module)
    train(model, optimizer, 0, 40)
    loop.settle()
    plan = loop.plans[-1]
    chosen = {row.layer: row.choice for row in plan.rows}
    assert set(chosen) == {name for name, _ in model.module.named_parameters()}
    assert all(each == chosen for each in everywhere_list(chosen))
    assert loss(model.module) < 0.5 * before and same_everywhere(list(model.parameters()))


def check_all_together() -> None:
    """What refines goes where the plan says that something is lost."""
    for around in (True, False):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        before = loss(model)
        if around:
            loop = loop_of(model, optimizer, adapt=ADAPT, refine=True)
            refining, plans, settle, trained = loop.refining, lambda: loop.plans, loop.settle, model
        else:
            trained = ddp(model)
            given = {"timeout": 20, "join_timeout": 20, "server": {"tables": TABLES}}
            thc.torch.wrap(trained, adapt=ADAPT, refine=optimizer, **given)
            hook = thc.torch.hook_of(trained)
            rig._made.append(hook.group)
            refining, plans, settle = hook.refining, lambda: hook.plans, hook.settle
        decide(refining, (0, 0, "4/8"))
        train(trained, optimizer, 0, 40)
        settle()
        assert refining.widths and set(refining.widths) == {"adapt"} and refining.calls >= 30, (around, refining.widths, refining.calls)
        assert len(plans()) > 2
        assert loss(model) < 0.5 * before and same_everywhere(list(model.parameters())), (around, before, loss(model))


def check_a_lost_server() -> None:
    """On one rank, at any call of either stage: all have the same common parameters."""
    for lost in range(1, 9):
        address, server = server_of_all({"tables": [{"bits": 2}, {"bits": 8}]})
        group = join(address, timeout=1.5)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        loop = loop_of(model, optimizer, group=group, adapt=ADAPT, refine={"calls": 2})
        decide(loop.refining, (0, 0, "4/8"), (0, 1, "4/8"))
        before = loss(model)
        train(model, optimizer, 0, 3)
        loop.settle()
        undo = loses(group, lost) if RANK == SIZE - 1 else None
        train(model, optimizer, 3, 40)
        loop.settle()
        assert same_everywhere(list(model.parameters())) and all(everywhere(loop.fallback_active)), lost
        assert loss(model) < 0.5 * before and loop.steps == 40 and not loop.skipped, (lost, before, loss(model))
        if undo is not None:
            undo()
        if lost % 4 == 1:
            dist.barrier()
            assert loop.resume() and not loop.fallback_active
            train(model, optimizer, 40, 50)
            loop.settle()
            assert same_everywhere(list(model.parameters())) and loop.refining.refined
        group.close()
        if server is not None:
            server.kill()


def check_not_finite() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loop = loop_of(model, optimizer, adapt=ADAPT, refine=True)
    decide(loop.refining, (0, 0, "4/8"))
    train(model, optimizer, 0, 10)
    optimizer.zero_grad()
    value = loss_of(model, 10)
    (value * float("nan") if RANK == 0 else value).backward()
    optimizer.step()
    train(model, optimizer, 11, 14)
    loop.settle()
    assert loop.skipped == 1, loop.skipped
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters()) and same_everywhere(list(model.parameters()))


def check_parameters_on_a_gpu() -> str | None:
    """Two stages, adaptation and the backup take gradients from where they are, and leave parameters there, as on the host."""
    if not torch.cuda.is_available():
        return "not run: there is no GPU"
    device = torch.device("cuda", RANK % torch.cuda.device_count())
    reached: dict[str, dict[str, torch.Tensor]] = {}
    for where in ("cpu", device):
        for way in ("refine", "adapt and refine", "backup", "together"):
            model = network().to(where)
            optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.5)
            given = {"timeout": 20, "join_timeout": 20, "server": {"tables": TABLES, "seed": 7}}
            if way in ("backup", "together"):
                loop = loop_of(model, optimizer, **({"adapt": ADAPT, "refine": True} if way == "together" else {}), **given)
                refining, settle, trained = loop.refining, loop.settle, model
            else:
                trained = ddp(model)
                adapting = {"adapt": ADAPT} if "adapt" in way else {}
                thc.torch.wrap(trained, refine=optimizer, **adapting, **given)
                hook = thc.torch.hook_of(trained)
                rig._made.append(hook.group)
                refining, settle = hook.refining, hook.settle
            if refining is not None:
                decide(refining, (0, 0, "4/8"), (0, 1, "raw"))
            for step in range(12):
                optimizer.zero_grad()
                inputs, targets = batch(step)
                torch.nn.functional.mse_loss(trained(inputs.to(where)), targets.to(where)).backward()
                optimizer.step()
            settle()
            assert all(p.device.type == torch.device(where).type for p in model.parameters())
            assert same_everywhere([p.detach().cpu() for p in model.parameters()]), (where, way)
            reached.setdefault(way, {})[str(where)] = torch.cat([p.detach().cpu().reshape(-1) for p in model.parameters()])
    for way, (host, there) in ((way, tuple(found.values())) for way, found in reached.items()):
        # A GPU adds up in another order, which compression may round the other way.
        assert float((host - there).norm() / host.norm()) < 0.02, (way, float((host - there).norm() / host.norm()))
    return None


def check_mistakes_are_told() -> None:
    model = network()
    make = functools.partial(thc.torch.overlap, model, torch.optim.SGD(model.parameters(), 0.1))
    for options, says in (
        ({"refine": {"calls": 0}}, "calls is 0"),
        ({"refine": {"much": 1}}, "refine has the options"),
        ({"adapt": {"every": 0}}, "every is 0"),
        ({"refine": True, "fallback": False}, "fallback=False"),
        ({"refine": True, "feedback": False}, "feedback=False"),
    ):
        try:
            made = make(**options)
        except thc.ConfigError as error:
            assert says in str(error), error
        else:
            rig._made.append(made.group)
            raise AssertionError(f"{options} were taken")
