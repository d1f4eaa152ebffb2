"""A server that is back is taken back without being asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

import rig
import thc
import thc.torch
import torch
from patience import HANG
from rig import (
    RANK,
    SIZE,
    Messages,
    Weights,
    backward,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    is_compressed,
    same_everywhere,
    served,
    wrap_model,
)
from servers import ParameterServer
from thc.torch.ranks import health

SIZES = (40_000, 500)


class Soon:
    """Lost servers are asked for often."""

    def __enter__(self) -> None:
        self._period = health.SERVER_PERIOD
        health.SERVER_PERIOD = 0.05

    def __exit__(self, *_: object) -> None:
        health.SERVER_PERIOD = self._period


def steps_until(over: Callable[[], bool], step: Callable[[int], None], first: int) -> int:
    """Makes steps until it is so, at the same step on all ranks; the number of the next one."""
    began = time.monotonic()
    while True:
        step(first)
        first += 1
        flags = everywhere(over())
        assert len(set(flags)) == 1, flags
        if flags[0]:
            return first
        assert time.monotonic() - began < HANG / 4, "the server was not taken back"
        time.sleep(0.02)


def check_two_models_and_a_backup_of_one_group_take_a_server_back() -> None:
    """Twice, and each says so."""
    server, group = served(timeout=1.5)
    made = [wrap_model(Weights(SIZES), group=group) for _ in range(2)]
    plain = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(plain.parameters(), 0.01)
    loop = thc.torch.overlap(plain, optimizer, group=group)
    errors: list[float] = []

    def step(number: int) -> None:
        for model, _ in made:
            means = backward(model, gradients(number, sizes=SIZES))
            errors.append(error_of(means, exact_mean(number, SIZES)))
            assert same_everywhere(means) and errors[-1] < 0.15, number
        optimizer.zero_grad()
        plain(torch.full((1, 64), 0.1 * (RANK + 1))).square().mean().backward()
        loop.step()
        # A step that is under way may end with the server taken back.
        loop.settle()

    def active() -> list[bool]:
        return [*(hook.fallback_active for _, hook in made), loop.fallback_active]

    with Soon(), Messages() as messages:
        step(0)
        for _ in range(2):
            rig.dist.barrier()
            if server is not None:
                server.kill()
            number = steps_until(lambda: all(active()), step, 1)
            for _ in range(3):
                number = steps_until(lambda: all(active()), step, number)
            if server is not None:
                server = ParameterServer({"workers": SIZE}, listen=group.ps)
            number = steps_until(lambda: not any(active()), step, number)
            for _ in range(3):
                number = steps_until(lambda: not any(active()), step, number)
            assert is_compressed(errors[-1]) and all(each.error is None for each in (*(hook for _, hook in made), loop))
    told = [line for line in messages.lines if "is back" in line]
    assert len(told) == (6 if RANK == 0 else 0), messages.lines
    assert same_everywhere(list(plain.parameters()))
