"""Updates of parameters that only this rank makes: what an optimizer would make of them, without it remembering, or another one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LocalOptimizer", "Trial"]


HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
"""Where an optimizer keeps the hooks of its step."""


class Trial:
    """Steps of an optimizer that change parameters and leave its own state, momentum and the like, as it was. Its step's hooks, which may
    count or log, are not called: the step that is meant to stay calls them."""

    def __init__(self, optimizer: torch.optim.Optimizer, update: Callable[[], Any]) -> None:
        """``update`` is the optimizer's step itself."""
        self._optimizer, self._update = optimizer, update
        self._copies: dict[tuple[torch.Tensor, str], torch.Tensor] = {}
        """By parameter and name; their memory is kept."""

    def step(self, rate: float | None) -> None:
        """Updates parameters by their gradients, at another learning rate if one is given."""
        state, groups = self._optimizer.state, self._optimizer.param_groups
        kept = dict(state)
        settings = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        for p, own in kept.items():
            state[p] = {key: self._copy(p, key, value) for key, value in own.items()}
        if rate is not None:
            for group in groups:
                group["lr"] = rate
        hooks = {name: getattr(self._optimizer, name) for name in HOOKS}
        for name in hooks:
            setattr(self._optimizer, name, OrderedDict())
        try:
            self._update()
        finally:
            for name, own in hooks.items():
                setattr(self._optimizer, name, own)
            state.clear()
            state.update(kept)
            for group, before in zip(groups, settings):
                group.update(before)

    def _copy(self, p: torch.Tensor, key: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        held = self._copies.get((p, key))
        if held is None or held.shape != value.shape or held.dtype != value.dtype or held.device != value.device:
            held = self._copies[p, key] = torch.empty_like(value)
        return held.copy_(value)


class LocalOptimizer:
    """Another optimizer for the same groups of parameters, with no state in common."""

    def __init__(self, optimizer: torch.optim.Optimizer, make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]) -> None:
        self._optimizer = optimizer
        self._own = make([dict(each) for each in optimizer.param_groups])

    def step(self, rate: float | None) -> None:
        """Updates parameters by their gradients, at the first optimizer's learning rate or another one."""
        for mine, theirs in zip(self._own.param_groups, self._optimizer.param_groups):
            mine["lr"] = theirs["lr"] if rate is None else rate
        self._own.step()

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._own.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._own.load_state_dict(state)
