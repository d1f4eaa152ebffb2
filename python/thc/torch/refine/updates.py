"""The optimizer's step, of each bucket as late as the next forward pass allows, so that what refines its gradients is in it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from thc.torch.engine.arrival import Further
from thc.torch.engine.clock import Clock
from thc.torch.compression.layout import Layout
from thc.torch.loops.optimizer_step import replace_step

__all__ = ["Refined", "Updates"]

PROBES = 16
"""Coordinates of a parameter that tell what a program did to its gradient before the optimizer's step."""


@functools.cache
def _probes(size: int, device: torch.device) -> torch.Tensor:
    """Where a gradient of this size is looked at."""
    return torch.linspace(0, size - 1, PROBES).long().to(device)


class Averaged(Protocol):
    """A bucket with its mean."""

    buffer: torch.Tensor
    parameters: list[torch.nn.Parameter]
    layout: Layout


class Refined(Further):
    """A bucket of this step whose mean will be refined."""

    def __init__(self, layout: Layout, parameters: Sequence[torch.nn.Parameter], probed: torch.Tensor) -> None:
        super().__init__()
        self.parameters = list(parameters)
        self._places = [segment.slice for segment in layout.segments]
        self._probed = probed.double().cpu()

    def factor(self, at: int, gradient: torch.Tensor) -> float:
        """What a program has multiplied the gradient of a parameter with since the backward pass, as a clipped norm or a GradScaler does."""
        before = self._probed[PROBES * at : PROBES * (at + 1)]
        flat = gradient.reshape(-1)
        if not len(flat):
            return 1.0
        now = flat[_probes(flat.numel(), flat.device)].double().cpu()
        square = float(before.dot(before))
        factor = float(before.dot(now)) / square if square > 0.0 else 1.0
        # Gradients that are not finite are no step's.
        return factor if abs(factor) < float("inf") else 0.0

    def add_to(self, gradients: Mapping[torch.nn.Parameter, tuple[torch.Tensor, float]]) -> None:
        """Adds it all to copies of gradients, each times its factor."""
        for buffer, _ in self.calls:
            for parameter, place in zip(self.parameters, self._places):
                if parameter in gradients:
                    gradient, factor = gradients[parameter]
                    piece = buffer[place].view_as(gradient)
                    gradient.add_(piece.to(device=gradient.device, dtype=gradient.dtype), alpha=factor)


class _Watch:
    """What a module that is watched calls. A copy of the module has all updates in it, and is not watched."""

    def __init__(
        self, settle: Callable[[], None], own: Sequence[torch.nn.Parameter] = (), work: Callable[[], None] | None = None
    ) -> None:
        """``own`` are the module's parameters, ``work`` what is done; by default all updates are made."""
        self._settle, self._own, self._work = settle, own, work or settle

    def __call__(self, *_: Any) -> None:
        self._work()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Unwatched:
        self._settle()
        # A module's own parameters are copied before what it calls, those of the modules in it afterwards.
        for p in self._own:
            if id(p) in memo:
                memo[id(p)].data.copy_(p.data)
        return _Unwatched()

    def __reduce__(self) -> tuple[type[_Unwatched], tuple[()]]:
        # torch.save writes the numbers of parameters when it has met all of them.
        self._settle()
        return _Unwatched, ()


class _Unwatched:
    """What the copy of a module that was watched calls."""

    def __call__(self, *_: Any) -> None:
        pass


