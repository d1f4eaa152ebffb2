"""One stream per host, on hosts of any number of ranks: ``THC_TEST_HOSTS`` says which rank is on which."""

from __future__ import annotations

import json
import os
from typing import Any

import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_adapt import CHOSEN, SHORT, fake_times, same
from checks_hook import Books
from checks_refine import LAYERS, decide, flat, mean, refining_model, step_of
from rig import (
    RANK,
    SIZE,
    SIZES,
    Weights,
    backward,
    ddp,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    intercept,
    is_compressed,
    same_everywhere,
    wrap_model,
)
from servers import COOKIE, ParameterServer
from thc.host import HostGroup, Listener, Speaker

HOSTS: list[int] = json.loads(os.environ["THC_TEST_HOSTS"])
SPEAKS = HOSTS.index(HOSTS[RANK]) == RANK
"""Whether this rank is the first of its host."""
ADDRESS = "10.76.0.1:0"
"""Of the first host, see namespaces.py."""


def check_several_ranks_on_hosts_are_one_stream_each() -> None:
    model, hook = wrap_model()
    assert isinstance(hook.group, Speaker if SPEAKS else Listener), hook.group
    assert hook.group.workers == SIZE and hook.group.job.workers == len(set(HOSTS))
    books = Books()
    for step in range(4):
        means = backward(model, gradients(step), [2, 0, 3, 1])
        assert same_everywhere(means)
        if step == 0:
            assert is_compressed(error_of(means, exact_mean(step)))
        books.found = [total + mean for total, mean in zip(books.found, means)]
        books.exact = [total + mean for total, mean in zip(books.exact, exact_mean(step))]
    balance(books, hook)
    # A host sends as much as one rank would.
    stats = hook.group.stats()
    assert stats.bytes < 4 * sum(SIZES) * 1.8 and stats.calls > 0


def balance(books: Books, hook: thc.torch.Hook) -> None:
    """What the means lack is the error feedback of the hosts."""
    saved = hook.state_dict()["feedback"]
    assert bool(saved) == SPEAKS
    for index, size in enumerate(SIZES):
        kept = saved.get(f"weights.{index}", torch.zeros(size)).clone()
        dist.all_reduce(kept)
        lost = books.exact[index] - books.found[index]
        assert float(lost.abs().max()) > 0.05
        assert float((lost - kept / len(set(HOSTS))).abs().max()) < 1e-3


def check_means_are_over_ranks_also_of_unequal_hosts() -> None:
    model, _ = wrap_model(warmup=1)
    means = backward(model, gradients(0))
    assert same_everywhere(means) and error_of(means, exact_mean(0)) < 1e-12


def check_two_stages() -> None:
    """What a host's error feedback holds follows, and raw ones make the mean over all ranks exact."""
    model, hook, optimizer = refining_model(seconds=0.0)
    assert isinstance(hook.group, HostGroup)
    decide(hook, *[(bucket, number, name) for bucket in range(LAYERS) for number, name in enumerate(("4/8", "raw"))])
    for step in range(3):
        before = flat(model)
        step_of(model, optimizer, step)
        hook.settle()
        assert float(((before - flat(model)).double() - mean(step)).abs().max()) < 1e-3, step
        assert same_everywhere([flat(model)])
    assert hook.refining.calls >= 2 * 2 * LAYERS


def check_the_same_bits_every_time() -> None:
    runs = []
    for _ in range(2):
        model, _ = wrap_model(server={"seed": 7})
        runs.append([backward(model, gradients(step)) for step in range(2)])
    assert all(torch.equal(a, b) for one, two in zip(*runs) for a, b in zip(one, two))


def check_accumulation_and_no_sync() -> None:
    model, hook = wrap_model()
    model.zero_grad(set_to_none=True)
    with model.no_sync():
        model(gradients(0)).backward()
    assert hook.steps == 0 and hook.group.stats().calls == 0
    model(gradients(1)).backward()
    means = [p.grad for p in model.parameters()]
    exact = [a + b for a, b in zip(exact_mean(0), exact_mean(1))]
    assert same_everywhere(means) and is_compressed(error_of(means, exact))


def check_nonfinite_on_any_rank() -> None:
    for where in range(SIZE):
        model, hook = wrap_model(Weights((60_000, 300_000)))
        mine = gradients(1, sizes=(60_000, 300_000))
        if RANK == where:
            mine[1][5] = float("inf")
        means = backward(model, mine)
        assert everywhere(hook.skipped) == [True] * SIZE
        assert everywhere(bool(means[1].isnan().all())) == [True] * SIZE
        means = backward(model, gradients(2, sizes=(60_000, 300_000)))
        assert not hook.skipped and same_everywhere(means)
        assert error_of(means, exact_mean(2, (60_000, 300_000))) < 0.1
        hook.group.close()


def check_halves_and_parts_aside() -> None:
    model, _ = wrap_model(Weights(dtype=torch.float16), exclude="*.1")
    means = backward(model, gradients(1, dtype=torch.float16))
    exact = exact_mean(1, dtype=torch.float16)
    assert same_everywhere(means) and is_compressed(error_of(means, exact))
    assert error_of(means[1:2], exact[1:2]) < 1e-6


