"""Steps with and without compression are compared while training: the shorter ones stay, on all ranks alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import rig
import thc
import torch
from rig import (
    RANK,
    SIZE,
    Weights,
    backward,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    join,
    same_everywhere,
    server_of_all,
    wrap_model,
)
from thc.torch.ddp.comparing import EACH, SETTLE

torch.set_num_threads(1)

SIZES = (60_000, 300, 20_000)
STEPS = SETTLE + 2 + 2 * EACH
"""Until a comparison is over."""
EXACT = 1e-9
"""Error of what has not been compressed; 32-bit integers have 1e-15."""
LATE = 0.15
"""Seconds by which the slower way is slower: no machine is as busy."""


def late(does: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """As it was, but late on one rank."""

    def work(*arguments: Any) -> Any:
        if RANK == rank:
            time.sleep(LATE)
        return does(*arguments)

    return work


def step(model: Any, number: int) -> float:
    """A step whose mean is that of all ranks, and the same on all; its error."""
    means = backward(model, gradients(number, sizes=SIZES))
    assert same_everywhere(means), number
    return error_of(means, exact_mean(number, SIZES))


def check_the_slower_way_is_left() -> None:
    """If compression is slow on a rank, all do without from then on; if the process group is, all compress."""
    for options in ({}, {"fallback": False}, {"over": "process-group"}):
        model, hook = wrap_model(Weights(SIZES), feedback=False, only_if_faster=True, **options)
        hook.engine.selector.compressor.submit = late(hook.engine.selector.compressor.submit, 0)
        errors = [step(model, number) for number in range(STEPS)]
        for number, error in enumerate(errors):
            plain = number >= SETTLE and number % 2 == 0
            assert error < EXACT if plain else 1e-4 < error < 0.05, (options, number, error)
        assert hook.comparison is None
        calls = hook.group.stats().calls
        for number in range(STEPS, STEPS + 3):
            assert step(model, number) < EXACT, (options, number)
        found = hook.comparison
        assert found is not None and not found.compresses and found.compressed > LATE
        assert len(set(everywhere(found))) == 1 and "as they are" in str(found)
        assert hook.group.stats().calls == calls and hook.steps == STEPS + 3 and not hook.fallback_active

        model, hook = wrap_model(Weights(SIZES), feedback=False, only_if_faster=True, **options)
        hook.peers.begin_mean = late(hook.peers.begin_mean, SIZE - 1)
        for number in range(STEPS + 3):
            error = step(model, number)
        assert 1e-4 < error < 0.05 and hook.comparison is not None and hook.comparison.compresses
        assert len(set(everywhere(hook.comparison))) == 1


def check_they_are_compared_again() -> None:
    every = SETTLE + 4 * EACH
    model, hook = wrap_model(Weights(SIZES), feedback=False, only_if_faster=every)
    fast = hook.engine.selector.compressor.submit
    hook.engine.selector.compressor.submit = late(fast, 0)
    for number in range(STEPS + 1):
        step(model, number)
    assert hook.comparison is not None and not hook.comparison.compresses
    hook.engine.selector.compressor.submit = fast
    hook.peers.begin_mean = late(hook.peers.begin_mean, 0)
    for number in range(STEPS + 1, every + STEPS + 1):
        step(model, number)
    assert hook.comparison.compresses


def check_a_step_that_is_not_finite_is_skipped_either_way() -> None:
    model, hook = wrap_model(Weights(SIZES), feedback=False, only_if_faster=True)
    for number in range(SETTLE + 2):
        mine = gradients(number, sizes=SIZES)
        mine[0][7] = float("nan") if RANK == 0 and number >= SETTLE else 1.0
        backward(model, mine)
        assert hook.skipped == (number >= SETTLE), number


def check_a_server_that_is_lost() -> None:
    """While steps are compared training falls back, as ever; when it does without, nobody notices."""
    for lost in (SETTLE + 5, STEPS + 2):
        address, server = server_of_all()
        group = join(address, timeout=1.5)
        model, hook = wrap_model(Weights(SIZES), group=group, feedback=False, only_if_faster=True)
        hook.engine.selector.compressor.submit = late(hook.engine.selector.compressor.submit, 0)
        for number in range(lost):
            step(model, number)
        if server is not None:
            server.kill()
        rig.dist.barrier()
        for number in range(lost, lost + 4):
            assert step(model, number) < EXACT, (lost, number)
        assert all(everywhere(hook.fallback_active)) == (lost < STEPS) and (hook.comparison is None) == (lost < STEPS)
        group.close()


def check_options() -> None:
    for options, why in (({"only_if_faster": 7}, "at least"), ({"only_if_faster": "often"}, "True"), ({"only_if_faster": True, "adapt": {}}, "adapt")):
        try:
            wrap_model(Weights((3_000,)), **options)
            raise AssertionError(options)
        except thc.ConfigError as error:
            assert why in str(error), error
