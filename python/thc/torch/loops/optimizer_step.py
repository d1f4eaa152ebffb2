"""The step of an optimizer, with something else in its place."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["replace_step"]


def replace_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> Callable[..., Any]:
    """From now on ``optimizer.step(...)`` is ``step(...)``. Returns what it was."""
    former: Callable[..., Any] = optimizer.step

    @functools.wraps(former)
    def replaced(_: Any, *args: Any, **kwargs: Any) -> Any:
        return step(*args, **kwargs)

    # A bound method, since schedulers ask the step whose it is.
    optimizer.step = types.MethodType(replaced, optimizer)
    return former
