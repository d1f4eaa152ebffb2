"""Hosts with several ranks, each of which is a worker of a job of its own: ``THC_TEST_HOSTS`` says which rank is on which host."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest.mock import patch

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_hook import Books
from rig import (
    RANK,
    SIZE,
    SIZES,
    Weights,
    backward,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    is_compressed,
    loses,
    refused,
    same_everywhere,
    wrap_model,
)
from servers import COOKIE, ParameterServer
from thc.torch.hosts.rails import RailGroup

HOSTS: list[int] = json.loads(os.environ["THC_TEST_HOSTS"])
LOCAL = [rank for rank, host in enumerate(HOSTS) if host == HOSTS[RANK]]
PLACE = LOCAL.index(RANK)
COUNT = len(set(HOSTS))


def on_rails(model: torch.nn.Module | None = None, **options: Any) -> tuple[Any, Any]:
    made, hook = wrap_model(model, rails=True, **options)
    assert isinstance(hook.group, RailGroup), hook.group
    return made, hook


def check_each_local_rank_is_a_worker_of_its_own_job() -> None:
    model, hook = on_rails()
    group = hook.group
    assert group.workers == SIZE and group.rail.workers == group.job.workers == COUNT
    assert [HOSTS[rank] for rank in group.rail_ranks] == list(dict.fromkeys(HOSTS)) and RANK in group.rail_ranks
    books, saved = Books(), {}
    for step in range(4):
        means = backward(model, gradients(step), [2, 0, 3, 1])
        assert same_everywhere(means)
        if step == 0:
            assert is_compressed(error_of(means, exact_mean(step)))
        if step == 1:
            # Buckets are others now, and what the first step has lost of parts of parameters may be gone.
            books, saved = Books(), kept_feedback(hook)
            continue
        books.found = [total + mean for total, mean in zip(books.found, means)]
        books.exact = [total + mean for total, mean in zip(books.exact, exact_mean(step))]
    now = kept_feedback(hook)
    for index, size in enumerate(SIZES):
        lost = books.exact[index] - books.found[index]
        assert float(lost.abs().max()) > 0.05
        assert float((lost - (now[index] - saved[index])).abs().max()) < 1e-3
    # A host sends as much as one rank would.
    sent = torch.tensor([float(group.stats().bytes)])
    dist.all_reduce(sent)
    assert sent.item() / COUNT < 4 * sum(SIZES) * 1.8


def kept_feedback(hook: Any) -> list[torch.Tensor]:
    """What error feedback has of each parameter, in the mean over hosts."""
    found = [torch.zeros(size) for size in SIZES]
    for name, residual in hook.state_dict()["feedback"].items():
        base, _, place = name.partition("[")
        start, stop = map(int, place.rstrip("]").split(":")) if place else (0, len(residual))
        into = found[int(base.split(".")[1])]
        if len(residual) == stop - start:
            into[start:stop] += residual
    for each in found:
        dist.all_reduce(each)
        each.div_(COUNT)
    return found


def check_lengths_that_do_not_divide() -> None:
    """Also fewer coordinates than ranks; and what travels exactly is the mean over all ranks."""
    for sizes in ((1,), (3, 2), (100_003, 7, 70_001)):
        model, _ = on_rails(Weights(sizes), warmup=1)
        means = backward(model, gradients(0, sizes=sizes))
        exact = exact_mean(0, sizes)
        assert same_everywhere(means) and error_of(means, exact) < 1e-12, sizes
        means = backward(model, gradients(1, sizes=sizes))
        assert same_everywhere(means) and error_of(means, exact_mean(1, sizes)) < 0.2, sizes


def check_halves() -> None:
    sizes = (100_003, 300_000)
    for dtype in (torch.float16, torch.bfloat16):
        model, _ = on_rails(Weights(sizes, dtype))
        for step in range(2):
            means = backward(model, gradients(step, sizes=sizes, dtype=dtype))
            assert all(mean.dtype == dtype for mean in means) and same_everywhere(means)
            assert is_compressed(error_of(means, exact_mean(step, sizes, dtype))) or step


def check_what_is_not_compressed() -> None:
    """Parameters that are excluded travel exactly, also where a rank's share ends within one; f64 goes through the process group."""
    model, _ = on_rails(exclude=["weights.0", "weights.1"])
    means = backward(model, gradients(0))
    exact = exact_mean(0)
    assert error_of(means[:2], exact[:2]) < 1e-12 and is_compressed(error_of(means[2:], exact[2:]))
    model, _ = on_rails(Weights((50_000,), torch.float64))
    means = backward(model, gradients(0, sizes=(50_000,), dtype=torch.float64))
    assert error_of(means, exact_mean(0, (50_000,), torch.float64)) < 1e-24