class Updates:
    """Takes an optimizer's steps apart. Whoever trains calls its methods, but for :meth:`announce`, which the sequencer calls while the
    backward pass waits for it."""

    def __init__(self, optimizer: torch.optim.Optimizer, module: torch.nn.Module, clock: Clock) -> None:
        self._optimizer, self._clock = optimizer, clock
        self._update = optimizer.step
        self._parameters = [p for each in optimizer.param_groups for p in each["params"]]
        self._mine = frozenset(self._parameters)
        self._announced: list[Refined] = []
        self._expected: list[Refined] = []
        self._probes: dict[int, torch.Tensor] = {}
        """By layout."""
        self._due: dict[torch.nn.Parameter, Refined] = {}
        """By parameter, what it waits for."""
        self._kept: dict[torch.nn.Parameter, torch.Tensor] = {}
        """Copies of gradients; their memory is kept."""
        self._factors: dict[torch.nn.Parameter, float] = {}
        self._settings: list[dict[str, Any]] = []
        self._used: dict[torch.nn.Parameter, float] = {}
        self._watch(module)
        self._take_over(optimizer)

    # Where it comes in.

    def _watch(self, module: torch.nn.Module) -> None:
        settles = _Watch(self.settle)
        for each in module.modules():
            own = [p for p in _own_parameters(each) if p.requires_grad]
            if own:
                each.register_forward_pre_hook(_Watch(self.settle, own, functools.partial(self._pre_forward, own)))
            each.register_state_dict_pre_hook(settles)
        # What a forward pass did not use.
        module.register_forward_hook(settles)

    def _take_over(self, optimizer: torch.optim.Optimizer) -> None:
        def step(closure: Callable[[], Any] | None = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            # A GradScaler leaves these there for the step alone; see _step_supports_amp_scaling.
            self.step(at_once="found_inf" in optimizer.__dict__)
            return loss

        replace_step(optimizer, step)
        # A copy of an optimizer has neither this step nor what follows: torch copies parameters, settings and state alone.
        optimizer.register_state_dict_pre_hook(lambda _: self.settle())

    # The sequencer.

    def owns(self, parameters: Sequence[torch.nn.Parameter]) -> bool:
        """Whether all of these are the optimizer's."""
        return self._mine.issuperset(parameters)

    def use_time(self, parameters: Sequence[torch.nn.Parameter]) -> float | None:
        """When the last forward pass first used one of these, as :meth:`Clock.compute_time` counts; nothing if that is not known of all."""
        times = [self._used.get(p) for p in parameters]
        return None if None in times or not times else min(time for time in times if time is not None)

    def expect(self, bucket: Averaged) -> Refined:
        """A bucket will be refined, whose mean is there."""
        flat = bucket.buffer.reshape(-1)
        refined = Refined(bucket.layout, bucket.parameters, flat[self._probes_of(bucket.layout, flat.device)])
        self._expected.append(refined)
        return refined

    def announce(self) -> None:
        """That is all of the backward pass that is ending that will be refined."""
        self._announced, self._expected = self._expected, []
        self._used.clear()

    def _probes_of(self, layout: Layout, device: torch.device) -> torch.Tensor:
        if layout.key not in self._probes:
            places = [segment.slice for segment in layout.segments]
            each = [torch.linspace(place.start, max(place.start, place.stop - 1), PROBES).long() for place in places]
            self._probes[layout.key] = torch.cat(each).to(device)
        return self._probes[layout.key]

    # Training.

    def step(self, at_once: bool) -> None:
        """What ``optimizer.step`` does now."""
        self.settle()
        announced, self._announced = self._announced, []
        later = {p: each for each in announced for p in each.parameters if p.grad is not None}
        if not later:
            self._update()
            return
        for each in announced:
            for at, p in enumerate(each.parameters):
                if p in later:
                    self._keep(each, at, p)
        self._settings = [{key: value for key, value in group.items() if key != "params"} for group in self._optimizer.param_groups]
        if at_once:
            gradients = {p: p.grad for p in self._parameters if p.grad is not None}
            for each in announced:
                gradients.update(self._refine(each))
            self._apply(gradients)
            return
        others = {p: p.grad for p in self._parameters if p.grad is not None and p not in later}
        if others:
            self._apply(others)
        self._due = later

    def settle(self) -> None:
        """Makes all updates that have been put off, as before an evaluation or a checkpoint."""
        while self._due:
            self._arrive(next(iter(self._due.values())))

    def _pre_forward(self, own: Sequence[torch.nn.Parameter], *_: Any) -> None:
        """A module is about to use its parameters."""
        now = None
        for p in own:
            if p not in self._used:
                now = self._clock.compute_time() if now is None else now
                if now is not None:
                    self._used[p] = now
            refined = self._due.get(p)
            if refined is not None:
                self._arrive(refined)

    def _arrive(self, refined: Refined) -> None:
        for p in refined.parameters:
            self._due.pop(p, None)
        self._apply(self._refine(refined))

    def _keep(self, refined: Refined, at: int, p: torch.nn.Parameter) -> None:
        assert p.grad is not None
        gradient = p.grad.detach()
        self._factors[p] = refined.factor(at, gradient)
        held = self._kept.get(p)
        if held is None or held.dtype != gradient.dtype or held.shape != gradient.shape:
            held = self._kept[p] = torch.empty_like(gradient)
        held.copy_(gradient)

    def _refine(self, refined: Refined) -> dict[torch.nn.Parameter, torch.Tensor | None]:
        """The gradients of a bucket with all that has been added to them; waits for it."""
        with self._clock.measure_wait(refined.is_there()):
            refined.wait()
        found = {p: (self._kept[p], self._factors.pop(p)) for p in refined.parameters if p in self._factors}
        refined.add_to(found)
        return {p: gradient for p, (gradient, _) in found.items()}

    def _apply(self, gradients: Mapping[torch.nn.Parameter, torch.Tensor | None]) -> None:
        """The optimizer's step of some parameters, with the settings that it had when it was asked for."""
        saved = [p.grad for p in self._parameters]
        groups = self._optimizer.param_groups
        current = [dict(group) for group in groups]
        for p in self._parameters:
            p.grad = gradients.get(p)
        for group, settings in zip(groups, self._settings):
            group.update(settings)
        try:
            self._update()
        finally:
            for p, gradient in zip(self._parameters, saved):
                p.grad = gradient
            for group, now, settings in zip(groups, current, self._settings):
                # What the step itself has changed stays.
                group.update({key: now[key] for key in settings if group[key] is settings[key]})


def _own_parameters(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """The parameters that a module's forward pass uses by itself: its own, and those in lists, which have no forward pass."""
    lists = (torch.nn.ParameterList, torch.nn.ParameterDict)
    if isinstance(module, lists):
        return
    yield from module.parameters(recurse=False)
    for child in module.children():
        if isinstance(child, lists):
            yield from child.parameters()
