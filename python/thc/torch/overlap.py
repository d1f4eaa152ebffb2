"""Nothing waits for a mean: training goes on from a local update while the global one travels (SlimGC, section 3.5)."""

from __future__ import annotations

import functools
import logging
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.group import Group
from thc.torch.adapt_options import Adapt
from thc.torch.averaging import Averaging, Piece
from thc.torch.clock import StepClock
from thc.torch.joining import begin_alike, join, scope_of
from thc.torch.plan import Plan
from thc.torch.refining import Refine, Refining
from thc.torch.trial import Trial
from thc.torch.way import falls_back

__all__ = ["Overlap", "overlap"]

log = logging.getLogger("thc.torch")

BUCKET = 1 << 22
"""Coordinates that travel in one call, about."""

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


class _Bucket:
    """Gradients of some neighbouring parameters, in one piece of f32 on the CPU."""

    def __init__(self, scope: str, parameters: list[torch.nn.Parameter], names: Mapping[torch.nn.Parameter, str]) -> None:
        self.parameters = parameters
        length = sum(p.numel() for p in parameters)
        self.flat = torch.empty(length, pin_memory=any(p.device.type == "cuda" for p in parameters))
        self.pieces = [piece.view_as(p) for piece, p in zip(self.flat.split([p.numel() for p in parameters]), parameters)]
        self.piece = Piece(scope, self.flat, compressed=True, names={names[p]: p.numel() for p in parameters})

    def fill(self, factor: float, finite: bool) -> bool:
        """Takes the gradients of this step times a factor; of a parameter that has none, zero. Whether they are finite."""
        for piece, p in zip(self.pieces, self.parameters):
            if p.grad is None:
                piece.zero_()
            else:
                piece.copy_(p.grad)
        if factor != 1.0:
            self.flat.mul_(factor)
        if not finite:
            # All ranks hear of one whose gradients are not finite, and leave the step out.
            self.flat[0] = float("nan")
        return bool(torch.isfinite(self.flat.sum()))


class _Other:
    """An optimizer of local updates, for the same groups of parameters and with no state in common."""

    def __init__(self, optimizer: torch.optim.Optimizer, make: MakeOptimizer) -> None:
        self._optimizer = optimizer
        self._own = make([dict(each) for each in optimizer.param_groups])

    def step(self, rate: float | None) -> None:
        for mine, theirs in zip(self._own.param_groups, self._optimizer.param_groups):
            mine["lr"] = theirs["lr"] if rate is None else rate
        self._own.step()

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._own.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._own.load_state_dict(state)


