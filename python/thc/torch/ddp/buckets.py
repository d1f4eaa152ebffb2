"""What DDP hands over to its hook, as buckets of the engine."""

from __future__ import annotations

import fnmatch
import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thc import errors
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.bucket import Bucket, Promise, is_dense
from thc.torch.names import module_of, named_parameters
from thc.torch.options import Options

log = logging.getLogger("thc.torch")


class Buckets:
    """Makes the buckets of a model. All methods are for the thread of autograd."""

    def __init__(self, model: torch.nn.Module | None, options: Options, scope: str) -> None:
        self._options, self._scope = options, scope
        self._ddp = weakref.ref(model) if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        self._names = {} if model is None else {id(parameter): name for name, parameter in named_parameters(module_of(model)).items()}
        self._known = frozenset(self._names.values())
        """The names of the model's parameters; none where it was not told."""
        self.layouts: dict[tuple[int, ...], Layout] = {}
        """By the identities of a bucket's parameters."""
        self._copies: dict[int, torch.Tensor] = {}
        self._devices: set[str] = set()
        """Where buckets have come from."""

    def make(self, given: Any, promise: Promise, keeps: bool) -> Bucket:
        """The bucket that DDP has given to the hook. With ``keeps`` its gradients can be restored."""
        buffer, parameters = given.buffer(), given.parameters()
        self._devices.add(str(buffer.device))
        check_one_device(self._devices)
        layout = self.layouts.get(tuple(map(id, parameters))) or self._lay_out(parameters, given.gradients())
        copy = None
        if keeps and not self._keeps_gradients(buffer):
            copy = self._copy(given.index(), buffer)
        return Bucket(int(given.index()), given.is_last(), buffer, parameters, layout, promise, copy).record_ready()

    def compresses(self, name: str, size: int) -> bool:
        """Whether the options let a parameter be compressed."""
        return size >= self._options.min_size and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._options.exclude)

    def blank_feedback(self) -> dict[str, torch.Tensor]:
        """Zeros for each parameter that is compressed, under the names of error feedback."""
        ddp = None if self._ddp is None else self._ddp()
        found = {}
        for name, parameter in named_parameters(module_of(ddp)).items() if ddp is not None else ():
            if parameter.requires_grad and parameter.numel() and self.compresses(name, parameter.numel()):
                found[name + _order_of(parameter)] = torch.zeros(parameter.numel())
        return found

    def without_strangers(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A checkpoint's state without what belongs to no parameter of the model."""
        if not self._known:
            return state
        # What is kept in another order than the usual one says so behind the name, and a part of a parameter where it begins and ends.
        strange = sorted(key for key in state["feedback"] if key.partition(" ")[0].partition("[")[0] not in self._known)
        if strange:
            log.warning("the checkpoint has error feedback of %s, which the model does not have: it is left out", ", ".join(strange))
        return {**state, "feedback": {key: kept for key, kept in state["feedback"].items() if key not in strange}}

    def _keeps_gradients(self, buffer: torch.Tensor) -> bool:
        """Whether this rank's gradients are in the parameters' ``grad``, in tensors of their own. They are not where these are views of buckets, where DDP
        looks for unused parameters, nor in ``DDP.join()``: a rank without inputs hands over zeros there, and its ``grad`` is that of its last step."""
        ddp = None if self._ddp is None else self._ddp()
        # A plain module does not tell how DDP treats it.
        if ddp is None or ddp.gradient_as_bucket_view or ddp.find_unused_parameters or getattr(ddp, "static_graph", False) or buffer.is_sparse:
            return False
        return not getattr(getattr(ddp, "_join_config", None), "enable", True)

    def _copy(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """A copy of a bucket. Its memory is kept for the next step: getting it anew costs as much as the copy."""
        if buffer.is_sparse:
            return buffer.detach().clone()
        found = self._copies.get(index)
        if found is None or found.shape != buffer.shape or found.dtype != buffer.dtype:
            found = self._copies[index] = torch.empty_like(buffer)
        return found.copy_(buffer.detach())

    def _lay_out(self, parameters: list[torch.nn.Parameter], gradients: list[torch.Tensor]) -> Layout:
        """The layout of a bucket of these parameters, of which there was none before."""
        segments = []
        offset = 0
        for parameter, gradient in zip(parameters, gradients):
            name = self._names.setdefault(id(parameter), f"p{len(self._names)}")
            length = gradient.numel()
            segments.append(Segment(name, offset, length, self.compresses(name, length), _order_of(parameter)))
            offset += length
        # DDP makes other buckets: what was for the old ones may go.
        for old in self.layouts.values():
            old.forget_staging()
        layout = self.layouts[tuple(map(id, parameters))] = Layout(self._scope, segments)
        return layout


def _order_of(parameter: torch.Tensor) -> str:
    """The order of a parameter's coordinates in a bucket, if it is not the usual one."""
    plain = parameter.is_contiguous() or not is_dense(parameter)
    return "" if plain else f" in the order of strides {tuple(parameter.stride())}"


def check_exclude(model: torch.nn.Module, exclude: Sequence[str]) -> None:
    """Refuses names that no parameter of a model has. A pattern may be meant for many models."""
    names = list(named_parameters(module_of(model)))
    for pattern in exclude:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            text = f"exclude has {pattern!r}, and no parameter of the model matches that; they have names like {', '.join(names[:3])}"
            if not set(pattern) & set("*?["):
                raise errors.ConfigError(text)
            log.warning("%s", text)


def check_one_device(devices: set[str]) -> None:
    """Refuses gradients of several devices: they are copied or compressed on streams of one."""
    if len(devices) > 1:
        raise errors.ConfigError(
            f"the model's parameters are on {len(devices)} devices ({', '.join(sorted(devices))}), and a hook takes gradients of one: have a rank for each "
            "device, or average with thc.torch.overlap, which takes gradients from anywhere"
        )
