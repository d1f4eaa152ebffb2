"""What nobody has to ask for: a server that is back is taken back; what `worth_it` measures leaves no trace."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

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
    ddp,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    is_compressed,
    join,
    same_everywhere,
    server_of_all,
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


def check_a_server_that_is_back_is_taken_back() -> None:
    address, server = server_of_all()
    group = join(address, timeout=1.5)
    model, hook = wrap_model(Weights(SIZES), group=group)

    def step(number: int) -> None:
        means = backward(model, gradients(number, sizes=SIZES))
        assert same_everywhere(means) and error_of(means, exact_mean(number, SIZES)) < 0.15, number

    with Soon(), Messages() as messages:
        step(0)
        for _ in range(2):
            rig.dist.barrier()
            if server is not None:
                server.kill()
            number = steps_until(lambda: hook.fallback_active, step, 1)
            for _ in range(3):
                number = steps_until(lambda: hook.fallback_active, step, number)
            if server is not None:
                server = ParameterServer({"workers": SIZE}, listen=address)
            number = steps_until(lambda: not hook.fallback_active, step, number)
            means = backward(model, gradients(number, sizes=SIZES))
            assert same_everywhere(means) and is_compressed(error_of(means, exact_mean(number, SIZES))), "and used"
            assert hook.error is None
        told = [line for line in messages.lines if "is back" in line]
        assert len(told) == (2 if RANK == 0 else 0), messages.lines
    group.close()
    if server is not None:
        server.kill()


def check_two_models_and_a_backup_of_one_group_take_it_back() -> None:
    address, server = server_of_all()
    group = join(address, timeout=1.5)
    made = [wrap_model(Weights(SIZES), group=group) for _ in range(2)]
    plain = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(plain.parameters(), 0.01)
    loop = thc.torch.overlap(plain, optimizer, group=group)

    def step(number: int) -> None:
        for model, _ in made:
            means = backward(model, gradients(number, sizes=SIZES))
            assert same_everywhere(means) and error_of(means, exact_mean(number, SIZES)) < 0.15, number
        optimizer.zero_grad()
        plain(torch.full((1, 64), 0.1 * (RANK + 1))).square().mean().backward()
        optimizer.step()
        # A step that is under way may end with the server taken back.
        loop.settle()

    def active() -> list[bool]:
        return [*(hook.fallback_active for _, hook in made), loop.fallback_active]

    with Soon():
        step(0)
        rig.dist.barrier()
        if server is not None:
            server.kill()
        number = steps_until(lambda: all(active()), step, 1)
        if server is not None:
            server = ParameterServer({"workers": SIZE}, listen=address)
        number = steps_until(lambda: not any(active()), step, number)
        for _ in range(3):
            number = steps_until(lambda: not any(active()), step, number)
    assert same_everywhere(list(plain.parameters()))
    group.close()
    if server is not None:
        server.kill()


def check_measuring_leaves_no_trace() -> None:
    torch.manual_seed(5)
    module = torch.nn.Sequential(torch.nn.Linear(30, 200), torch.nn.BatchNorm1d(200), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(200, 7))
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.randn(64, 30), torch.randint(0, 7, (64,)))
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True)

    def loss(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    loss(module, next(iter(loader))).backward()
    optimizer.step()

    def trace() -> list[torch.Tensor]:
        state = [value for own in optimizer.state.values() for value in own.values()]
        return [*module.parameters(), *module.buffers(), *(p.grad for p in module.parameters()), *state, torch.get_rng_state()]

    before = copy.deepcopy([each.detach() for each in trace()])
    found = thc.torch.worth_it(module, loader, loss, join=thc.Join(timeout=20, join_timeout=20))
    after = trace()
    assert len(before) == len(after) and all(torch.equal(one, other) for one, other in zip(before, after))
    assert found.compressed > 0 and found.plain > 0 and "a step takes" in str(found)
    every: list[Any] = [None] * SIZE
    rig.dist.all_gather_object(every, found)
    assert every == [found] * SIZE, "all ranks have the same answer"


def check_a_slow_way_is_seen() -> None:
    """A rank that is slow to average without compression makes compression pay for all."""
    from thc.torch.ranks.peers import Peers

    begin_mean = Peers.begin_mean

    def late(self: Any, *given: Any) -> Any:
        time.sleep(0.15 if RANK == 0 else 0.0)
        return begin_mean(self, *given)

    model, batches = torch.nn.Linear(300, 300), [torch.randn(4, 300)]
    Peers.begin_mean = late
    try:
        found = thc.torch.worth_it(ddp(model), batches, lambda model, batch: model(batch).square().mean(), join=thc.Join(timeout=20, join_timeout=20))
    finally:
        Peers.begin_mean = begin_mean
    assert found.compresses and found.plain > 0.15, found


def check_what_cannot_be_measured_says_why() -> None:
    def loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).square().mean()

    for options, says in (({"io": "pigeons"}, "io"), ({"loader": []}, "no batch"), ({"adapt": thc.torch.Adapt()}, "adapt")):
        try:
            thc.torch.worth_it(torch.nn.Linear(300, 300), **rig.sort_options(**{"loader": [torch.randn(4, 300)], "loss": loss, **options}))
        except thc.ConfigError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{options} was taken")
