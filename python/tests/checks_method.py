"""THC as published (``method="thc-paper"``), through every door that takes a compression."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import rig
import thc
import thc.torch
import torch
from checks_training import loss_of, network
from rig import SIZES, backward, error_of, exact_mean, gradients, is_compressed, same_everywhere, server_of_all, sort_options, wrap_model, refused
from servers import COOKIE

PAPER = {"method": "thc-paper", "feedback": None}


def verify_mean(model: Any, hook: thc.torch.Hook) -> None:
    assert hook.group.method == "thc-paper" and hook.options.feedback and hook.group.job.granularity == 30 and hook.group.job.block == 20
    for step in range(2):
        means = backward(model, gradients(step))
        assert same_everywhere(means)
        error = error_of(means, exact_mean(step))
        assert is_compressed(error) if step == 0 else error < 0.2, error
    assert set(hook.state_dict()["feedback"]) == {f"weights.{at}" for at in range(len(SIZES))}


def check_a_wrapped_model() -> None:
    for over in ("server", "process-group"):
        model, hook = wrap_model(over=over, **PAPER)
        assert hook.group.sums_in_lanes == (over == "process-group")
        verify_mean(model, hook)


def check_the_variable() -> None:
    address, server = server_of_all({"method": "thc-paper"})
    with patch.dict(os.environ, {"THC_PS": address, "THC_COOKIE": hex(COOKIE), "THC_METHOD": "thc-paper"}):
        model, hook = wrap_model(feedback=None)
        verify_mean(model, hook)
        hook.group.close()


def check_ways_that_hide_gradients() -> None:
    for way, options in ((thc.torch.overlap, {}), (thc.torch.outer, {"every": 2})):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        loop: Any = way(model, optimizer, **sort_options(timeout=20, join_timeout=20, **options, **PAPER))  # type: ignore[operator]
        rig._made.append(loop.group)
        assert loop.group.method == "thc-paper" and loop.engine.options.feedback
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if way is thc.torch.outer:
                optimizer.step()
            loop.step()
        assert all(kept.any() for kept in loop.state_dict()["feedback"].values())
        (loop.settle if way is thc.torch.overlap else loop.agree)()
        assert same_everywhere(list(model.parameters()))


def check_the_backend_has_no_error_feedback_for_it() -> None:
    with refused(thc.ConfigError, "keeps error feedback", "thc.torch.wrap"):
        thc.torch.backend.Options(thc.torch.Compression(method="thc-paper"))
