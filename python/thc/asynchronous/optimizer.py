"""An optimizer for any module: its parameters live on a model server, and every step is a push and a pull."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from thc.asynchronous.model import Asynchronous, Pulled, Pushed, Tensor, Vector
from thc.errors import ConfigError, ModelEmptyError, ThcError
from thc.group import Group


class Flat:
    """One vector with a place for each of ``tensors``. For tensors of a GPU there is one on the GPU as well, and the one of
    the host is pinned: however many tensors there are, one copy crosses the bus."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        length = sum(tensor.numel() for tensor in tensors)
        device = tensors[0].device if tensors else torch.device("cpu")
        self._host = torch.zeros(length, dtype=torch.float32, device="cpu", pin_memory=device.type == "cuda")
        self._near = self._host if device.type == "cpu" else torch.zeros(length, dtype=torch.float32, device=device)
        parts = self._near.split([tensor.numel() for tensor in tensors]) if tensors else ()
        self._views = [part.view_as(tensor) for part, tensor in zip(parts, tensors)]
        self.array: npt.NDArray[np.float32] = self._host.numpy()
        """The vector, in host memory."""

    def gather(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """Fills it; the place of what is ``None`` gets zeros."""
        with torch.no_grad():
            for view, tensor in zip(self._views, tensors):
                if tensor is None:
                    view.zero_()
                else:
                    view.copy_(tensor.to_dense() if tensor.is_sparse else tensor)
            if self._near is not self._host:
                self._host.copy_(self._near)

    def scatter(self, tensors: Sequence[torch.Tensor]) -> None:
        """Brings its numbers into the tensors."""
        with torch.no_grad():
            if self._near is not self._host:
                self._near.copy_(self._host, non_blocking=True)
            for view, tensor in zip(self._views, tensors):
                tensor.copy_(view)

    def is_finite(self) -> bool:
        """Whether all of it is."""
        return bool(torch.isfinite(self._host.sum())) or bool(torch.isfinite(self._host).all())


Closure = Callable[[], Any]
log = logging.getLogger("thc.torch")


class AsynchronousSGD(Optimizer):
    """Asynchronous training with double quantization: the steps, by SGD, momentum or Adam, are the server's::

        spec = thc.ModelSpec(thc.torch.tensors(module), rate=1e-3, adam=(0.9, 0.999))
        model = thc.Asynchronous("host:9100", spec, worker=rank, bits=4)
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)
        while optimizer.version < steps:
            optimizer.zero_grad()
            loss(module, next(batches)).backward()
            optimizer.step()

    Making it gives the model its first value, if it has none, and takes over the server's parameters. The parameters hold what was pulled, which is
    rounded; :meth:`settle` and :meth:`export_into` bring the numbers themselves. The learning rate is the model's; a scheduler may scale it (all groups
    alike). Buffers and parameters that need no gradient stay each worker's own. A gradient with a NaN or an infinity is not pushed.

    With correction (SVRG) ``step`` needs a closure that computes the loss of one batch and its gradients, and the optimizer needs ``full``, a closure
    of the same kind for all samples of this worker's part, called once per epoch, and ``group``, a :class:`thc.Group` that averages over the workers,
    whose parts must have equal sizes (docs/asynchronous.md).
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        model: Asynchronous,
        *,
        full: Closure | None = None,
        group: Group | None = None,
    ) -> None:
        super().__init__(parameters, {"lr": model.spec.rate})
        if model.spec.corrected and (full is None or group is None):
            raise ConfigError("a model with correction needs full, the closure of the full-batch gradient, and group")
        self.model = model
        self.pushed: Pushed | None = None
        """What became of the last push."""
        self.skipped = 0
        """Gradients that were not finite, and so were not pushed."""
        self.late = 0
        """Gradients that came too late for the model's bound on delays."""
        self.version = 0
        """Pushes that the model had taken when its parameters were pulled last, of all workers; the fewest of its shards."""
        self.epoch: int | None = None
        """The epoch whose snapshot is held; ``None`` without correction."""
        self._full = full
        self._group = group
        self._tensors: list[torch.Tensor] = [p for each in self.param_groups for p in each["params"] if p.requires_grad]
        lengths = [p.numel() for p in self._tensors]
        if sum(lengths) != model.spec.length:
            raise ConfigError(f"the module has {sum(lengths)} parameters that need gradients, the model {model.spec.length}")
        expected = [tensor.length for tensor in model.spec.tensors]
        if expected and expected != [length for length in lengths if length]:
            raise ConfigError("the module's parameters are not the model's tensors, or are in another order")
        self._flat, self._flat_gradient = Flat(self._tensors), Flat(self._tensors)
        self._x, self._gradient = self._flat.array, self._flat_gradient.array
        self._snapshot = Flat(self._tensors) if model.spec.corrected else None
        self._full_gradient: Vector | None = None
        """The gradient of the last epoch that this worker had a part in."""
        self._flat.gather(self._tensors)
        # Who comes later has nothing to send: what the model has no value of stays this module's in the vector.
        pulled = model.pull(self._x)
        if pulled.empty:
            model.initialise(self._x)
            pulled = model.pull(self._x)
        self._take(pulled)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while the optimizer is made: the model's length is settled then."""
        if hasattr(self, "_tensors"):
            raise ConfigError("the model on the server has its length: give all parameters when the optimizer is made")
        super().add_param_group(param_group)

    def _gradients(self) -> None:
        self._flat_gradient.gather([p.grad for p in self._tensors])

    def _take(self, pulled: Pulled) -> None:
        """Takes over what was pulled; between epochs, the epoch's gradient first."""
        patient = False
        while True:
            if pulled.empty:
                if self.epoch is not None:
                    raise ModelEmptyError("the server has lost the model in an epoch: let it keep its state (--state)")
                if self.model.initialise(self._x):
                    log.warning("the model server has lost the model, which goes on from what this worker had")
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
            self.model.snapshot(self._snapshot.array)
            self.epoch = min(pulled.epochs)
        self.version = min(pulled.versions)
        self._flat.scatter(self._tensors)

    def _begin(self, epoch: int, snapshot: Flat) -> None:
        """This worker's part in the full-batch gradient of an epoch."""
        if self._full is None or self._group is None:
            raise ConfigError("a model with correction needs full and group")
        if self.model.snapshot(snapshot.array) != epoch:
            raise ThcError("the snapshot is of another epoch than the model: were workers restarted?")
        snapshot.scatter(self._tensors)
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
            raise ConfigError("groups of parameters have different learning rates, but the model has only one: give all groups the same")
        return rates.pop() / self.model.spec.rate

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
            self._snapshot.scatter(self._tensors)
            with torch.enable_grad():
                closure()
            self._gradients()
            np.subtract(here, self._gradient, out=self._gradient)
        if self._flat_gradient.is_finite():
            self.pushed, pulled = self.model.push_pull(self._gradient, self._x, scale=self._scale())
            self._count_late(self.pushed)
        else:
            self.skipped += 1
            log.warning("a gradient is not finite, and is not pushed (%d so far)", self.skipped)
            pulled = self.model.pull(self._x)
        self._take(pulled)
        return loss

    def _count_late(self, pushed: Pushed) -> None:
        if any(reason == "late" for _, reason in pushed.refused):
            self.late += 1
            if self.late & (self.late - 1) == 0:
                log.warning(
                    "this worker is too slow: %d of its gradients were older than the model's bound on delays and were refused: give it smaller batches, or "
                    "raise delay",
                    self.late,
                )

    def settle(self) -> int:
        """Puts the model's own numbers, not rounded ones, into the parameters: their version, the fewest pushes of its shards.
        ``module.state_dict()`` is exact then, until the next ``step``."""
        self.version = min(self.model.exact(self._x))
        self._flat.scatter(self._tensors)
        return self.version

    def state_dict(self) -> dict[str, Any]:
        """The state of every optimizer, after :meth:`settle`; what the server's optimizer keeps is in the server's state
        folder."""
        self.settle()
        return {**super().state_dict(), "thc": {"version": self.version, "skipped": self.skipped, "late": self.late}}

    def export_into(self, module: torch.nn.Module) -> int:
        """Puts the model's own numbers into the parameters of another module of the same form, as one that is evaluated: their
        version. This worker's parameters stay what they are."""
        parameters = [p for p in module.parameters() if p.requires_grad]
        if [p.shape for p in parameters] != [p.shape for p in self._tensors]:
            raise ConfigError("the module's trainable parameters have other shapes than the optimizer's, are in another order, or others are frozen")
        exact = Flat(parameters)
        version = min(self.model.exact(exact.array))
        exact.scatter(parameters)
        return version


def coordinates(module: torch.nn.Module) -> int:
    """How many parameters of a module need gradients: the length of its model, if all of it is to have one scale for each shard."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def tensors(
    module: torch.nn.Module, *, bits: int | None = None, exact: Callable[[str, torch.Tensor], bool] | None = None
) -> list[Tensor]:
    """The tensors of a module's model, which are the parameters that need gradients, in the order of ``module.parameters()``:
    each has scales of its own. ``exact`` says of a name and parameter whether it travels as floats both ways; without it
    those with fewer than two dimensions do, which are norms and biases. The others have ``bits`` when pulled, or what the
    model says."""
    is_exact = exact or (lambda _, parameter: parameter.dim() < 2)
    return [
        Tensor(parameter.numel(), 32 if is_exact(name, parameter) else bits)
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.numel() > 0
    ]
