"""A communication hook with a parameter for each layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from thc import adapt
from thc.errors import ConfigError
from baselines.families import Family
from thc.torch.adapt.plan import Plan

__all__ = ["LayerwiseHook"]


@dataclass
class Layer:
    """A layer's gradient, with what was left out before."""

    name: str
    gradient: torch.Tensor


class ProcessGroupCarrier:
    """torch's own collectives."""

    def __init__(self, process_group: Any = None) -> None:
        self._group = process_group
        self.size = dist.get_world_size(process_group)

    def mean(self, tensor: torch.Tensor, whole: bool = False) -> None:
        dist.all_reduce(tensor, group=self._group)
        tensor.div_(self.size)

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        every = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(every, tensor, group=self._group)
        return every


class LayerwiseHook:
    """A family of compression as a hook of DDP: ``ddp.register_comm_hook(hook.state, hook.fn)``. All ranks make it alike.

    - ``default``: the parameter that all layers have at first, and whose error is the bound: bits of QSGD, share of TopK, rank of
      PowerSGD.
    - ``every``: so often, in steps, rank 0 chooses anew (L-GreCo), from its gradients accumulated since last time; 0: all layers keep
      the default.
    - ``choices``: parameters to choose from, by default the paper's range around the default.
    - ``accordion``: the parameters (much, little compression) between which Accordion decides before each choice; the bound is
      then the error of what it decides. With ``layerwise=False`` its decision is taken as it is. With ``optimizer`` all layers are critical
      again at the choice after its learning rate has gone down (Accordion, section 4), which suits a rate that goes down in few steps.
    - ``exact``: solve without steps. ``warmup``: so many first steps are averaged without compression; the first choice follows.
    """

    def __init__(
        self,
        family: Family,
        model: torch.nn.Module,
        process_group: Any = None,
        *,
        default: float,
        every: int = 0,
        choices: Sequence[float] | None = None,
        accordion: tuple[float, float] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        layerwise: bool = True,
        exact: bool = False,
        warmup: int = 0,
    ) -> None:
        if every < 0:
            raise ConfigError(f"every is {every}: give a number of steps, 0 for never")
        self.family = family
        self.steps = 0
        self.sent = 0.0
        """Bytes that this rank has sent."""
        self.dense = 0.0
        """Bytes that they would have been without compression."""
        self.plans: list[Plan] = []
        self._group = process_group
        self._plain = ProcessGroupCarrier(process_group)
        self._rank = dist.get_rank(process_group)
        self._every, self._exact, self._warmup, self._layerwise = every, exact, warmup, layerwise
        self._default = float(default)
        self._choices = [float(c) for c in (family.choices(default) if choices is None else choices)]
        for needed in (self._default, *(accordion or ())):
            if float(needed) not in self._choices:
                self._choices = sorted({*self._choices, float(needed)})
        self._accordion = None if accordion is None else (adapt.Accordion(), accordion)
        self._optimizer = optimizer
        self._rates: list[float] = []
        module = getattr(model, "module", model)
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._shapes = {name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad}
        for shape in self._shapes.values():
            for parameter in self._choices:
                family.cost(shape, parameter)  # says so if it is none
        self._chosen = dict.fromkeys(self._shapes, self._default)
        self._left: dict[str, torch.Tensor] = {}
        self._accumulated: dict[str, torch.Tensor] = {}

    @property
    def state(self) -> LayerwiseHook:
        """The first argument of ``register_comm_hook``."""
        return self

    @property
    def fn(self) -> Callable[[LayerwiseHook, Any], torch.futures.Future[torch.Tensor]]:
        """The second argument of ``register_comm_hook``."""
        return layerwise_hook

    @property
    def ratio(self) -> float:
        """Bytes without compression over those sent."""
        return self.dense / self.sent if self.sent else 1.0

    @property
    def plan(self) -> Plan | None:
        """What was chosen last; nothing on other ranks than 0, and before the first choice."""
        return self.plans[-1] if self.plans else None

    @property
    def layer_parameters(self) -> Mapping[str, float]:
        """Each layer's parameter, the same on all ranks."""
        return self._chosen

    def reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket, one after the other: callbacks that wait for further calls would hang on gloo (pytorch issue 48478)."""
        since = self.steps - self._warmup
        if bucket.index() == 0 and self._every and self.steps > 0 and since >= 0 and since % self._every == 0:
            self._choose()
        buffer: torch.Tensor = bucket.buffer()
        if self._every and self._rank == 0:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                name = self._names[id(parameter)]
                held = self._accumulated.get(name)
                self._accumulated[name] = gradient.clone() if held is None else held.add_(gradient)
        self.dense += 4 * buffer.numel()
        if self.steps < self._warmup:
            self._plain.mean(buffer)
            self.sent += 4 * buffer.numel()
        else:
            self._compress(bucket)
        if bucket.is_last():
            self.steps += 1
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _compress(self, bucket: Any) -> None:
        gradients = bucket.gradients()
        layers = []
        for parameter, gradient in zip(bucket.parameters(), gradients):
            name = self._names[id(parameter)]
            left = self._left.get(name) if self.family.feedback else None
            layers.append(Layer(name, gradient.clone() if left is None else gradient + left))
        parameters = [self._chosen[layer.name] for layer in layers]
        averaged = self.family.average(layers, parameters, self._plain)
        for layer, gradient, parameter, (mean, own) in zip(layers, gradients, parameters, averaged):
            if self.family.feedback:
                self._left[layer.name] = layer.gradient - own
            gradient.copy_(mean)
            self.sent += self.family.cost(layer.gradient.shape, parameter)

    def _rate_fell(self) -> bool:
        """Whether a group of parameters has a lower learning rate than at the last choice."""
        if self._optimizer is None:
            return False
        before, self._rates = self._rates, [float(group["lr"]) for group in self._optimizer.param_groups]
        return any(now < then for now, then in zip(self._rates, before))

    def _choose(self) -> None:
        """Rank 0 solves and tells the others."""
        names = list(self._shapes)
        numbers = torch.zeros(len(names), dtype=torch.int64)
        if self._rank == 0:
            numbers[:] = torch.tensor(self._solve(names))
        source = 0 if self._group is None else dist.get_global_rank(self._group, 0)
        dist.broadcast(numbers, source, group=self._group)
        self._chosen = {name: self._choices[number] for name, number in zip(names, numbers.tolist())}

    def _solve(self, names: Sequence[str]) -> list[int]:
        started = time.perf_counter()
        accumulated = [self._accumulated.get(name, torch.zeros(self._shapes[name])) for name in names]
        costs = [[self.family.cost(self._shapes[name], choice) for choice in self._choices] for name in names]
        errors = [self.family.errors(gradient, self._choices) for gradient in accumulated]
        default = [self._choices.index(self._default)] * len(names)
        uniform = adapt.price(costs, errors, default)
        reference, bound = default, uniform.error
        if self._accordion is not None:
            looks, (much, little) = self._accordion
            if self._rate_fell():
                looks.restart()
            critical = looks.look([float(gradient.norm()) for gradient in accumulated])
            reference = [self._choices.index(little if each else much) for each in critical]
            bound = adapt.price(costs, errors, reference).error
        found = adapt.price(costs, errors, reference)
        if self._layerwise:
            # What fits exactly may not fit in steps: the default then stays.
            try:
                solved = adapt.layerwise(costs, errors, bound * (1 + 1e-9), exact=self._exact)
            except ConfigError:
                solved = found
            found = solved if solved.cost <= found.cost else found
        self._accumulated.clear()
        picked = [self._choices[number] for number in found.choices]
        self.plans.append(
            Plan.from_columns(
                self.steps,
                [(name, accumulated[i].numel()) for i, name in enumerate(names)],
                [f"{parameter:g}" for parameter in picked],
                [errors[i][number] for i, number in enumerate(found.choices)],
                [costs[i][number] for i, number in enumerate(found.choices)],
                uniform=uniform.cost,
                bound=bound,
                seconds=time.perf_counter() - started,
                why=self.family.name,
            )
        )
        return found.choices


def layerwise_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """The function that DDP calls."""
    return state.reduce(bucket)
