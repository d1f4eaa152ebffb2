"""Fewer, larger steps: DiLoCo's outer loop, whose differences travel through THC while the inner steps go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.engine.bucket import Piece
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import begin_alike, enter, scope_of
from thc.torch.options import Compression, Options
from thc.torch.ranks.peers import Peers

log = logging.getLogger("thc.torch")

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def nesterov(parameters: list[torch.nn.Parameter], rate: float = 0.7, momentum: float = 0.9) -> torch.optim.Optimizer:
    """The outer optimizer of the DiLoCo paper (Douillard et al. 2023, section 3.1), with its values."""
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, nesterov=True)


class _Fragment:
    """Some neighbouring parameters, which are averaged together."""

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], make: MakeOptimizer, offset: int, compressed: bool) -> None:
        self.parameters = parameters
        self.offset = offset
        """The inner step within a period at which it is sent."""
        self.agreed = torch.nn.Parameter(self.read())
        """What all ranks have in common: the parameters as the outer optimizer left them, f32 on the CPU."""
        self.optimizer = make([self.agreed])
        self.sent: torch.Tensor | None = None
        """This rank's parameters when the difference under way was taken."""
        self.difference = torch.empty_like(self.agreed, requires_grad=False)
        self.piece = Piece(name, self.difference, compressed)
        self.due = 0

    def read(self) -> torch.Tensor:
        """The parameters in one piece."""
        return torch.cat([p.detach().reshape(-1).float().cpu() for p in self.parameters])

    def write(self, flat: torch.Tensor) -> None:
        at = 0
        with torch.no_grad():
            for p in self.parameters:
                p.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()


