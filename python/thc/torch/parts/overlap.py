"""Nothing waits for a mean: training goes on from a local update while the global one travels (SlimGC, section 3.5)."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.engine.bucket import Piece, is_finite
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import begin_alike, enter, scope_of
from thc.torch.names import module_of, named_parameters
from thc.torch.options import Compression, Options
from thc.torch.parts.adaptive import Adaptive
from thc.torch.ranks.peers import Peers


class Overlap(Adapter):
    """The model backup of a model in training; made by :func:`overlap`."""

    def __init__(self, engine: Engine, optimizer: torch.optim.Optimizer, names: Mapping[torch.nn.Parameter, str], backup: bool) -> None:
        """``names`` are those of the parameters that the optimizer trains, in their order."""
        super().__init__(engine)
        self.steps = 0
        """Steps begun."""
        self.skipped = 0
        """Steps whose gradients were not finite on some rank: their global update was left out on all."""
        self._optimizer = optimizer
        self._trial = Trial(optimizer) if backup else None
        self._parameters = list(names)
        self._pieces = cut_gradients(f"overlap{scope_of(self.group)}", self._parameters, names)
        self._common = [p.detach().clone() for p in self._parameters]
        """The backup: what all ranks have in common, as of the last mean that has come."""
        optimizer.register_step_pre_hook(_refuse_step)

    def step(self) -> None:
        """In place of ``optimizer.step``: sends this step's gradients, takes in the mean of the step before, and goes on from there by this rank's own
        gradients. With a ``GradScaler``, ``scaler.unscale_(optimizer)`` comes before and ``scaler.update()`` behind it."""
        if set(_trained_by(self._optimizer)) != set(self._parameters):
            raise errors.ConfigError("parameters were frozen, unfrozen or added: call settle() first, and overlap anew with group=loop.group")
        mine = [p.grad for p in self._parameters]
        if self._pieces[0].under_way:
            self._take_in()
        else:
            # The model has the common parameters, perhaps from a checkpoint.
            self._copy(self._common, self._parameters)
        self._set_gradients(mine)
        finite = all([piece.fill() for piece in self._pieces])
        self.engine.begin(self._pieces)
        self.steps += 1
        # From gradients that are not finite there is no going on.
        if finite and self._trial is not None:
            self._trial.step()

    def resume(self) -> bool:
        """Settles first: see :meth:`thc.torch.Hook.resume`."""
        self.settle()
        return super().resume()

    def settle(self) -> None:
        """Takes in what is under way and gives all ranks the common parameters, as before an evaluation, a checkpoint, or the end. All
        ranks call it between the same steps."""
        if not self._pieces[0].under_way:
            return
        mine = [p.grad for p in self._parameters]
        self._take_in()
        self._copy(self._parameters, self._common)
        self._set_gradients(mine)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own, beside those of model and optimizer, which are taken after this one: this rank's error
        feedback by parameter, and with ``adapt`` the choices. It settles, so all ranks call it between the same steps."""
        self.settle()
        return self.engine.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; all ranks, with checkpoints of one step, and before model and optimizer load theirs."""
        self.settle()
        self.engine.load_state_dict(state)
        self.steps = self.engine.steps.number

    def _take_in(self) -> None:
        """The global update of the step before: the optimizer's, of the common parameters by the mean."""
        with self.engine.clock.measure_wait():
            finite = all([piece.wait() for piece in self._pieces])
        self.engine.clock.end_step()
        self._copy(self._parameters, self._common)
        if not finite:
            self.skipped += 1
            return
        for piece in self._pieces:
            piece.give()
        _stepping.add(self._optimizer)
        try:
            self._optimizer.step()
        finally:
            _stepping.discard(self._optimizer)
        self._copy(self._common, self._parameters)

    def _set_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for p, gradient in zip(self._parameters, gradients):
            p.grad = gradient

    @staticmethod
    def _copy(to: Sequence[torch.Tensor], source: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for target, origin in zip(to, source):
                target.copy_(origin)


_stepping: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""Optimizers whose step a loop has called."""


def _refuse_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if optimizer not in _stepping:
        raise errors.ConfigError("this optimizer's model overlaps: call the loop's step() in place of optimizer.step()")


def overlap(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    backup: bool = True,
    *,
    process_group: Any = None,
    group: BaseGroup | None = None,
    over: str = "server",
    fallback: bool = True,
    compression: Compression = Compression(),
    join: Join = Join(),
) -> Overlap:
    """Hides the averaging of gradients behind the next step, by SlimGC's model backup; all ranks call it alike (docs/pytorch-research.md)::

        loop = thc.torch.overlap(model, optimizer)
        for batch in batches:
            loss(model, batch).backward()
            loop.step()                             # in place of optimizer.step()
            optimizer.zero_grad()
        loop.settle()

    ``loop.step`` starts to average this step's gradients and does not wait: the next step computes its gradients at what the optimizer in its present
    state would make of the parameters by this rank's own gradients. When the mean has come, at the next ``loop.step``, the optimizer updates the common
    parameters by it: they are the same on all ranks bit for bit, and one step behind.

    - ``model``: a plain module, or one of DistributedDataParallel, which then averages nothing itself.
    - ``backup``: False leaves the local update out: gradients are computed at parameters one step old.
    - ``group``, ``over``, ``fallback``, ``compression``, ``join``: as for :func:`thc.torch.wrap`. Of a compression ``method``, ``feedback``, which is on by
      default, ``adapt`` and the codec's fields count.
    """
    is_ddp = isinstance(model, DistributedDataParallel)
    if is_ddp and process_group is None and model.process_group is not dist.group.WORLD:
        process_group = model.process_group
    known = {p: name for name, p in named_parameters(module_of(model)).items()}
    # The model need not have all that its optimizer trains.
    names = {p: known.get(p, f"p{number}") for number, p in enumerate(_trained_by(optimizer))}
    if any(p.dtype == torch.float64 for p in names):
        raise errors.ConfigError("the optimizer has parameters of f64, which THC would average as f32: use thc.torch.wrap, which sends them otherwise")
    compression.only("overlap", "feedback", "adapt")
    group = enter(process_group, group, over, compression, join, fallback=fallback)
    begin_alike(model, process_group)
    if is_ddp and all(fn is not _keep_own for fn, _ in getattr(model, "_comm_hooks", ())):
        model.register_comm_hook(None, _keep_own)
    kept = Options.of(compression, group, feedback=True, fallback=fallback, device="cpu")
    peers = Peers(process_group)
    adaptive = None if kept.adapt is None else Adaptive(kept.adapt, group, peers.rank, {name: p.numel() for p, name in names.items()})
    return Overlap(Engine(group, kept, peers, adaptive, by_optimizer=True), optimizer, names, backup)


def _trained_by(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for each in optimizer.param_groups for p in each["params"] if p.requires_grad]


def _keep_own(_: Any, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """A communication hook that leaves each rank its own gradients."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
"""Where an optimizer keeps the hooks of its step."""


class Trial:
    """Steps of an optimizer that change parameters and leave its own state, momentum and the like, as it was. Its step's hooks, which may
    count or log, are not called: the step that is meant to stay calls them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._copies: dict[tuple[torch.Tensor, str], torch.Tensor] = {}
        """By parameter and name; their memory is kept."""

    def step(self) -> None:
        """Updates parameters by their gradients."""
        state = self._optimizer.state
        kept = dict(state)
        for p, own in kept.items():
            state[p] = {key: self._copy(p, key, value) for key, value in own.items()}
        hooks = {name: getattr(self._optimizer, name) for name in HOOKS}
        for name in hooks:
            setattr(self._optimizer, name, OrderedDict())
        try:
            self._optimizer.step()
        finally:
            for name, own in hooks.items():
                setattr(self._optimizer, name, own)
            state.clear()
            state.update(kept)

    def _copy(self, p: torch.Tensor, key: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        held = self._copies.get((p, key))
        if held is None or held.shape != value.shape or held.dtype != value.dtype or held.device != value.device:
            held = self._copies[p, key] = torch.empty_like(value)
        return held.copy_(value)


PIECE = 1 << 22
"""Coordinates that travel in one call, about."""


class Gradients(Piece):
    """Gradients of some neighbouring parameters."""

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], names: Mapping[torch.nn.Parameter, str]) -> None:
        self.parameters = parameters
        lengths = [p.numel() for p in parameters]
        flat = torch.empty(sum(lengths), pin_memory=any(p.device.type == "cuda" for p in parameters))
        self._parts = [part.view_as(p) for part, p in zip(flat.split(lengths), parameters)]
        super().__init__(name, flat, compressed=True, names={names[p]: p.numel() for p in parameters})

    def fill(self) -> bool:
        """Takes the gradients of this step; of a parameter that has none, zero. Whether they are finite."""
        for part, p in zip(self._parts, self.parameters):
            if p.grad is None:
                part.zero_()
            else:
                part.copy_(p.grad)
        return is_finite(self.numbers)

    def give(self) -> None:
        """Makes the mean the gradients of the parameters. A mean of zeros is no gradient: nothing used the parameter, on any rank, and an
        optimizer with momentum or weight decay leaves it as it is."""
        for part, p in zip(self._parts, self.parameters):
            p.grad = part.to(device=p.device, dtype=p.dtype) if part.any() else None


def cut_gradients(scope: str, parameters: Sequence[torch.nn.Parameter], names: Mapping[torch.nn.Parameter, str]) -> list[Gradients]:
    """Neighbours together, until there are enough for a call."""
    cut: list[list[torch.nn.Parameter]] = [[]]
    done = 0
    for p in parameters:
        if cut[-1] and done + p.numel() > PIECE:
            cut.append([])
            done = 0
        cut[-1].append(p)
        done += p.numel()
    return [Gradients(f"{scope}.{number}", some, names) for number, some in enumerate(cut)]
