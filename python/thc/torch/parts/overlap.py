"""Nothing waits for a mean: training goes on from a local update while the global one travels (SlimGC, section 3.5)."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.compression.selector import ON_CPU
from thc.torch.engine.bucket import Piece, is_finite
from thc.torch.engine.clock import Clock
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import begin_alike, enter, scope_of
from thc.torch.names import named_parameters
from thc.torch.options import Compression, Options
from thc.torch.parts.adaptive import Adaptive
from thc.torch.parts.optimizer_step import replace_step, unscaled
from thc.torch.parts.part import Part
from thc.torch.ranks.peers import Peers

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


class Overlap(Adapter):
    """The model backup of a model in training; made by :func:`overlap`."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        optimizer: torch.optim.Optimizer,
        local: Trial | LocalOptimizer | None,
        rate: float | None,
        names: Callable[[], Mapping[torch.nn.Parameter, str]],
    ) -> None:
        """``names`` are those of the parameters that the optimizer trains now, in their order."""
        super().__init__(engine)
        self.steps = 0
        """Steps begun."""
        self.skipped = 0
        """Steps whose gradients were not finite on some rank: their global update was left out on all."""
        self.waited = 0.0
        """Seconds for which steps had to wait for a mean: what was not hidden."""
        self._clock = clock
        self._optimizer, self._update = optimizer, optimizer.step
        self._local, self._rate = local, rate
        self._names = names
        self._under_way = False
        self._train(names())

    def _train(self, names: Mapping[torch.nn.Parameter, str]) -> None:
        """Averages the gradients of these parameters from now on."""
        self._parameters = list(names)
        self._pieces = cut_gradients(f"overlap{scope_of(self.group)}", self._parameters, names)
        self._common = [p.detach().clone() for p in self._parameters]
        """The backup: what all ranks have in common, as of the last mean that has come."""

    def _follow(self) -> None:
        """Takes up parameters that have been frozen, unfrozen or added since the last step."""
        trained = {p for group in self._optimizer.param_groups for p in group["params"] if p.requires_grad}
        if trained == set(self._parameters):
            return
        if self.engine.options.adapt is not None:
            raise errors.ConfigError("other parameters are trained than when adapt chose how each travels: call overlap anew with a new optimizer")
        self.settle()
        self._train(self._names())

    def step(self, factor: float = 1.0, finite: bool = True) -> None:
        """What ``optimizer.step`` does now: sends this step's gradients, takes in the mean of the step before, and goes on from there by
        this rank's own gradients."""
        self._follow()
        mine = [p.grad for p in self._parameters]
        if self._under_way:
            self._take_in()
        else:
            self._begin_from_the_model()
        for p, gradient in zip(self._parameters, mine):
            p.grad = gradient
        for piece in self._pieces:
            # From gradients that are not finite there is no going on.
            finite = piece.fill(factor, finite) and finite
        self.engine.begin(self._pieces)
        self._under_way = True
        self.steps += 1
        if finite:
            self._local_update(factor)

    def resume(self) -> bool:
        """Settles first: see :meth:`thc.torch.Hook.resume`."""
        self.settle()
        return super().resume()

    def settle(self) -> None:
        """Takes in what is under way and gives all ranks the common parameters, as before an evaluation, a checkpoint, or the end. All
        ranks call it between the same steps."""
        if not self._under_way:
            return
        mine = [p.grad for p in self._parameters]
        self._take_in()
        with torch.no_grad():
            for p, common, gradient in zip(self._parameters, self._common, mine):
                p.copy_(common)
                p.grad = gradient

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own, beside those of model and optimizer, which are taken after this one: this rank's error
        feedback by parameter, with ``adapt`` the choices, the state of ``loc_optimizer``. It settles, so all ranks call it between the
        same steps."""
        self.settle()
        return self.engine.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; all ranks, with checkpoints of one step, and before model and optimizer load theirs."""
        self.settle()
        self.engine.load_state_dict(state)
        self.steps = self.engine.steps.number

    def _begin_from_the_model(self) -> None:
        """Nothing is under way, so the model has the common parameters, perhaps from a checkpoint."""
        with torch.no_grad():
            for p, common in zip(self._parameters, self._common):
                common.copy_(p)

    def _take_in(self) -> None:
        """The global update of the step before: the optimizer's, of the common parameters by the mean."""
        self._under_way = False
        started = time.perf_counter()
        with self._clock.measure_wait():
            finite = all([piece.wait() for piece in self._pieces])
        self.waited += time.perf_counter() - started
        self._clock.end_optimizer_step()
        with torch.no_grad():
            for p, common in zip(self._parameters, self._common):
                p.copy_(common)
        if not finite:
            self.skipped += 1
            return
        for piece in self._pieces:
            piece.give()
        self._update()
        with torch.no_grad():
            for p, common in zip(self._parameters, self._common):
                common.copy_(p)

    def _local_update(self, factor: float) -> None:
        """The local update: where the next step computes its gradients."""
        if self._local is None:
            return
        if factor != 1.0:
            for p in self._parameters:
                if p.grad is not None:
                    p.grad.mul_(factor)
        self._local.step(self._rate)