class Outer(Adapter):
    """The outer loop of a model; made by :func:`outer`."""

    def __init__(
        self, engine: Engine, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: int, make: MakeOptimizer, parts: int, delay: int, mode: str
    ) -> None:
        super().__init__(engine)
        self.steps = 0
        """Inner steps so far."""
        self.rounds = 0
        """Differences that were averaged, of any part."""
        self.skipped = 0
        """Differences that were not finite on some rank, and were left out on all."""
        self.every, self.delay = every, delay
        self._optimizer = optimizer
        self._all = list(model.parameters())
        scope = f"outer{scope_of(self.group)}"
        self._parts = [
            _Fragment(f"{scope}.{number}", cut, make, (number + 1) * every // parts, mode != "raw") for number, cut in enumerate(_cut(_trained(self._all), parts))
        ]

    @property
    def parts(self) -> int:
        """In how many parts the parameters travel."""
        return len(self._parts)

    def step(self) -> None:
        """After an inner step, also one that a ``GradScaler`` left out: takes in what has come and sends what is due."""
        if set(_trained(self._all)) != {p for part in self._parts for p in part.parameters}:
            raise errors.ConfigError("parameters were frozen or unfrozen: call agree() before that, and outer anew with group=loop.group")
        self.steps += 1
        for part in self._parts:
            if part.piece.under_way and self.steps >= part.due:
                self._receive(part)
        for part in self._parts:
            if self.steps % self.every == part.offset % self.every:
                self._send(part)
                if self.delay == 0:
                    self._receive(part)
        # A step of the outer loop: differences travel for longer than an inner one.
        if self.steps % self.every == 0:
            self.engine.clock.end_optimizer_step()

    def finish(self) -> None:
        """Waits for what is under way and takes it in. All ranks call it between the same steps; so do :meth:`state_dict` and
        :meth:`agree`."""
        for part in self._parts:
            if part.piece.under_way:
                self._receive(part)

    def resume(self) -> bool:
        """Takes in what is under way first: see :meth:`thc.torch.Hook.resume`."""
        self.finish()
        return super().resume()

    def agree(self) -> None:
        """Gives all ranks the same parameters, the mean of theirs, as at the end of training or before an evaluation. The outer
        optimizer takes no part: its momentum would carry them further. All ranks call it between the same steps."""
        self.finish()
        for part in self._parts:
            self._send(part)
            if self._average(part):
                with torch.no_grad():
                    part.agreed.sub_(part.difference)
            part.write(part.agreed.detach())

    def _send(self, part: _Fragment) -> None:
        if part.piece.under_way:
            self._receive(part)
        part.sent = part.read()
        torch.sub(part.agreed.detach(), part.sent, out=part.difference)
        self.engine.begin([part.piece])
        part.due = self.steps + self.delay

    def _receive(self, part: _Fragment) -> None:
        """The outer step. What this rank's inner steps have done since the difference was taken stays on top of its result."""
        sent = part.sent
        if not self._average(part):
            return
        assert sent is not None
        part.agreed.grad = part.difference
        part.optimizer.step()
        part.agreed.grad = None
        part.write(part.agreed.detach() + (part.read() - sent) if self.delay else part.agreed.detach())

    def _average(self, part: _Fragment) -> bool:
        """Waits for the mean of the difference under way; whether it is finite."""
        part.sent = None
        with self.engine.clock.measure_wait():
            finite = part.piece.wait()
        if not finite:
            self._skip(part)
            return False
        self.rounds += 1
        return True

    def _skip(self, part: _Fragment) -> None:
        """Some rank's parameters were not finite: that one starts again from those of all."""
        self.skipped += 1
        if bool(torch.isfinite(part.read()).all()):
            return
        log.warning("parameters are not finite after step %d: this rank goes on from those of all ranks", self.steps)
        part.write(part.agreed.detach())
        for parameter in part.parameters:
            self._optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own, beside those of model and optimizer. All ranks call it between the same
        steps: what is under way is taken in first."""
        self.finish()
        agreed = [part.agreed.detach().clone() for part in self._parts]
        loop = {"steps": self.steps, "agreed": agreed, "optimizers": [part.optimizer.state_dict() for part in self._parts]}
        return self.engine.state_dict() | {"outer": loop}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; all ranks, with checkpoints of one step."""
        self.finish()
        loop = state["outer"]
        sizes, given = [len(part.agreed) for part in self._parts], [len(each) for each in loop["agreed"]]
        if sizes != given:
            raise errors.ConfigError(f"the checkpoint has parts of {given} parameters, this model of {sizes}: load it with the same model and parts")
        self.engine.load_state_dict(state)
        self.steps = int(loop["steps"])
        for part, agreed, saved in zip(self._parts, loop["agreed"], loop["optimizers"]):
            with torch.no_grad():
                part.agreed.copy_(agreed)
            part.optimizer.load_state_dict(saved)


def outer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    every: int,
    outer: MakeOptimizer = nesterov,
    *,
    parts: int = 1,
    delay: int | None = None,
    mode: str = "compressed",
    process_group: Any = None,
    group: BaseGroup | None = None,
    over: str = "server",
    fallback: bool = True,
    compression: Compression = Compression(),
    join: Join = Join(),
) -> Outer:
    """Trains ranks by themselves and averages what they have learnt every so many steps: DiLoCo's outer loop, for slow links (docs/pytorch-research.md)::

        loop = thc.torch.outer(model, optimizer, every=50)
        for batch in batches:                       # each rank its own
            loss(model, batch).backward()
            optimizer.step()
            loop.step()
            optimizer.zero_grad()
        loop.agree()                                # the same parameters everywhere

    Every ``every`` inner steps the difference between the last common parameters and this rank's, averaged by THC with error feedback, is the gradient
    of an outer optimizer. A result is taken in after a fixed number of steps, so that the common parameters are the same on all ranks, bit for bit.

    - ``model``: a plain module; all ranks begin with rank 0's parameters and buffers.
    - ``outer``: makes the outer optimizer from a list of parameters [:func:`nesterov`].
    - ``parts``: into so many pieces the parameters are cut, which take turns.
    - ``delay``: inner steps that go on while a difference travels [as many as there are between two parts, at most 10]; with 0 the ranks wait.
    - ``mode``: ``"raw"`` averages exactly.
    - ``group``, ``over``, ``fallback``, ``compression``, ``join``: as for :func:`thc.torch.wrap`. Of a compression ``method`` and the codec's fields count.
    """
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise errors.ConfigError("outer takes the module itself: DistributedDataParallel would average every gradient as well")
    if every < 1:
        raise errors.ConfigError(f"every is {every}: give a number of inner steps, at least 1")
    parameters = _trained(list(model.parameters()))
    if not 1 <= parts <= min(every, len(parameters)):
        raise errors.ConfigError(
            f"parts is {parts}: give 1 to {min(every, len(parameters))}, no more than the steps of a period or the model's parameter tensors"
        )
    if mode not in ("compressed", "raw"):
        raise errors.ConfigError(f'mode is {mode!r}: write "compressed" or "raw"')
    between = every // parts
    if delay is None:
        delay = min(10, between)
    if not 0 <= delay <= every:
        raise errors.ConfigError(f"delay is {delay}: give 0 to {every} steps, since a part is sent again after {every}")
    compression.only("outer")
    group = enter(process_group, group, over, compression, join, every=every, parts=parts, delay=delay, mode=mode, fallback=fallback)
    begin_alike(model, process_group)
    kept = Options.of(compression, group, feedback=mode != "raw", fallback=fallback, device="cpu")
    engine = Engine(group, kept, Peers(process_group), by_optimizer=True)
    return Outer(engine, model, optimizer, every, outer, parts, delay, mode)


def _trained(parameters: Sequence[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Those that are not frozen now."""
    return [p for p in parameters if p.requires_grad]


def _cut(parameters: Sequence[torch.nn.Parameter], parts: int) -> list[list[torch.nn.Parameter]]:
    """Neighbours together, about as many coordinates in each part, none empty."""
    total = sum(p.numel() for p in parameters)
    cut: list[list[torch.nn.Parameter]] = [[]]
    done = 0
    for index, p in enumerate(parameters):
        full = done >= total * len(cut) / parts
        needed = parts - len(cut) >= len(parameters) - index
        if cut[-1] and len(cut) < parts and (full or needed):
            cut.append([])
        cut[-1].append(p)
        done += p.numel()
    return cut
