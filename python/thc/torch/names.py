"""What a model calls its parameters, whatever wraps it or its modules."""

from __future__ import annotations

from typing import Any

import torch

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
"""What `torch.compile` and activation checkpointing put into names."""


def clean_name(name: str) -> str:
    """A parameter's name in the model as it was before anything wrapped it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def named_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """A module's parameters by those names."""
    return {clean_name(name): parameter for name, parameter in module.named_parameters()}


def unwrapped(model: Any) -> Any:
    """The model in what `torch.compile` has made of it."""
    return getattr(model, "_orig_mod", model)


def module_of(model: Any) -> Any:
    """The module in what `torch.compile` and `DistributedDataParallel` have made of it."""
    inside = unwrapped(model)
    return inside.module if isinstance(inside, torch.nn.parallel.DistributedDataParallel) else inside