def overlap(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    backup: bool = True,
    *,
    loc_lr: float | None = None,
    loc_optimizer: MakeOptimizer | None = None,
    process_group: Any = None,
    group: BaseGroup | None = None,
    over: str = "server",
    fallback: bool = True,
    compression: Compression = Compression(),
    join: Join = Join(),
) -> Overlap:
    """Hides the averaging of gradients behind the next step, by SlimGC's model backup; all ranks call it alike (docs/pytorch.md)::

        loop = thc.torch.overlap(model, optimizer)
        for batch in batches:
            loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        loop.settle()

    ``optimizer.step`` starts to average this step's gradients and does not wait: the next step computes its gradients at what the optimizer in its
    present state would make of the parameters by this rank's own gradients. When the mean has come, at the next ``optimizer.step``, the optimizer
    updates the common parameters by it: they are the same on all ranks bit for bit, and one step behind.

    - ``model``: a plain module, or one of DistributedDataParallel, which then averages nothing itself.
    - ``backup``: False leaves the local update out: gradients are computed at parameters one step old.
    - ``loc_lr``: the rate of the local update [the optimizer's own].
    - ``loc_optimizer``: makes an optimizer for the local update, with a state of its own, from a list of parameter groups.
    - ``group``, ``over``, ``fallback``, ``compression``, ``join``: as for :func:`thc.torch.wrap`. Of a compression ``feedback``, which is on by default,
      ``adapt`` and the codec's fields count.
    """
    if isinstance(model, DistributedDataParallel):
        if process_group is None and model.process_group is not dist.group.WORLD:
            process_group = model.process_group
    if loc_lr is not None and loc_lr < 0:
        raise errors.ConfigError(f"loc_lr is {loc_lr}: give a learning rate of at least 0")
    names = functools.partial(_names_of, model, optimizer)
    if any(p.dtype == torch.float64 for p in names()):
        raise errors.ConfigError("the optimizer has parameters of f64, which THC would average as f32: use thc.torch.wrap, which sends them otherwise")
    compression.only("overlap", "feedback", "adapt")
    group = enter(process_group, group, over, compression, join, fallback=fallback)
    begin_alike(model, process_group)
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, _keep_own)
    local: Trial | LocalOptimizer | None = None
    if backup:
        local = Trial(optimizer, optimizer.step) if loc_optimizer is None else LocalOptimizer(optimizer, loc_optimizer)
    clock = Clock(group.training, by_optimizer=True)
    kept = Options.of(compression, group, feedback=True, fallback=fallback, device="cpu")
    peers = Peers(process_group)
    engine = Engine(group, kept, peers, clock, ON_CPU)
    if kept.adapt is not None:
        engine.parts.append(Adaptive.create(kept.adapt, group, peers, {name: p.numel() for p, name in names().items()}))
    if isinstance(local, LocalOptimizer):
        engine.parts.append(local)
    made = Overlap(engine, clock, optimizer, local, loc_lr, names)

    def step(closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # The update by the mean knows nothing of a scale.
        with unscaled(optimizer) as (scale, found):
            made.step(1.0 if scale is None else 1.0 / float(scale), found is None or not float(found))
        return loss

    replace_step(optimizer, step)
    # A GradScaler would not call the step of a rank whose gradients overflow, and the others would wait for it.
    optimizer._step_supports_amp_scaling = True
    return made


def _names_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[torch.nn.Parameter, str]:
    """The names in the model of the parameters that the optimizer trains; a number for one that the model does not have."""
    known = {p: name for name, p in named_parameters(getattr(model, "module", model)).items()}
    parameters = [p for each in optimizer.param_groups for p in each["params"]]
    return {p: known.get(p, f"p{number}") for number, p in enumerate(parameters) if p.requires_grad}


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


class LocalOptimizer(Part):
    """Another optimizer for the same groups of parameters, with no state in common."""

    name = "local"

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

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        self._own.load_state_dict(dict(state))


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

    def fill(self, factor: float, finite: bool) -> bool:
        """Takes the gradients of this step times a factor; of a parameter that has none, zero. Whether they are finite."""
        for part, p in zip(self._parts, self.parameters):
            if p.grad is None:
                part.zero_()
            else:
                part.copy_(p.grad)
        if factor != 1.0:
            self.numbers.mul_(factor)
        if not finite:
            # All ranks hear of one whose gradients are not finite, and leave the step out.
            self.numbers[0] = float("nan")
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
