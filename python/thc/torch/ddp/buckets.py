"""What DDP hands over to its hook, as buckets of the engine."""

from __future__ import annotations

import fnmatch
import weakref
from typing import Any

import torch

from thc import errors
from thc.torch.engine.bucket import Bucket, Promise
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.options import Options

__all__ = ["Buckets", "check_one_device"]


class Buckets:
    """Makes the buckets of a model. All methods are for the thread of autograd."""

    def __init__(self, model: torch.nn.Module | None, options: Options, scope: str) -> None:
        self._options, self._scope = options, scope
        ddp = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        module: Any = getattr(model, "module", None) if ddp else model
        self._ddp = weakref.ref(model) if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        self._names = {} if module is None else {id(parameter): name for name, parameter in module.named_parameters()}
        self.layouts: dict[tuple[int, ...], Layout] = {}
        """By the identities of a bucket's parameters."""
        self._copies: dict[int, torch.Tensor] = {}
        self._devices: set[str] = set()
        """Where buckets have come from."""

    def make(self, given: Any, promise: Promise, keeps: bool, one_call: bool) -> Bucket:
        """The bucket that DDP has given to the hook. With ``keeps`` its gradients can be restored; with ``one_call`` what is not compressed travels
        in the same call with what is."""
        buffer, parameters = given.buffer(), given.parameters()
        self._devices.add(str(buffer.device))
        check_one_device(self._devices)
        layout = self._layout(parameters, given.gradients(), one_call)
        copy = None
        if keeps and not (self._keeps_gradients and Bucket.keeps_gradients(parameters, buffer)):
            copy = self._copy(given.index(), buffer)
        bucket = Bucket(given.index(), given.is_last(), buffer, parameters, layout, promise, copy)
        if buffer.device.type == "cuda":
            bucket.ready = torch.cuda.Event()
            bucket.ready.record(torch.cuda.current_stream(buffer.device))
        return bucket

    def compresses(self, name: str, size: int) -> bool:
        """Whether the options let a parameter be compressed."""
        return size >= self._options.min_size and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._options.exclude)

    @property
    def _keeps_gradients(self) -> bool:
        """Whether this rank's gradients are in the parameters' ``grad`` whenever a bucket comes. They are not where DDP looks for unused
        parameters, nor in ``DDP.join()``: a rank without inputs hands over zeros there, and its ``grad`` is that of its last step."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None:
            # A plain module does not tell how DDP treats it.
            return False
        joins = getattr(getattr(ddp, "_join_config", None), "enable", True)
        return not (ddp.find_unused_parameters or getattr(ddp, "static_graph", False) or joins)

    def _copy(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """A copy of a bucket. Its memory is kept for the next step: getting it anew costs as much as the copy."""
        if buffer.is_sparse:
            return buffer.detach().clone()
        found = self._copies.get(index)
        if found is None or found.shape != buffer.shape or found.dtype != buffer.dtype:
            found = self._copies[index] = torch.empty_like(buffer)
        return found.copy_(buffer.detach())

    def _layout(self, parameters: list[torch.nn.Parameter], gradients: list[torch.Tensor], one_call: bool) -> Layout:
        identity = tuple(id(parameter) for parameter in parameters)
        layout = self.layouts.get(identity)
        if layout is None:
            segments = []
            offset = 0
            for parameter, gradient in zip(parameters, gradients):
                name = self._names.setdefault(id(parameter), f"p{len(self._names)}")
                length = gradient.numel()
                exact = not self.compresses(name, length)
                rows = parameter.shape[0] if parameter.dim() == 2 else 1
                segments.append(Segment(name, offset, length, one_call or not exact, exact, rows))
                offset += length
            # DDP makes other buckets: what was for the old ones may go.
            for old in self.layouts.values():
                old.forget_staging()
            layout = self.layouts[identity] = Layout(self._scope, segments)
        return layout


def check_one_device(devices: set[str]) -> None:
    """Refuses gradients of several devices: they are copied or compressed on streams of one."""
    if len(devices) > 1:
        raise errors.ConfigError(
            f"the model's parameters are on {len(devices)} devices ({', '.join(sorted(devices))}), and a hook takes gradients of one: have a rank for each "
            "device, or average with thc.torch.overlap, which takes gradients from anywhere"
        )
