"""Hosts with unequal numbers of ranks: each rank is a worker."""

from __future__ import annotations

import pytest
import thc
import thc.torch
from rig import SIZE, Weights, backward, ddp, error_of, exact_mean, gradients, is_compressed, same_everywhere, wrap_model


def check_each_rank_is_a_worker() -> None:
    _, hook = wrap_model()
    assert type(hook.group) is thc.Group and hook.group.job.workers == SIZE


def check_means_are_over_ranks() -> None:
    model, _ = wrap_model(warmup=1)
    means = backward(model, gradients(0))
    assert same_everywhere(means) and error_of(means, exact_mean(0)) < 1e-12
    means = backward(model, gradients(1))
    assert same_everywhere(means) and is_compressed(error_of(means, exact_mean(1)))


def check_rails_are_refused() -> None:
    with pytest.raises(thc.ConfigError, match="hosts have 2, 1 ranks.*leave rails out"):
        thc.torch.wrap(ddp(Weights((1_000,))), join=thc.Join(rails=True))
