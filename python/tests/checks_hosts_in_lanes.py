"""Several ranks on a host and no server: f32 in a host's memory, lanes between hosts. ``THC_TEST_HOSTS`` says which rank is on which host."""

from __future__ import annotations

import json
import os

import thc.torch
import torch
from rig import RANK, SIZE, SIZES, Weights, _made, backward, ddp, error_of, exact_mean, gradients, same_everywhere
from thc.host import Listener, Speaker

HOSTS: list[int] = json.loads(os.environ["THC_TEST_HOSTS"])
SPEAKS = HOSTS.index(HOSTS[RANK]) == RANK
"""Whether this rank is the first of its host."""


def check_lanes_between_the_first_ranks_of_hosts() -> None:
    """Their table is one for so many hosts, and the mean one over all ranks."""
    hosts = len(set(HOSTS))
    model = thc.torch.wrap(ddp(Weights()), over="process-group")
    hook = thc.torch.hook_of(model)
    _made.append(hook.group)
    assert isinstance(hook.group, Speaker if SPEAKS else Listener) and hook.group.sums_in_lanes
    assert hook.group.workers == SIZE and hook.group.job.workers == hosts and not hook.fallback_active
    for step in range(4):
        means = backward(model, gradients(step))
        error = error_of(means, exact_mean(step))
        assert same_everywhere(means) and ((error < 1e-12) if step == 0 else (1e-6 < error < 0.02)), (step, error)
    # What travels is what one rank of each host would send.
    assert hook.group.tables[0].granularity * hosts < 256 <= (hook.group.tables[0].granularity + 1) * hosts + hosts
    assert hook.group.stats().bytes_up < 3 * 1.1 * sum(SIZES) * 2 + 4 * sum(SIZES) * 2
    # A NaN of any rank is everybody's, and the next step goes on.
    bad = gradients(4)
    if RANK == SIZE - 1:
        bad[0][3] = float("nan")
    assert all(not torch.isfinite(mean).all() for mean in backward(model, bad)[:1]) and hook.skipped
    assert same_everywhere(backward(model, gradients(5)))


def check_each_rank_by_itself() -> None:
    model = thc.torch.wrap(ddp(Weights()), over="process-group", one_stream_per_host=False)
    group = thc.torch.hook_of(model).group
    _made.append(group)
    assert isinstance(group, thc.torch.CollectiveGroup) and group.job.workers == SIZE
