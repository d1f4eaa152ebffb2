"""Sums that the process group adds up: the bits of a server's, what goes wrong, training."""

from __future__ import annotations

import numpy as np
import thc
import thc.torch
import torch
from checks_training import loss_of, network
from rig import RANK, SIZE, Weights, _made, backward, ddp, error_of, exact_mean, gradients, same_everywhere, sort_options, refused
from thc.torch import CollectiveGroup
from thc.torch.ranks.gathering import Gather

SEED = 77
LENGTHS = (1, 1000, 1024, 70_000, (1 << 20) + 5000)


def tensor(step: int, length: int, rank: int = RANK) -> np.ndarray:
    made = np.random.default_rng(1000 * step + rank).standard_normal(length).astype(np.float32)
    made[length // 3 : length // 2] = 0.0
    return made


def mean(step: int, length: int) -> np.ndarray:
    return np.mean([tensor(step, length, rank).astype(np.float64) for rank in range(SIZE)], axis=0)


def nmse(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.square(found - exact).sum() / np.square(exact).sum())


def check_bits_are_those_of_a_server() -> None:
    """The same calls with the same seed and tables: compressed, RAW, by a plan, with error feedback."""
    server = {"seed": f"{SEED:#x}", "block": 13, "tables": ["bits=2,lane=8"]}
    group = thc.Group.local(RANK, SIZE, store=Gather(None), join=thc.Join(server=server, timeout=60, join_timeout=60))
    tables = [{"bits": t.bits, "granularity": t.granularity, "fraction": t.fraction} for t in group.tables]
    ours = CollectiveGroup(compression=thc.torch.Compression(tables=tables, seed=SEED, threads=2))
    assert [t.values for t in ours.tables] == [t.values for t in group.tables]
    for step, length in enumerate(LENGTHS):
        for planned in [False, True][: 1 + (length > 4096)]:
            # Servers number further tables in their own way.
            plans = [
                [(length // 2, ids[0]), (length // 4, "raw"), (length - length // 2 - length // 4, ids[1])] if planned else None
                for ids in ([t.id for t in each.tables] for each in (group, ours))
            ]
            for options in ({}, {} if planned else {"mode": "raw"}, {"feedback": f"{length}"}, {"feedback": f"{length}"}):
                theirs = group.allreduce(tensor(step, length), plan=plans[0], **options)
                found = ours.allreduce(tensor(step, length), plan=plans[1], **options)
                assert found.tobytes() == theirs.tobytes(), (length, planned, options, np.abs(found - theirs).max())
    # What is kept is the same, too, and so are calls that go on from what was saved.
    assert ours.save_feedback() == group.save_feedback()
    ours.restore_feedback(group.save_feedback())
    again = tensor(9, 70_000), tensor(9, 70_000)
    group.allreduce(again[0], feedback="70000"), ours.allreduce(again[1], feedback="70000")
    assert again[0].tobytes() == again[1].tobytes()
    ours.close()


def check_a_nan_is_an_error_on_all_ranks_and_the_next_call_goes_on() -> None:
    group = CollectiveGroup(compression=thc.torch.Compression(seed=SEED))
    array = tensor(0, 5000)
    group.allreduce(array.copy(), feedback="a")
    before = group.save_feedback()
    if RANK == SIZE - 1:
        array[17] = np.nan
    try:
        group.allreduce(array, feedback="a")
        raise AssertionError("a NaN went unnoticed")
    except thc.NonFiniteError as error:
        assert error.worker == SIZE - 1
    assert group.save_feedback() == before
    assert nmse(group.allreduce(tensor(2, 5000)), mean(2, 5000)) < 0.02


def check_other_calls_on_a_rank_are_an_error_on_all() -> None:
    group = CollectiveGroup(compression=thc.torch.Compression(seed=SEED))
    options = {"feedback": "mine"} if RANK == 0 else {"feedback": "theirs"}
    with refused(thc.MismatchError):
        group.allreduce(tensor(0, 5000), **options)


def check_options_are_checked() -> None:
    for options, word in (
        ({"bits": 4, "tables": [{}]}, "tables"),
        ({"bits": 4 + RANK}, "rank"),
        ({"bits": 8, "lane": 8}, "8"),
    ):
        with refused(thc.ThcError, word):
            CollectiveGroup(compression=thc.torch.Compression(**options))


def check_wrap_averages_and_keeps_feedback() -> None:
    for options in ({"feedback": True}, {}):
        model, hook = _wrap_over_group(seed=SEED, **options)
        for step in range(4):
            means = backward(model, gradients(step))
            error = error_of(means, exact_mean(step))
            assert 1e-5 < error < 0.05, (options, step, error)
            assert same_everywhere(means)
        state = hook.state_dict()
        names = {f"weights.{i}" for i in range(4)}
        assert state["steps"] == 4 and set(state["feedback"]) == (names if options else set())
        hook.load_state_dict(state)
        backward(model, gradients(4))
        assert hook.state_dict()["steps"] == 5 and not hook.fallback_active


def _wrap_over_group(**options: object) -> tuple[torch.nn.Module, thc.torch.Hook]:
    model = thc.torch.wrap(ddp(Weights()), **sort_options(over="process-group", **options))
    hook = thc.torch.hook_of(model)
    _made.append(hook.group)
    return model, hook


def check_wrap_refuses_what_needs_a_server() -> None:
    for options in (
        {"over": "ring"},
        {"over": "process-group", "timeout": 3},
        {"over": "process-group", "server": {}},
        {"lane": 8, "ps": "127.0.0.1:9"},
        {"lane": 8, "server": {"lane": 8}},
    ):
        with refused(thc.ConfigError):
            thc.torch.wrap(ddp(Weights()), **sort_options(**options))


def check_adapt_chooses_lanes() -> None:
    """Of which narrower ones carry less."""
    model, hook = _wrap_over_group(adapt={"every": 4, "threshold": False})
    scales = (1.0, 1e-3, 1.0, 1e-3)
    before = 0.0
    for step in range(14):
        if step == 12:
            before = hook.group.stats().bytes_up
        means = backward(model, [scale * gradient for scale, gradient in zip(scales, gradients(step))])
        assert same_everywhere(means)
        assert error_of(means, [scale * exact for scale, exact in zip(scales, exact_mean(step))]) < 0.05
    plan = hook.plan
    assert plan is not None and plan.ratio > 1.05, str(plan)
    assert any(table != hook.engine.adaptive.tables[0].name for table in plan.choices().values()), str(plan)  # type: ignore[union-attr]
    sent = (hook.group.stats().bytes_up - before) / 2
    # Costs are of both ways, and of whole packets' padding there is none in them.
    assert 0.9 < 2 * sent / plan.cost < 1.25, (sent, plan.cost, str(plan))


def check_the_other_ways_to_train_need_no_server() -> None:
    """What `overlap` and `outer` average travels in lanes, too: replicas stay alike and learn."""
    for make, options in ((thc.torch.overlap, {}), (thc.torch.outer, {"every": 4, "lane": 10})):
        model = network()
        before = float(loss_of(model, 1000).detach())
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        loop = make(model, optimizer, **sort_options(over="process-group", seed=SEED, **options))  # type: ignore[operator]
        _made.append(loop.group)
        assert isinstance(loop.group, CollectiveGroup)
        for step in range(40):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if make is thc.torch.outer:
                optimizer.step()
            loop.step()
        (loop.agree if make is thc.torch.outer else loop.settle)()
        assert same_everywhere(list(model.parameters())) and float(loss_of(model, 1000).detach()) < 0.8 * before
        assert loop.group.stats().bytes_up > 0 and not loop.fallback_active
    for options in ({"timeout": 3}, {"warmup": 3}, {"group": loop.group}, {"lane": 30}):
        model = network()
        with refused(thc.ConfigError):
            thc.torch.overlap(model, torch.optim.SGD(model.parameters(), 0.1), **sort_options(over="process-group", **options))
