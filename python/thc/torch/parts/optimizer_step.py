"""The step of an optimizer, with something else in its place."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch


def replace_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> Callable[..., Any]:
    """From now on ``optimizer.step(...)`` is ``step(...)``. Returns what it was."""
    former: Callable[..., Any] = optimizer.step

    @functools.wraps(former)
    def replaced(_: Any, *args: Any, **kwargs: Any) -> Any:
        return step(*args, **kwargs)

    # A bound method, since schedulers ask the step whose it is.
    optimizer.step = types.MethodType(replaced, optimizer)
    return former


@contextlib.contextmanager
def unscaled(optimizer: torch.optim.Optimizer) -> Iterator[tuple[Any, Any]]:
    """Hands over what a GradScaler leaves on an optimizer whose step it always calls (``_step_supports_amp_scaling``): the scale, and whether a gradient
    overflowed. The optimizer does not see them meanwhile."""
    left = {key: optimizer.__dict__.pop(key) for key in ("grad_scale", "found_inf") if key in optimizer.__dict__}
    try:
        yield left.get("grad_scale"), left.get("found_inf")
    finally:
        optimizer.__dict__.update(left)