def check_a_plan_for_all() -> None:
    model, hook = wrap_model(adapt=SHORT)
    fake_times(hook, lambda length, raw: 5e-8 * length if raw else 0.0150)
    for step in range(CHOSEN + 3):
        assert same_everywhere(backward(model, gradients(step)))
    assert hook.plan is not None and hook.adaptive is not None
    assert same((hook.plan.choices(), hook.adaptive.threshold))


def check_a_checkpoint() -> None:
    books = Books()
    model, hook = wrap_model()
    for step in range(2):
        books.step(model, step)
    state = hook.state_dict()
    again, resumed = wrap_model(ddp_options={"bucket_cap_mb": 25})
    resumed.load_state_dict(state)
    for step in range(2, 4):
        books.step(again, step)
    balance(books, resumed)


def check_ranks_that_drift_under_best_effort_are_brought_together() -> None:
    model, hook = wrap_model(server={"policy": "best-effort", "deadline": "4ms"}, inject="loss=0.3", inject_seed=RANK)
    for step in range(3):
        means = backward(model, gradients(step))
        with torch.no_grad():
            for parameter, mean in zip(model.parameters(), means):
                parameter.sub_(0.1 * mean)
        thc.torch.sync_parameters(model)
        assert same_everywhere(list(model.parameters()))
    assert any(everywhere(hook.group.stats().lost > 0))


def server_of_hosts() -> tuple[dict[str, str], ParameterServer | None]:
    """A server on the first host, of which each host is a worker; the environment that names it."""
    server = ParameterServer({"workers": len(set(HOSTS))}, listen=ADDRESS) if RANK == 0 else None
    box = [server.address if server else None]
    dist.broadcast_object_list(box)
    return {"THC_PS": str(box[0]), "THC_COOKIE": hex(COOKIE), "THC_TIMEOUT": "1.5", "THC_JOIN_TIMEOUT": "20"}, server


def check_a_server_that_is_named_dies_and_comes_back() -> None:
    given, server = server_of_hosts()
    os.environ.update(given)
    try:
        model = thc.torch.wrap(ddp(Weights()), one_stream_per_host=True, feedback=True)
    finally:
        for name in given:
            del os.environ[name]
    hook = thc.torch.hook_of(model)
    assert isinstance(hook.group, HostGroup)
    for step in range(4):
        if step == 2 and server is not None:
            server.kill()
        means = backward(model, gradients(step))
        assert same_everywhere(means) and error_of(means, exact_mean(step)) < 0.1, step
    assert everywhere(hook.fallback_active) == [True] * SIZE and error_of(means, exact_mean(3)) < 1e-12
    if server is not None:
        server = ParameterServer({"workers": len(set(HOSTS))}, listen=given["THC_PS"])
    dist.barrier()
    assert hook.resume() and not hook.fallback_active
    for step in range(4, 6):
        means = backward(model, gradients(step))
        assert same_everywhere(means) and 1e-4 < error_of(means, exact_mean(step)) < 0.2
    hook.group.close()
    if server is not None:
        server.kill()


def check_a_host_loses_the_way_within_a_bucket() -> None:
    model, hook = wrap_model(timeout=1.5)
    backward(model, gradients(0))
    dist.barrier()
    group: Any = hook.group
    if RANK == HOSTS.index(1):
        allreduce, calls = group.group.allreduce, []

        def fails(array: Any, **options: Any) -> Any:
            calls.append(array.size)
            if len(calls) >= 2:
                raise thc.SilentError("the parameter server has not answered")
            return allreduce(array, **options)

        intercept(group.group, fails)
    means = backward(model, gradients(1))
    assert same_everywhere(means) and everywhere(hook.fallback_active) == [True] * SIZE
    assert error_of(backward(model, gradients(2)), exact_mean(2)) < 1e-12


def check_ranks_of_a_host_that_call_different_things_are_told() -> None:
    if SIZE == len(set(HOSTS)):
        return
    _, hook = wrap_model(Weights((1_000,)), timeout=1.5, patience=1.5)
    array = torch.ones(500 if RANK == 1 else 400).numpy()
    try:
        hook.group.allreduce(array)
    except thc.SessionError as error:
        assert HOSTS[RANK] != HOSTS[1] or "different all-reduces" in str(error), error
    else:
        raise AssertionError("nobody noticed")


def check_it_can_be_forbidden() -> None:
    _, hook = wrap_model(Weights((1_000,)), one_stream_per_host=False)
    assert not isinstance(hook.group, HostGroup) and hook.group.job.workers == SIZE
    try:
        thc.torch.wrap(ddp(Weights((10,))), one_stream_per_host="often")
    except thc.ConfigError as error:
        assert "write True, False" in str(error), error
    else:
        raise AssertionError("it was taken")
    try:
        thc.torch.wrap(ddp(Weights((10,))), hook.group, one_stream_per_host=True)
    except thc.ConfigError as error:
        assert "leave it out" in str(error), error
    else:
        raise AssertionError("it was taken")
