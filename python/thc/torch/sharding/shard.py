"""What a rank has of a module that FSDP2 shards, and which parameters' gradients it averages together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thc.torch.compression.layout import Layout, Segment


class Part:
    """This rank's part of one parameter, in one dimension padded to the largest that a rank has."""

    def __init__(self, name: str, parameter: Any) -> None:
        self.name = name
        self._parameter = parameter
        self.size: int = parameter.padded_sharded_param_size.numel()
        self.produced = False
        """Whether the backward pass has computed its gradient, which FSDP has not taken yet."""
        self.held_back = False
        """Whether its gradient has something in it that was not averaged."""

    @property
    def trains(self) -> bool:
        return bool(self._parameter.sharded_param.requires_grad)

    def watch(self) -> None:
        """Notices when its gradient has been computed; the parameter is whole now."""

        def note(_: torch.Tensor) -> None:
            self.produced = True

        if self.trains:
            self._parameter.unsharded_param.register_post_accumulate_grad_hook(note)

    def read(self, flat: torch.Tensor) -> None:
        """Copies its gradient to its place in a longer one."""
        grad = self.grad
        if grad is not None:
            self._remove_padding(flat, grad).copy_(grad)

    def write(self, flat: torch.Tensor) -> None:
        """Takes its gradient from there."""
        grad = self.grad
        if grad is not None:
            grad.copy_(self._remove_padding(flat, grad))

    def add(self, flat: torch.Tensor) -> None:
        """Adds what is there to its gradient."""
        grad = self.grad
        if grad is not None:
            grad.add_(self._remove_padding(flat, grad))

    @property
    def is_taken_at_once(self) -> bool:
        """Whether somebody takes its gradient as soon as FSDP has it."""
        parameter = self._parameter
        return bool(parameter.offload_to_cpu or getattr(parameter.sharded_param, "_post_accumulate_grad_hooks", None))

    @property
    def grad(self) -> torch.Tensor | None:
        """Its gradient, without padding."""
        grad = self._parameter.sharded_param.grad
        return None if grad is None else grad._local_tensor.detach()

    def _remove_padding(self, flat: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        view = flat.view(self._parameter.padded_sharded_param_size)
        for dimension, size in enumerate(grad.shape):
            view = view.narrow(dimension, 0, size)
        return view


class Shard:
    """This rank's part of one module."""

    def __init__(self, scope: str, module: Any, names: dict[int, str]) -> None:
        """``names`` are those of the model's parameters. Makes the module whole for a moment, as all its ranks must."""
        self.scope = scope
        self._groups = _groups(module)
        self.parts = [Part(names[id(each.sharded_param)], each) for group in self._groups for each in group.fsdp_params]
        self._layouts: dict[tuple[str, ...], Layout] = {}
        module.unshard()
        for part in self.parts:
            part.watch()
        module.reshard()

    @property
    def replicates(self) -> bool:
        """Whether FSDP itself averages this module's gradients over replicas."""
        return any(group._is_hsdp for group in self._groups)

    @property
    def averages(self) -> bool:
        """Whether this backward pass's gradients are to be averaged: see ``set_requires_all_reduce``."""
        return all(group.all_reduce_grads for group in self._groups)

    def match_reduced(self, length: int) -> list[Part] | None:
        """The parameters to which a gradient of this length belongs that FSDP has summed over the shards; ``None`` if that cannot be told."""
        trained = [part for part in self.parts if part.trains]
        produced = [part for part in trained if part.produced]
        for part in produced:
            part.produced = False
        return next((parts for parts in (trained, produced) if sum(part.size for part in parts) == length), None)

    def adds_later(self, dtype: torch.dtype) -> bool:
        """Whether a mean may be added to gradients of this type when FSDP has done with them: it neither divides them after its hook nor hands them
        on."""
        if dtype not in (torch.float32, torch.bfloat16) or any(getattr(group, "force_sum_reduction_for_comms", False) for group in self._groups):
            return False
        return not any(part.is_taken_at_once for part in self.parts)

    def layout(self, parts: Iterable[Part]) -> Layout:
        """Their places in a gradient."""
        parts = list(parts)
        names = tuple(part.name for part in parts)
        if names not in self._layouts:
            segments, at = [], 0
            for part in parts:
                segments.append(Segment(part.name, at, part.size, True))
                at += part.size
            self._layouts[names] = Layout(self.scope, segments)
        return self._layouts[names]


def _groups(module: Any) -> list[Any]:
    """What torch calls parameter groups of a module: a list from 2.10 on."""
    state = module._get_fsdp_state()
    found = getattr(state, "_fsdp_param_groups", None)
    if found is None:
        found = [state._fsdp_param_group]
    return [group for group in found if group is not None]
