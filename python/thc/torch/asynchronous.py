"""An optimizer for any module: its parameters live on a model server, and every step is a push and a pull."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from thc.asynchronous import Asynchronous, Pulled, Pushed, Vector
from thc.errors import ConfigError, ModelEmptyError, ThcError
from thc.group import Group

__all__ = ["AsynchronousSGD", "coordinates"]

Closure = Callable[[], Any]
log = logging.getLogger("thc.torch")


class AsynchronousSGD(Optimizer):
    """Asynchronous SGD with double quantization::

        model = thc.Asynchronous("host:9100", thc.torch.coordinates(module), rate=0.1, worker=rank, bits=4)
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)
        while optimizer.version < steps:
            optimizer.zero_grad()
            loss(module, next(batches)).backward()
            optimizer.step()

    Making it gives the model its first value, if it has none, and takes over the server's parameters. The learning
    rate is the model's; a scheduler may scale it (all groups alike). Buffers of the module, such as BatchNorm's running
    means, stay each worker's own. As in PyTorch's optimizers, a parameter without a gradient is not in the step, and so
    does not shrink by ``l1`` and ``l2``.

    With correction (SVRG) ``step`` needs a closure that computes the loss of one batch and its gradients, as
    those of PyTorch do: it is called at the pulled parameters and at the snapshot. And the optimizer needs ``full``, a closure
    of the same kind for all samples of this worker's part, called once per epoch, and ``group``, a :class:`thc.Group` that
    averages over the workers, whose parts must have equal sizes. Modules that draw random numbers (dropout) or whose loss
    of one sample depends on others (BatchNorm) have no such difference: train them without.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        model: Asynchronous,
        *,
        full: Closure | None = None,
        group: Group | None = None,
    ) -> None:
        super().__init__(parameters, {"lr": model.rate})
        if model.corrected and (full is None or group is None):
            raise ConfigError("a model with correction needs full, the closure of the full-batch gradient, and group")
        self.model = model
        self.pushed: Pushed | None = None
        """What became of the last push."""
        self.version = 0
        """Pushes that the model had taken when its parameters were pulled last, of all workers; the fewest of its shards."""
        self.epoch: int | None = None
        """The epoch whose snapshot is held; ``None`` without correction."""
        self._full = full
        self._group = group
        self._tensors: list[Tensor] = [p for each in self.param_groups for p in each["params"]]
        length = sum(p.numel() for p in self._tensors)
        if length != model.coordinates:
            raise ConfigError(f"the module has {length} parameters, the model {model.coordinates}")
        self._x = np.empty(length, np.float32)
        self._gradient = np.empty(length, np.float32)
        self._snapshot = np.empty(length, np.float32) if model.corrected else None
        self._full_gradient: Vector | None = None
        """Of the epoch that this worker had a part in last."""
        self._gather(self._x, self._tensors)
        # Who comes later has nothing to send: what the model has no value of stays this module's in the vector.
        pulled = model.pull(self._x)
        if pulled.empty:
            model.initialise(self._x)
            pulled = model.pull(self._x)
        self._settle(pulled)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while the optimizer is made: the model's length is settled then."""
        if hasattr(self, "_tensors"):
            raise ConfigError("the model on the server has its length: give all parameters when the optimizer is made")
        super().add_param_group(param_group)

    def _gather(self, out: Vector, tensors: Iterable[Tensor | None]) -> None:
        at = 0
        for parameter, tensor in zip(self._tensors, tensors):
            end = at + parameter.numel()
            if tensor is None:
                out[at:end] = 0.0
            else:
                out[at:end] = tensor.detach().reshape(-1).float().cpu().numpy()
            at = end

    def _scatter(self, x: Vector) -> None:
        at = 0
        with torch.no_grad():
            for parameter in self._tensors:
                end = at + parameter.numel()
                parameter.copy_(torch.from_numpy(x[at:end]).view_as(parameter))
                at = end

    def _gradients(self) -> None:
        self._gather(self._gradient, (p.grad for p in self._tensors))

    def _spans(self) -> list[tuple[int, int]]:
        """The coordinates that are in a step, as in PyTorch's optimizers those that have a gradient. With correction one of
        this batch may be missing, and that of all samples is not."""
        spans, at = [], 0
        for parameter in self._tensors:
            end = at + parameter.numel()
            if end > at and (parameter.requires_grad if self._snapshot is not None else parameter.grad is not None):
                spans.append((at, end))
            at = end
        return spans

    def _settle(self, pulled: Pulled) -> None:
        """Takes over what was pulled; between epochs, the epoch's gradient first."""
        patient = False
        while True:
            if pulled.empty:
                if self.epoch is not None:
                    raise ModelEmptyError("a server has lost its part of the model in an epoch: let it keep its state (--state)")
                if self.model.initialise(self._x):
                    log.warning("a model server has lost its part of the model, which goes on from what this worker had")
            elif self._snapshot is not None and pulled.waiting is not None and pulled.waiting != self.epoch:
                self._begin(pulled.waiting, self._snapshot)
            elif self.epoch is not None and self._full_gradient is not None and self.epoch in pulled.waits:
                # Who was to give it may be gone: after a while everybody does.
                if patient:
                    self.model.begin(self.epoch, self._full_gradient)
            elif pulled.running:
                break
            # Patience is for those whose part of the epoch's gradient is done.
            patient = self.epoch is not None and self.epoch in pulled.waits
            pulled = self.model.pull(self._x, patient=patient)
        if self._snapshot is not None and self.epoch is None:
            # It came in the middle of an epoch, whose gradient it has no part in.
            self.model.snapshot(self._snapshot)
            self.epoch = min(pulled.epochs)
        self.version = min(pulled.versions)
        self._scatter(self._x)

    def _begin(self, epoch: int, snapshot: Vector) -> None:
        """This worker's part in the full-batch gradient of an epoch."""
        if self._full is None or self._group is None:
            raise ConfigError("a model with correction needs full and group")
        if self.model.snapshot(snapshot) != epoch:
            raise ThcError("the snapshot is of another epoch than the model: were workers restarted?")
        self._scatter(snapshot)
        self.zero_grad()
        with torch.enable_grad():
            self._full()
        self._gradients()
        self._group.allreduce(self._gradient, mode="raw")
        self._full_gradient = self._gradient.copy()
        # All have the same: one of them sends it.
        if self._group.worker == 0:
            self.model.begin(epoch, self._full_gradient)
        self.epoch = epoch

    def _scale(self) -> float:
        rates = {float(group["lr"]) for group in self.param_groups}
        if len(rates) != 1:
            raise ConfigError("groups of parameters have different learning rates, which a model has only one of")
        return rates.pop() / self.model.rate

    def step(self, closure: Closure | None = None) -> Any:
        """Pushes the gradient, and replaces the parameters by the server's: the loss of the closure, which it needs
        with correction."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        elif self._snapshot is not None:
            raise ConfigError("a model with correction needs step(closure), which computes the gradients of one batch")
        self._gradients()
        if self._snapshot is not None and closure is not None:
            here = self._gradient.copy()
            self._scatter(self._snapshot)
            with torch.enable_grad():
                closure()
            self._gradients()
            np.subtract(here, self._gradient, out=self._gradient)
        self.pushed, pulled = self.model.push_pull(self._gradient, self._x, scale=self._scale(), spans=self._spans())
        self._settle(pulled)
        return loss


def coordinates(module: torch.nn.Module) -> int:
    """How many parameters a module has: the length of its model."""
    return sum(p.numel() for p in module.parameters())