def check_nonfinite_on_any_rank() -> None:
    sizes = (60_000, 300_000)
    model, hook = on_rails(Weights(sizes))
    for where in range(SIZE):
        mine = gradients(1, sizes=sizes)
        if RANK == where:
            mine[1][5] = float("inf")
        means = backward(model, mine)
        assert hook.skipped and bool(torch.isnan(means[1]).all()) and same_everywhere(means)
    means = backward(model, gradients(2, sizes=sizes))
    assert not hook.skipped and error_of(means, exact_mean(2, sizes)) < 0.1


def check_one_rank_loses_its_server() -> None:
    """At any call: the ranks of its host, which have servers of their own, go on to take part, and all fall back to exact means."""
    model, hook = on_rails(patience=20)
    backward(model, gradients(0), [2, 0, 3, 1])
    for turn, first in enumerate((1, 2, 3, 4)):
        victim = turn % SIZE
        undo = loses(hook.group.rail, first) if victim == RANK else lambda: None
        for step in range(1, 3):
            means = backward(model, gradients(step), [2, 0, 3, 1])
            assert same_everywhere(means) and error_of(means, exact_mean(step)) < 0.1, (first, step)
        means = backward(model, gradients(3), [2, 0, 3, 1])
        assert hook.fallback_active and error_of(means, exact_mean(3)) < 1e-12, first
        undo()
        assert hook.resume()
        means = backward(model, gradients(4), [2, 0, 3, 1])
        assert not hook.fallback_active and same_everywhere(means) and 1e-3 < error_of(means, exact_mean(4)) < 0.1


def check_without_a_fall_back_the_reason_is_told() -> None:
    """The others of its host hear it from the rank that has lost its server; those of other hosts wait for it as long as they have patience."""
    model, hook = on_rails(fallback=False, timeout=5, patience=5)
    undo = loses(hook.group.rail, 2) if RANK == 1 else lambda: None
    told = ""
    for step in range(3):
        try:
            backward(model, gradients(step))
        except thc.ThcError as error:
            told = f"{type(error).__name__}: {error}"
            break
    undo()
    if RANK == 1:
        assert "has not answered" in told, told
    elif HOSTS[RANK] == HOSTS[1]:
        assert "rank 1 of this host" in told, told
    else:
        assert told


def check_a_server_of_the_environment() -> None:
    """The jobs of local ranks have consecutive numbers."""
    local = len(LOCAL)
    server = ParameterServer(*[{"workers": COUNT}] * local, listen="10.76.0.1:0") if RANK == 0 else None
    box = [server.address if server else None]
    dist.broadcast_object_list(box)
    with patch.dict(os.environ, {"THC_PS": str(box[0]), "THC_COOKIE": str(COOKIE)}):
        groups = []
        for _ in range(2):
            model, hook = on_rails(Weights((70_000,)))
            assert hook.group.job_number == 1 + PLACE and hook.group.ps == box[0]
            means = backward(model, gradients(0, sizes=(70_000,)))
            assert same_everywhere(means) and is_compressed(error_of(means, exact_mean(0, (70_000,))))
            groups.append(hook.group)
        assert groups[0] is groups[1]
        groups[0].close()
    dist.barrier()


def check_mistakes_are_told() -> None:
    for wrong, says in (
        ({"rails": "yes"}, 'True, False or "auto"'),
        ({"rails": True, "over": "process-group"}, "leave it out"),
        ({"rails": True, "adapt": {}}, "rails and adapt"),
        ({"rails": True, "server": {"policy": "best-effort"}}, "lose nothing"),
        ({"rails": True, "server": {"quorum": COUNT - 1}}, "lose nothing"),
    ):
        with refused(thc.ConfigError, says):
            thc.torch.wrap(rig.ddp(Weights((1_000,))), **rig.sort_options(**wrong))
    assert all(everywhere(True))
