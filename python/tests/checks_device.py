"""The hook with gradients compressed where they are: the bits are those of the host's."""

from __future__ import annotations

import os
from typing import Any

import rig
import thc
import thc.torch
import torch
from rig import RANK, SIZE, Weights, backward, ddp, gradients, refused, same_everywhere, wrap_model
from test_device import CUDA, KERNELS  # it has Triton interpreted where there is no GPU

SIZES = (9_000, 300, 12_000, 7_000)
SMALL = {"bucket_cap_mb": 0.03}
"""Several buckets."""

WAYS = ["torch"] if CUDA else sorted(KERNELS)
"""The rig's models are on the CPU, where Triton has its interpreter, or nothing if there is a GPU."""
STEPS = {"torch": 3, "triton": 2}
"""The interpreter takes its time."""


def pair(where: str, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
    """A model whose gradients the host compresses, and one that differs in nothing but where."""
    made = []
    for device in ("cpu", where):
        server = {"seed": 77, "block": 11, **options.get("server", {})}
        made.append(wrap_model(Weights(SIZES, dtype), SMALL, **{**options, "server": server, "device": device}))
    return made[0], made[1]


def same_steps(where: str, steps: int = 3, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
    """Some steps of both, equal bit for bit."""
    (one, host), (two, other) = pair(where, dtype, **options)
    for step in range(steps):
        want = backward(one, gradients(step, sizes=SIZES, dtype=dtype))
        got = backward(two, gradients(step, sizes=SIZES, dtype=dtype))
        assert same_everywhere(got)
        assert all(torch.equal(a, b) for a, b in zip(want, got)), (where, step, options)
    assert host.device.where == "cpu" and other.device.where == where
    assert (host.steps, other.steps) == (steps, steps), (host.steps, other.steps, steps, where, options)
    return (one, host), (two, other)


def check_hook_is_the_same_bit_for_bit() -> None:
    for where in WAYS:
        (_, host), (_, other) = same_steps(where, STEPS[where])
        mine, theirs = host.state_dict()["feedback"], other.state_dict()["feedback"]
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
        stats = other.group.stats()
        assert stats.device == where and where in stats.why and f"compressed by {where}" in stats.summary(SIZE)
        assert host.group.stats().device == "cpu"
        assert stats.coordinates == host.group.stats().coordinates


def check_options() -> None:
    same_steps("torch", feedback=False)
    same_steps("torch", exclude=["*.0", "*.2"])
    same_steps("torch", 2, torch.float16, min_size=1000)


def check_checkpoint_goes_from_host_to_device_and_back() -> None:
    (one, host), (two, other) = same_steps("torch", 2)
    saved = [host.state_dict(), other.state_dict()]
    host.load_state_dict(saved[1])
    other.load_state_dict(saved[0])
    for step in range(2, 4):
        want, got = (backward(model, gradients(step, sizes=SIZES)) for model in (one, two))
        assert all(torch.equal(a, b) for a, b in zip(want, got))
    # Before the first bucket nobody knows where it will be.
    three, third = wrap_model(Weights(SIZES), SMALL, server={"seed": 77, "block": 11}, device="torch")
    third.load_state_dict(saved[0])
    assert third.device is None
    backward(three, gradients(2, sizes=SIZES))
    assert third.device is not None and third.device.where == "torch"


def check_ranks_may_differ() -> None:
    where = ["cpu", "torch", WAYS[-1]][RANK]
    one, host = wrap_model(Weights(SIZES), SMALL, server={"seed": 77, "block": 11}, device="cpu")
    two, other = wrap_model(Weights(SIZES), SMALL, server={"seed": 77, "block": 11}, device=where)
    for step in range(2):
        want, got = (backward(model, gradients(step, sizes=SIZES)) for model in (one, two))
        assert same_everywhere(got) and all(torch.equal(a, b) for a, b in zip(want, got))


def check_what_cannot_be_is_refused_or_stays_on_the_host() -> None:
    model, hook = wrap_model(Weights(SIZES), SMALL, device="auto")
    backward(model, gradients(0, sizes=SIZES))
    assert (hook.device.where, hook.device.why) == ("cpu", "gradients are on the CPU")
    assert os.environ["RANK"] == str(RANK)
    with refused(thc.ConfigError, 'device is \'gpu\': write \'auto\''):
        wrap_model(Weights(SIZES), device="gpu")
    model, hook = wrap_model(Weights(SIZES), SMALL, device="torch", server={"policy": "best-effort"})
    with refused(Exception, "may lose packets"):
        backward(model, gradients(0, sizes=SIZES))


def check_lanes_are_compressed_on_the_host() -> None:
    model = thc.torch.wrap(ddp(Weights(SIZES), **SMALL), over="process-group")
    hook = thc.torch.hook_of(model)
    rig._made.append(hook.group)
    assert same_everywhere(backward(model, gradients(0, sizes=SIZES))) and hook.device.where == "cpu"
    with refused(thc.ConfigError, "adds lanes up on the host: leave device out"):
        model = thc.torch.wrap(ddp(Weights(SIZES), **SMALL), over="process-group", device="torch")
        rig._made.append(thc.torch.hook_of(model).group)
        backward(model, gradients(0, sizes=SIZES))
