"""Four ranks of which three are enough: whoever is late is skipped, and comes back with the others' parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import rig
import thc
import thc.torch
import torch
from rig import RANK, SIZE, ddp, everywhere, same_everywhere, served, refused
from servers import ParameterServer
from thc.torch.ranks import health

QUORUM = SIZE - 1
SLOTS = 64
"""So few that nobody gets the mean of a step that is several steps old."""
JOB = {"quorum": QUORUM, "data_slots": SLOTS, "norm_slots": 8}
OWN = {"quorum": QUORUM, "data_slots": SLOTS, "norm_slots": 8}


def network() -> torch.nn.Module:
    torch.manual_seed(11)
    return torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 200), torch.nn.ReLU(), torch.nn.Linear(200, 8))


def batches(count: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """With their number; each rank its own."""
    for step in range(count):
        generator = torch.Generator().manual_seed(1000 * step + RANK)
        inputs = torch.randn(16, 64, generator=generator)
        yield step, inputs, inputs[:, :8].sign()


def make(group: thc.Group | None = None, **options: Any) -> tuple[Any, torch.optim.Optimizer, Any, thc.torch.KeepUp]:
    given = {"group": group} if group is not None else {"server": OWN, "timeout": 20, "join_timeout": 20}
    model = thc.torch.wrap(ddp(network()), **rig.sort_options(**given, **options))
    rig._made.append(thc.torch.hook_of(model).group)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step)
    return model, optimizer, scheduler, thc.torch.keep_up(model, optimizer, scheduler)


def train(parts: Any, count: int, before: Callable[[int], None] = lambda step: None) -> int:
    """Steps that this rank made of so many, and the end of training."""
    model, optimizer, scheduler, keep = parts
    own = 0
    for step, inputs, targets in keep.steps(batches(count)):
        before(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
        own += 1
    keep.finish()
    verify(parts, count)
    return own


def verify(parts: Any, count: int) -> None:
    model, optimizer, scheduler, keep = parts
    assert same_everywhere(list(model.parameters())), "all ranks have the same parameters at the end"
    assert same_everywhere([state["momentum_buffer"] for state in optimizer.state.values()])
    assert thc.torch.hook_of(model).steps == count and scheduler.last_epoch == count, (thc.torch.hook_of(model).steps, scheduler.last_epoch)
    assert not keep.behind and not thc.torch.hook_of(model).skipped
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    # On a busy machine many means lack somebody, so how much is learned differs.
    untrained = network()
    with torch.no_grad():
        losses, before = ([float(torch.nn.functional.mse_loss(net(inputs), targets)) for _, inputs, targets in batches(6)] for net in (model, untrained))
    assert sum(losses) < sum(before), (losses, before)


class Late:
    """A rank that at some of its steps does not go on until the others have made so many further ones, which they count in a store; or five
    seconds: they may be waiting for it."""

    _made = 0

    def __init__(self, rank: int, by: Callable[[int], int], count: int) -> None:
        Late._made += 1
        store = rig.dist.distributed_c10d._get_default_store()
        self._store = rig.dist.PrefixStore(f"late {Late._made}", store)
        self._rank, self._by, self._count = rank, by, count

    def __call__(self, step: int) -> None:
        if self._rank != RANK:
            self._store.add("steps", 1)
            return
        others = SIZE - 1
        until, began = min(self._store.add("steps", 0) + others * self._by(step), others * self._count), time.monotonic()
        while self._store.add("steps", 0) < until and time.monotonic() - began < 5:
            time.sleep(0.005)


def check_one_is_late_once_and_comes_back() -> None:
    for rank in (SIZE - 1, 0):
        # When a busy machine has made another rank late, too, all may meet while this one sleeps, and so wait for it.
        for _ in range(8):
            parts = make()
            own = train(parts, 60, Late(rank, lambda step: 20 if step == 10 else 0, 60))
            keep = parts[3]
            assert own + keep.skipped == 60, (own, keep.skipped)
            if any(everywhere(rank == RANK and 10 < own < 60 and keep.meetings > 0)):
                break
        else:
            raise AssertionError(f"all waited for rank {rank}, whenever it was late")


def check_two_are_late_and_one_of_them_wants_to_come_back() -> None:
    """Three are a quorum; so the others cannot end a step while one sleeps and another, who is behind, only waits for them."""
    for _ in range(8):
        asleep, woke = two_are_late(2, 3)
        assert all(everywhere(woke)), "two ranks waited for one that slept, though three were there"
        # They may have met before the one has seen that the other waits for them.
        if any(everywhere(asleep)):
            return
    raise AssertionError("nobody slept")


def two_are_late(back: int, sleeper: int) -> tuple[bool, bool]:
    """Whether this rank slept, and whether it woke because the others went on."""
    parts = make()
    model, optimizer, scheduler, keep = parts
    late, store = Late(back, lambda step: 8 if step == 10 else 0, 80), rig.dist.distributed_c10d._get_default_store()
    asleep, woke = False, True
    for step, inputs, targets in keep.steps(batches(80)):
        late(step)
        if RANK < back:
            store.add("two are late/steps", 1)
        elif RANK == sleeper and not asleep and keep._meetings.stopped_ranks():
            asleep, until, limit = True, store.add("two are late/steps", 0) + 3 * back, time.monotonic() + 60
            # They have made further steps; or they have come to meet all, for which they need this rank.
            while store.add("two are late/steps", 0) < until and not keep._meetings.has_begun() and woke:
                woke = time.monotonic() < limit
                time.sleep(0.005)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
    keep.finish()
    verify(parts, 80)
    return asleep, woke


def check_one_is_always_late() -> None:
    parts = make()
    own = train(parts, 80, Late(SIZE - 1, lambda step: 6, 80))
    keep = parts[3]
    assert own + keep.skipped == 80
    # Nobody waits for it: it has made only some of the steps, and returned less and less often.
    assert RANK != SIZE - 1 or (0 < own < 80 and keep.skipped > 0), (own, keep.skipped)


def check_gradients_that_are_not_finite() -> None:
    parts = make()
    model, optimizer, scheduler, keep = parts
    thc.torch.hook_of(model).guard(optimizer)
    late = Late(1, lambda step: 8 if step >= 20 else 0, 40)
    for step, inputs, targets in keep.steps(batches(40)):
        late(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        # Once in time, and once when the others have gone on without it.
        if RANK == 1 and step in (10, 20):
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
        scheduler.step()
    keep.finish()
    verify(parts, 40)


def check_the_server_is_lost_and_comes_back() -> None:
    server, group = served(JOB, timeout=1.5)
    parts = make(group)
    hook, period = thc.torch.hook_of(parts[0]), health.SERVER_PERIOD
    health.SERVER_PERIOD = 0.05
    modes: list[bool] = []
    killed = False

    def before(step: int) -> None:
        nonlocal server, killed
        modes.append(hook.fallback_active)
        # Steps that this rank leaves out, because it is late, are not seen here.
        if RANK == 0 and step >= 10 and not killed:
            assert server is not None
            server.kill()
            killed = True
        if killed and RANK == 0 and modes.count(True) == 5:
            server = ParameterServer({"workers": SIZE, **JOB}, listen=group.ps)
        time.sleep(0.02)

    train(parts, 120, before)
    health.SERVER_PERIOD = period
    assert any(everywhere(True in modes)), "training went on through the process group"
    assert not hook.fallback_active, "and through the server again"


def check_what_cannot_be_is_refused() -> None:
    options = {"timeout": 20, "join_timeout": 20}
    plain = thc.torch.wrap(ddp(network()), **rig.sort_options(**options))
    cases = [(plain, "waits for all of its 4 workers")]
    quorum = {**options, "server": OWN}
    cases.append((thc.torch.wrap(ddp(network(), find_unused_parameters=True), **rig.sort_options(**quorum)), "find_unused_parameters=True"))
    cases.append((thc.torch.wrap(ddp(torch.nn.Sequential(network(), torch.nn.BatchNorm1d(8))), **rig.sort_options(**quorum)), "broadcast_buffers=True"))
    cases.append((thc.torch.wrap(ddp(network()), **rig.sort_options(check_replicas=5, **quorum)), "check_replicas"))
    for model, says in cases:
        rig._made.append(thc.torch.hook_of(model).group)
        with refused(thc.ConfigError, says):
            thc.torch.keep_up(model)
