"""Rails on GPUs: two hosts, or what passes for two on one machine, of two ranks or more, with NCCL inside. `gpu.py` runs it."""

from __future__ import annotations

from typing import Any

import thc.torch.hosts.rails
import torch
from checks_gpu import CUDA, DEVICE, SIZES, delay, use_stream
from rig import RANK, SIZE, Weights, error_of, exact_mean, gradients, same_everywhere, wrap_model

HALF = SIZE // 2


def on_rails(dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
    """Every second rank is on the other host, so that a host's GPUs are not neighbours."""
    thc.torch.hosts.rails.this_host = lambda: f"host {RANK % 2}"  # type: ignore[attr-defined]
    model, hook = wrap_model(Weights(SIZES, dtype).to(DEVICE), rails=True, **options)
    assert hook.group.rail.workers == 2 and len(hook.group.host_ranks.ranks) == HALF
    return model, hook


def means(model: Any, step: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """What a backward pass leaves, read behind it on the current stream alone."""
    model.zero_grad(set_to_none=True)
    inputs = [g.to(DEVICE) for g in gradients(step, sizes=SIZES, dtype=dtype)]
    delay()
    model(inputs, [2, 0, 3, 1]).backward()
    return [p.grad.clone() for p in model.parameters()]


def check_a_share_on_each_gpu() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model, hook = on_rails(dtype)
        for step in range(3):
            if hook.engine.selector.shares._stream is not None:
                # The means are read behind what holds this stream up.
                with use_stream(hook.engine.selector.shares._stream):
                    delay()
            found = [mean.cpu() for mean in means(model, step, dtype)]
            assert same_everywhere(found) and error_of(found, exact_mean(step, SIZES, dtype)) < 0.1
        assert not CUDA or hook.device.where != "cpu", hook.device


def check_not_finite_on_a_gpu() -> None:
    model, hook = on_rails()
    model.zero_grad(set_to_none=True)
    inputs = [g.to(DEVICE) for g in gradients(0, sizes=SIZES)]
    if RANK == SIZE - 1:
        inputs[2][7] = float("inf")
    delay()
    model(inputs).backward()
    assert hook.skipped and bool(torch.isnan(model.module.weights[2].grad).all().cpu())
    found = [mean.cpu() for mean in means(model, 1, torch.float32)]
    assert not hook.skipped and same_everywhere(found) and error_of(found, exact_mean(1, SIZES)) < 0.1


def check_the_server_is_lost() -> None:
    from rig import loses

    model, hook = on_rails(patience=20)
    means(model, 0, torch.float32)
    undo = loses(hook.group.rail, 1) if RANK == 1 and not CUDA else None
    if CUDA and RANK == 1:
        hook.group.rail.give_up()
    for step in (1, 2):
        found = [mean.cpu() for mean in means(model, step, torch.float32)]
        assert same_everywhere(found) and error_of(found, exact_mean(step, SIZES)) < 0.1
    assert hook.fallback_active
    if undo is not None:
        undo()
