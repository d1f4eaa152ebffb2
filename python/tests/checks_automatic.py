"""What nobody has to ask for: a server that is back is taken back; what `worth_it` measures leaves no trace."""

from __future__ import annotations

import copy
import math
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
from thc.torch.ranks import scout

SIZES = (40_000, 500)


class Soon:
    """Lost servers are asked for often."""

    def __enter__(self) -> None:
        self._period = scout.PERIOD
        scout.PERIOD = 0.05

    def __exit__(self, *_: object) -> None:
        scout.PERIOD = self._period


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
    found = thc.torch.worth_it(module, loader, loss=loss, optimizer=optimizer, seconds=3, timeout=20, join_timeout=20)
    after = trace()
    assert len(before) == len(after) and all(torch.equal(one, other) for one, other in zip(before, after))
    assert [way.name for way in found.ways] == ["as it is", "bf16", "THC", "THC, no server"]
    measured = [way for way in (found.alone, *found.ways) if way.seconds is not None]
    # gloo of the oldest torch adds no bf16.
    assert len(measured) >= 4 and all(way.seconds > 0 and way.steps > 0 and not way.why for way in measured), str(found)
    assert found.ranks == SIZE and found.coordinates == sum(p.numel() for p in module.parameters()) and found.gigabits > 0
    assert found.best in found.ways and found.gain >= 1 and found.advice
    text = str(found)
    assert "times as fast" in text and "no averaging" in text and "Gb/s" in text
    assert len(set(everywhere_text(text))) == 1, "all ranks have the same answer"


def everywhere_text(text: str) -> list[str]:
    every: list[str] = [""] * SIZE
    rig.dist.all_gather_object(every, text)
    return every


def check_what_cannot_be_measured_says_why() -> None:
    model = ddp(torch.nn.Linear(300, 300))
    batches = [torch.randn(4, 300)]
    found = thc.torch.worth_it(model, batches, seconds=1, io="pigeons", join_timeout=20)
    broken = next(way for way in found.ways if way.name == "THC")
    assert broken.seconds is None and "io" in broken.why and "not measured" in str(found), str(found)
    for options, says in (({"seconds": 0}, "seconds"), ({"loader": []}, "no batch")):
        try:
            thc.torch.worth_it(model, **{"loader": batches, **options})
        except thc.ConfigError as error:
            assert says in str(error)
        else:
            raise AssertionError(f"{options} was taken")


def check_advice_follows_from_the_figures() -> None:
    from thc.torch.worth import Measured, Worth

    def worth(alone: float, plain: float, halves: float, through: float, **more: float) -> Worth:
        ways = [Measured("as it is", "nothing", plain), Measured("bf16", "halves", halves), Measured("THC", "wrap", through, **more)]
        return Worth(4, 1_000_000, 1.0, Measured("no averaging", "", alone), ways)

    hidden = worth(0.9, 1.0, 0.95, 0.8)
    assert hidden.best.name == "as it is" and "next to nothing" in hidden.advice[0] and hidden.gain == 1.0
    gains = worth(0.3, 1.0, 0.8, 0.4)
    assert gains.best.name == "THC" and math.isclose(gains.gain, 2.5) and gains.advice == ["Write wrap: a step is 2.50 times as fast."]
    assert worth(0.3, 1.0, 0.5, 0.6).best.name == "bf16"
    slow = worth(0.3, 1.0, 0.97, 1.5, compression=1.0, repeated=0.02)
    assert slow.best.name == "as it is" and "threads" in slow.advice[1] and "sent again" in slow.advice[2]
