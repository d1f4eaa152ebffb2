"""What gets lost: packets under best-effort, and the parameter server."""

from __future__ import annotations

import threading
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
    error_of,
    everywhere,
    exact_mean,
    gradients,
    intercept,
    loses,
    refused,
    same_everywhere,
    served,
    wrap_model,
)
from servers import ParameterServer
from thc.torch.ranks.peers import time_out


def check_best_effort_with_loss_and_synchronization() -> None:
    model, hook = wrap_model(
        Weights(), server={"policy": "best-effort", "deadline": "4ms"}, inject="loss=0.3", inject_seed=RANK
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    copied = []
    for step in range(6):
        backward(model, gradients(step))
        optimizer.step()
        drifted = not same_everywhere(list(model.parameters()))
        copied.append(thc.torch.sync_parameters(model, every=3, optimizer=optimizer))
        assert all(flag == copied[-1] for flag in everywhere(copied[-1]))
        if copied[-1]:
            assert drifted
            assert same_everywhere(list(model.parameters()))
            assert same_everywhere([s["momentum_buffer"] for s in optimizer.state.values()])
    lost = everywhere(hook.group.stats().lost > 0)
    assert any(lost), "nothing was lost"
    assert copied == [False, False, True, False, False, True]


def check_a_late_rank_and_a_quorum() -> None:
    """Others do not wait for a rank that is late, and it gets their parameters when all synchronize."""
    server, group = served({"quorum": SIZE - 1, "data_slots": 64, "norm_slots": 8})
    model, hook = wrap_model(Weights(), group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    took = 0.0
    for step in range(12):
        if step == 4 and RANK == SIZE - 1:
            # DDP has made its final buckets, for which all ranks had to be there.
            time.sleep(3)
        began = time.monotonic()
        backward(model, gradients(step))
        optimizer.step()
        took = max(took, time.monotonic() - began)
        copied = thc.torch.sync_parameters(model, every=12, optimizer=optimizer)
    assert took < 2 and copied and not hook.fallback_active, (took, copied)
    assert same_everywhere(list(model.parameters()))
    assert same_everywhere([s["momentum_buffer"] for s in optimizer.state.values()])


def check_synchronization_without_loss_copies_nothing() -> None:
    model, hook = wrap_model(Weights((20_000,)))
    for step in range(2):
        backward(model, gradients(step, sizes=(20_000,)))
        assert not thc.torch.sync_parameters(model)
    other = Weights((10,))
    assert not thc.torch.sync_parameters(other, group=hook.group)


def check_training_goes_on_when_the_server_dies() -> None:
    server, group = served(timeout=1.5)
    model, hook = wrap_model(group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Messages() as messages:
        for step in range(5):
            if step == 2 and server is not None:
                server.kill()
            means = backward(model, gradients(step))
            assert same_everywhere(means), step
            error = error_of(means, exact_mean(step))
            # The killed server may have finished some buckets of step 2.
            assert (step < 2) == (error > 1e-3) or step == 2, (step, error)
            optimizer.step()
        assert same_everywhere(list(model.parameters()))
        assert hook.fallback_active and isinstance(hook.error, thc.ThcError) and hook.steps == 5
        assert len(messages.lines) == (1 if RANK == 0 else 0), messages.lines
        assert RANK or "parameter server" in messages.lines[0]
    # The same number of ranks, but no server yet: it stays as it is.
    if server is not None:
        server = ParameterServer({"workers": SIZE}, listen=group.ps)
    rig.dist.barrier()
    assert hook.resume() and not hook.fallback_active and hook.error is None
    for step in range(5, 7):
        means = backward(model, gradients(step))
        assert same_everywhere(means) and error_of(means, exact_mean(step)) > 1e-3


def check_a_rank_loses_the_server_within_a_bucket() -> None:
    for ddp_options in ({}, {"gradient_as_bucket_view": True}):
        server, group = served(timeout=1.5)
        model, hook = wrap_model(group=group, ddp_options=ddp_options)
        means = backward(model, gradients(0))
        if RANK == SIZE - 1:
            loses(group, 2)
        means = backward(model, gradients(1))
        assert hook.fallback_active and same_everywhere(means)
        errors = [error_of([mean], [exact]) for mean, exact in zip(means, exact_mean(1))]
        # What was complete on all ranks stays as it came, the rest is exact.
        assert all(error < 0.1 for error in errors) and any(error < 1e-12 for error in errors), errors


class Counting(torch.nn.Module):
    """Weights with a buffer, which DDP hands from rank 0 to all before each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Weights()
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, *arguments: Any) -> torch.Tensor:
        self.passes += 1
        return self.inner(*arguments)


def lose_the_last_answer(group: thc.Group, and_all_later_ones: bool) -> Callable[[], None]:
    """Has this rank not hear the answer that ends its next step. All ranks have called by then, so all have what came before.
    Returns what ends that."""
    allreduce, lost = group.allreduce, []

    def loses(array: Any, **options: Any) -> Any:
        if lost:
            raise thc.SilentError("the parameter server has not answered")
        result = allreduce(array, **options)
        if array.size > 1000:
            return result
        if and_all_later_ones:
            lost.append(True)
        else:
            undo()
        raise thc.SilentError("the parameter server has not answered")

    undo = intercept(group, loses)
    return undo


def check_the_server_dies_between_two_ends_of_a_step() -> None:
    """The others have the last answer of a step and wait in their next forward pass for the rank that has not."""
    for loser in (SIZE - 1, 0):
        server, group = served(timeout=1.5)
        model, hook = wrap_model(Counting(), group=group)
        backward(model, gradients(0))
        if RANK == loser:
            lose_the_last_answer(group, and_all_later_ones=False)
        began = time.monotonic()
        means = backward(model, gradients(1))
        assert same_everywhere(means), "what a step gives is complete"
        if server is not None:
            server.kill()
        for step in (2, 3):
            means = backward(model, gradients(step))
            assert same_everywhere(means) and error_of(means, exact_mean(step)) < 0.15, step
        assert time.monotonic() - began < HANG / 5
        assert all(everywhere(hook.fallback_active)) and error_of(means, exact_mean(3)) < 1e-12
        assert hook.steps == 4 and float(model.module.passes) == 4


class Mixed(torch.nn.Module):
    """Floats and doubles; DDP puts them into different buckets, and doubles go through the process group."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.doubles = Weights(sizes, torch.float64)
        self.floats = Weights(sizes)

    def forward(self, inputs: Any) -> torch.Tensor:
        return self.doubles([each.double() for each in inputs]) + self.floats(inputs).double()


def check_a_rank_loses_the_server_before_a_bucket_of_doubles() -> None:
    sizes = (200_000, 200_000)
    cases: list[dict[str, Any]] = [{}, {"exclude": ["doubles.*", "*.1"]}]
    for options in cases:
        for lost_call in (1, 2):
            server, group = served(timeout=1.5)
            model, hook = wrap_model(Mixed(sizes), group=group, **options)
            inputs = gradients(0, sizes=sizes)
            model(inputs).backward()
            rig.dist.barrier()  # Nobody is to lose it before.
            if RANK == SIZE - 1:
                loses(group, lost_call)
            for step in (1, 2):
                model.zero_grad(set_to_none=True)
                model(gradients(step, sizes=sizes)).backward()
                means = [parameter.grad for parameter in model.parameters()]
                assert same_everywhere(means), (options, lost_call, step)
                assert error_of(means, exact_mean(step, sizes) * 2) < 0.1
            assert all(everywhere(hook.fallback_active)) and error_of(means, exact_mean(2, sizes) * 2) < 1e-12


def check_a_rank_without_the_last_answer_while_others_wait_before_a_bucket_of_doubles() -> None:
    sizes = (50_000, 50_000)
    server, group = served(timeout=1.5)
    model, hook = wrap_model(Mixed(sizes), group=group)
    for loser in (SIZE - 1, 0):
        rig.dist.barrier()  # Nobody is to lose it before.
        undo = lose_the_last_answer(group, and_all_later_ones=True) if RANK == loser else None
        for step in range(3):
            model.zero_grad(set_to_none=True)
            model(gradients(step, sizes=sizes)).backward()
            assert same_everywhere([parameter.grad for parameter in model.parameters()]), step
        assert all(everywhere(hook.fallback_active))
        if undo is not None:
            undo()
        assert hook.resume() and not hook.fallback_active


def check_the_fallback_can_be_forbidden() -> None:
    server, group = served(timeout=1)
    model, hook = wrap_model(group=group, fallback=False)
    backward(model, gradients(0))
    rig.dist.barrier()  # A loss between two ranks' ends of one step is not what this looks at.
    if server is not None:
        server.kill()
    rig.dist.barrier()
    began = time.monotonic()
    with refused(thc.SessionError, "nobody listens on"):
        backward(model, gradients(1))
    assert time.monotonic() - began < HANG / 5
    assert isinstance(hook.error, thc.SessionError) and not hook.fallback_active
    assert all(grad is None or bool(grad.isnan().any()) for grad in (p.grad for p in model.parameters())), "what is no mean is NaN"
    if server is not None:
        server = ParameterServer({"workers": SIZE}, listen=group.ps)
    rig.dist.barrier()
    # DDP is none the worse for it.
    assert hook.resume() and same_everywhere(backward(model, gradients(2))) and hook.error is None


def check_the_server_is_lost_while_a_rank_without_inputs_shadows_the_others() -> None:
    """What such a rank hands over is zeros, whatever its parameters' `grad` are still."""
    server, group = served(timeout=1.5)
    model, hook = wrap_model(group=group)
    shadows = RANK == SIZE - 1
    with model.join():
        for step in range(2 if shadows else 3):
            means = backward(model, gradients(step))
        if shadows:
            loses(group, 1)
    assert all(everywhere(hook.fallback_active)) and hook.steps == 3
    if not shadows:
        every = [gradients(2, rank) for rank in range(SIZE - 1)]
        wanted = [torch.stack([g.double() for g in column]).sum(0) / SIZE for column in zip(*every)]
        assert error_of(means, wanted) < 1e-12, error_of(means, wanted)


def check_a_checkpoint_that_one_rank_alone_loads_is_told_and_the_fallback_stays() -> None:
    server, group = served(timeout=1.5)
    model, hook = wrap_model(group=group)
    backward(model, gradients(0))
    state = {**hook.state_dict(), "steps": 300}
    if RANK == 0:
        hook.load_state_dict(state)
    with refused(thc.ConfigError, "300 on rank 0, 1 on rank 1"):
        backward(model, gradients(1))
    if RANK != 0:
        hook.load_state_dict(state)
    assert same_everywhere(backward(model, gradients(1))) and hook.steps == 301
    # Nobody minds any more that they have not loaded at the same time.
    if RANK == SIZE - 1:
        loses(group, 1)
    for step in (2, 3):
        means = backward(model, gradients(step))
        assert same_everywhere(means) and error_of(means, exact_mean(step)) < 0.15, step
    assert all(everywhere(hook.fallback_active)) and hook.steps == 303


def check_after_a_loss_collectives_are_begun_where_ddp_begins_its_own() -> None:
    """Two communicators of NCCL may wait for each other unless all ranks use them in one order, as SyncBatchNorm's and the fall-back's."""
    server, group = served(timeout=1.5)
    model, hook = wrap_model(group=group)
    backward(model, gradients(0))
    rig.dist.barrier()  # Nobody is to lose it before.
    if RANK == 0:
        loses(group, 1)
    backward(model, gradients(1))
    assert all(everywhere(hook.fallback_active))
    begun, all_reduce = [], rig.dist.all_reduce

    def record(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        begun.append((threading.current_thread() is threading.main_thread(), options.get("group")))
        return all_reduce(tensor, *arguments, **options)

    rig.dist.all_reduce = record
    try:
        means = backward(model, gradients(2))
    finally:
        rig.dist.all_reduce = all_reduce
    assert same_everywhere(means) and error_of(means, exact_mean(2)) < 1e-12
    assert len(begun) > 1 and all(each == (True, None) for each in begun), begun


def check_a_rank_that_is_late_is_waited_for() -> None:
    """As long as the process group would, and whether there is a fall-back or not: the server answers, so nothing is lost."""
    for fallback in (True, False):
        server, group = served(timeout=2, patience=time_out(None).total_seconds())
        model, hook = wrap_model(group=group, fallback=fallback)
        for step in range(3):
            if step > 0 and RANK == SIZE - step:
                time.sleep(7)
            means = backward(model, gradients(step))
            assert same_everywhere(means) and 1e-3 < error_of(means, exact_mean(step)) < 0.1, (fallback, step)
        assert not hook.fallback_active and hook.error is None and hook.steps == 3


def check_a_rank_that_has_lost_the_server_is_not_taken_for_one_that_is_late() -> None:
    """To the others the server still answers, and they hear it from the rank itself."""
    server, group = served(timeout=2, patience=time_out(None).total_seconds())
    model, hook = wrap_model(group=group)
    backward(model, gradients(0))
    rig.dist.barrier()  # Nobody is to lose it before.
    if RANK == SIZE - 1:

        def fails(array: Any, **options: Any) -> Any:
            # Not even its own packets have come there.
            raise thc.SilentError("the parameter server has not answered")

        intercept(group, fails)
    began = time.monotonic()
    for step in (1, 2):
        means = backward(model, gradients(step))
        assert same_everywhere(means) and error_of(means, exact_mean(step)) < 1e-12, step
    assert all(everywhere(hook.fallback_active)) and time.monotonic() - began < 30
    assert RANK == SIZE - 1 or isinstance(hook.error, thc.LostError), hook.error