class Overlap:
    """The model backup of a model in training; made by :func:`overlap`."""

    def __init__(
        self,
        group: Group,
        optimizer: torch.optim.Optimizer,
        local: Trial | _Other | None,
        rate: float | None,
        averaging: Averaging,
        clock: StepClock,
        names: Mapping[torch.nn.Parameter, str],
    ) -> None:
        self.group = group
        self._averaging, self._clock = averaging, clock
        self.steps = 0
        """Steps begun."""
        self.skipped = 0
        """Steps whose gradients were not finite on some rank: their global update was left out on all."""
        self.waited = 0.0
        """Seconds for which steps had to wait for a mean: what was not hidden."""
        self._optimizer, self._update = optimizer, optimizer.step
        self._local, self._rate = local, rate
        self._parameters = [p for each in optimizer.param_groups for p in each["params"] if p.requires_grad]
        scope = f"overlap{scope_of(group)}"
        self._buckets = [_Bucket(f"{scope}.{number}", cut, names) for number, cut in enumerate(_cut(self._parameters))]
        self._common = [p.detach().clone() for p in self._parameters]
        """The backup: what all ranks have in common, as of the last mean that has come."""
        self._under_way = False

    def step(self, factor: float = 1.0, finite: bool = True) -> None:
        """What ``optimizer.step`` does now: sends this step's gradients, takes in the mean of the step before, and goes on from there by
        this rank's own gradients."""
        mine = [p.grad for p in self._parameters]
        if self._under_way:
            self._take_in()
        else:
            self._begin_from_the_model()
        for bucket, own in zip(self._buckets, self._of_buckets(mine)):
            for p, gradient in zip(bucket.parameters, own):
                p.grad = gradient
            # From gradients that are not finite there is no going on.
            finite = bucket.fill(factor, finite) and finite
        self._averaging.begin([bucket.piece for bucket in self._buckets])
        self._under_way = True
        self.steps += 1
        if finite:
            self._local_update(factor)

    @property
    def plans(self) -> Sequence[Plan]:
        """All choices so far, with ``adapt``."""
        adaptive = self._averaging.adaptive
        return () if adaptive is None else tuple(adaptive.plans)

    @property
    def refining(self) -> Refining | None:
        """With ``refine``: how the last step's means travelled and what of them was refined."""
        return self._averaging.refining

    @property
    def fallback_active(self) -> bool:
        """Whether the parameter server has been lost and means come from the process group."""
        return self._averaging.fallback_active

    def resume(self) -> bool:
        """After the parameter server was lost and is back: settles, joins anew and goes on compressed. All ranks call it between the same
        steps; returns, alike on all, whether it worked."""
        self.settle()
        return self._averaging.resume()

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
        state = {"steps": self.steps, **self._averaging.state_dict()}
        return state | {"local": self._local.state_dict()} if isinstance(self._local, _Other) else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; all ranks, with checkpoints of one step, and before model and optimizer load theirs."""
        self.settle()
        self.steps = int(state["steps"])
        self._averaging.load_state_dict(state)
        if isinstance(self._local, _Other) and "local" in state:
            self._local.load_state_dict(state["local"])

    def _begin_from_the_model(self) -> None:
        """Nothing is under way, so the model has the common parameters, perhaps from a checkpoint."""
        with torch.no_grad():
            for p, common in zip(self._parameters, self._common):
                common.copy_(p)

    def _of_buckets(self, gradients: Sequence[torch.Tensor | None]) -> list[list[torch.Tensor | None]]:
        found, at = [], 0
        for bucket in self._buckets:
            found.append(list(gradients[at : at + len(bucket.parameters)]))
            at += len(bucket.parameters)
        return found

    def _take_in(self) -> None:
        """The global update of the step before: the optimizer's, of the common parameters by the mean."""
        self._under_way = False
        self._averaging.note_need()
        started = time.perf_counter()
        with self._clock.measure_wait():
            for bucket in self._buckets:
                bucket.piece.arrive()
            finite = all([bucket.piece.wait() for bucket in self._buckets])
        self.waited += time.perf_counter() - started
        if (row := self._clock.end_optimizer_step()) is not None:
            self.group.training.step(row)
        with torch.no_grad():
            for p, common in zip(self._parameters, self._common):
                p.copy_(common)
        if not finite:
            self.skipped += 1
            return
        for bucket in self._buckets:
            for p, piece in zip(bucket.parameters, bucket.pieces):
                p.grad = piece.to(device=p.device, dtype=p.dtype)
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
    adapt: Adapt | Mapping[str, Any] | bool | None = None,
    refine: Mapping[str, Any] | bool | None = None,
    feedback: bool = True,
    fallback: bool | None = None,
    group: Group | None = None,
    process_group: Any = None,
    **options: Any,
) -> Overlap:
    """Hides the averaging of gradients behind the next step, by SlimGC's model backup; all ranks call it alike.

    ``optimizer.step`` then starts to average this step's gradients and does not wait: the next step computes its gradients at

        w' = w - loc_lr · g,    with g this rank's own gradient of this step,

    or, with momentum and the like, at what the optimizer would make of w by g in its present state, while the mean travels. When it has come, at the next ``optimizer.step``, the optimizer updates the common parameters w
    by it: they are kept aside, are the same on all ranks bit for bit, and are exactly one step behind. ``settle()`` puts
    them into the model, as before an evaluation or a checkpoint::

        loop = thc.torch.overlap(model, optimizer)
        for batch in batches:
            loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        loop.settle()

    ``loc_lr`` is the rate of the local update (the optimizer's own by default), ``loc_optimizer`` makes an optimizer for it, with a state of
    its own, from a list of parameter groups. ``backup=False`` leaves the local update out: gradients are computed at parameters one step old.

    ``adapt`` chooses how each parameter travels, as for :func:`thc.torch.wrap`, from the tables that the job has. With ``refine``, ``True`` or
    the options ``calls`` and ``least`` of :class:`thc.torch.Refine`, what the means have lost to compression follows in further
    calls, as many as the rest of the step has time for, and is in the same update.

    ``model`` is a plain module or one of DistributedDataParallel, which then averages nothing itself. Gradients may be accumulated
    and clipped before the step (each rank its own), schedulers work, and so does a ``GradScaler``: a step whose gradients are
    not finite on some rank is left out on all, and :attr:`Overlap.skipped` counts it. Hooks of the optimizer's step are called by the update by
    the mean, not by the local one. When the server is lost training goes on through the
    process group, as with :func:`thc.torch.wrap`; with ``fallback=False`` it raises from ``optimizer.step``. It
    takes memory for the backup, the optimizer's state once more and two gradients (one without ``fallback``), and with ``refine`` one for each further call. Groups and ``options`` as for :func:`thc.torch.wrap`.
    """
    if isinstance(model, DistributedDataParallel):
        if process_group is None and model.process_group is not dist.group.WORLD:
            process_group = model.process_group
    parameters = [p for each in optimizer.param_groups for p in each["params"] if p.requires_grad]
    if loc_lr is not None and loc_lr < 0:
        raise errors.ConfigError(f"loc_lr is {loc_lr}: give a learning rate of at least 0")
    if any(p.dtype == torch.float64 for p in parameters):
        raise errors.ConfigError("the optimizer has parameters of f64, which THC would average as f32: use thc.torch.wrap, which sends them otherwise")
    adapting = Adapt.read(adapt)
    refining = None
    if refine is not None and refine is not False:
        refining = Refine.read({"optimizer": optimizer, **(refine if isinstance(refine, Mapping) else {})})
    group = join(process_group, group, options, adapts=adapting is not None or refining is not None)
    begin_alike(model, process_group)
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, _keep_own)
    local: Trial | _Other | None = None
    if backup:
        local = Trial(optimizer, optimizer.step) if loc_optimizer is None else _Other(optimizer, loc_optimizer)
    clock = StepClock()
    names = _names_of(model, parameters)
    averaging = Averaging(
        group,
        process_group,
        feedback=feedback,
        fallback=falls_back(group, fallback, refining is not None),
        clock=clock,
        adapt=adapting,
        refine=refining,
        names={names[p]: p.numel() for p in parameters},
    )
    made = Overlap(group, optimizer, local, loc_lr, averaging, clock, names)

    @functools.wraps(optimizer.step)
    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # What a GradScaler leaves there: see _step_supports_amp_scaling. The update by the mean knows nothing of it.
        left = {key: self.__dict__.pop(key) for key in ("grad_scale", "found_inf") if key in self.__dict__}
        scale, found = left.get("grad_scale"), left.get("found_inf")
        try:
            made.step(1.0 if scale is None else 1.0 / float(scale), found is None or not float(found))
        finally:
            self.__dict__.update(left)
        return loss

    # A bound method, since schedulers ask the step whose it is.
    optimizer.step = types.MethodType(step, optimizer)
    # A GradScaler would not call the step of a rank whose gradients overflow, and the others would wait for it.
    optimizer._step_supports_amp_scaling = True
    return made


def _names_of(model: torch.nn.Module, parameters: Sequence[torch.nn.Parameter]) -> dict[torch.nn.Parameter, str]:
    """As the model calls its parameters; those of the optimizer that it does not know, by number."""
    known = {p: name for name, p in getattr(model, "module", model).named_parameters()}
    return {p: known.get(p, f"p{number}") for number, p in enumerate(parameters)}


def _keep_own(_: Any, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """A communication hook that leaves each rank its own gradients."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _cut(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Neighbours together, until there are enough for a call."""
    cut: list[list[torch.nn.Parameter]] = [[]]
    done = 0
    for p in parameters:
        if cut[-1] and done + p.numel() > BUCKET:
            cut.append([])
            done = 0
        cut[-1].append(p)
        done += p.numel()
    return cut
