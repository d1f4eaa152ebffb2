"""Fewer, larger steps: DiLoCo's outer loop, whose differences travel through THC while the inner steps go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.engine.bucket import Piece
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import begin_alike, enter, local_part, scope_of
from thc.torch.options import Compression, Options
from thc.torch.ranks.peers import Peers, borrow

log = logging.getLogger("thc.torch")

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def nesterov(parameters: list[torch.nn.Parameter], rate: float = 0.7, momentum: float = 0.9) -> torch.optim.Optimizer:
    """The outer optimizer of the DiLoCo paper (Douillard et al. 2023, section 3.1), with its values."""
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, nesterov=True)


class _Island:
    """The ranks of a DDP model, which average every gradient among themselves and so have the same parameters. Each of them exchanges its share of
    these with the other islands. Making one is a collective of theirs."""

    def __init__(self, process_group: Any) -> None:
        self._own = borrow(process_group, ("gloo",))
        self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)

    def gather(self, share: torch.Tensor) -> torch.Tensor:
        """The shares of all ranks, a row for each."""
        every = torch.empty(self.size * share.numel())
        dist.all_gather_into_tensor(every, share, group=self._own.groups[0])
        return every.view(self.size, share.numel())


class _Fragment:
    """Some neighbouring parameters, which are averaged together."""

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], make: MakeOptimizer, offset: int, compressed: bool, island: _Island | None) -> None:
        self.parameters = [local_part(p) for p in parameters]
        self.offset = offset
        """The inner step within a period at which it is sent."""
        self._island = island
        self._length = sum(p.numel() for p in self.parameters)
        self.agreed = torch.nn.Parameter(self.share(self.read()))
        """What the same ranks of all islands have in common: this rank's share of the parameters as the outer optimizer left them, f32 on the CPU."""
        self.optimizer = make([self.agreed])
        self.sent: torch.Tensor | None = None
        """The parameters when the difference under way was taken."""
        self.difference = torch.empty_like(self.agreed, requires_grad=False)
        self.piece = Piece(name, self.difference, compressed)
        self.due = 0

    def read(self) -> torch.Tensor:
        """The parameters in one piece."""
        return torch.cat([p.detach().reshape(-1).float().cpu() for p in self.parameters])

    def share(self, flat: torch.Tensor) -> torch.Tensor:
        """What of the parameters this rank exchanges: all of them, or as much as each other rank of its island, with zeros behind the end."""
        if self._island is None:
            return flat
        length = -(-self._length // self._island.size)
        padded = torch.nn.functional.pad(flat, (0, self._island.size * length - self._length))
        return padded.view(self._island.size, length)[self._island.rank].clone()

    def whole(self, arrived: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The common parameters of all shares, and which of them have arrived: each rank of the island says so of its own share."""
        agreed = self.agreed.detach()
        if self._island is None:
            return agreed, torch.full_like(agreed, arrived, dtype=torch.bool)
        every = self._island.gather(torch.cat([agreed, torch.tensor([float(arrived)])]))
        shares, told = every[:, :-1], every[:, -1:]
        return shares.reshape(-1)[: self._length], (told > 0).expand_as(shares).reshape(-1)[: self._length]

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
        """A collective of the ranks of a DDP model."""
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
        self._cut = _cut(_trained(self._all), parts)
        scope, island = f"outer{scope_of(self.group)}", _Island(model.process_group) if isinstance(model, DistributedDataParallel) else None
        self._parts = [
            _Fragment(f"{scope}.{number}", some, make, (number + 1) * every // parts, mode != "raw", island) for number, some in enumerate(self._cut)
        ]

    def step(self) -> None:
        """After an inner step, also one that a ``GradScaler`` left out: takes in what has come and sends what is due."""
        if set(_trained(self._all)) != {p for some in self._cut for p in some}:
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
            self.engine.clock.end_step()

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
            if arrived := self._average(part):
                with torch.no_grad():
                    part.agreed.sub_(part.difference)
            part.sent = None
            part.write(part.whole(arrived)[0])

    def _send(self, part: _Fragment) -> None:
        if part.piece.under_way:
            self._receive(part)
        part.sent = part.read()
        torch.sub(part.agreed.detach(), part.share(part.sent), out=part.difference)
        self.engine.begin([part.piece])
        part.due = self.steps + self.delay

    def _receive(self, part: _Fragment) -> None:
        """The outer step. What this rank's inner steps have done since the difference was taken stays on top of its result."""
        sent, part.sent = part.sent, None
        assert sent is not None
        if arrived := self._average(part):
            part.agreed.grad = part.difference
            part.optimizer.step()
            part.agreed.grad = None
        agreed, has_arrived = part.whole(arrived)
        mine = part.read()
        if bool(torch.isfinite(mine).all()):
            part.write(torch.where(has_arrived, agreed + (mine - sent) if self.delay else agreed, mine))
            return
        log.warning("parameters are not finite after step %d: this rank goes on from those of all ranks", self.steps)
        part.write(agreed)
        for parameter in self._cut[self._parts.index(part)]:
            self._optimizer.state.pop(parameter, None)

    def _average(self, part: _Fragment) -> bool:
        """Waits for the mean of the difference under way; whether it is finite. If not, some rank's parameters were not, and it is left out on all."""
        with self.engine.clock.measure_wait():
            finite = part.piece.wait()
        self.rounds += finite
        self.skipped += not finite
        return finite

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

    - ``model``: a plain module; all ranks begin with rank 0's parameters and buffers. Or one of ``DistributedDataParallel`` or FSDP2 over the ranks of an
      *island*, which average every gradient; then ``process_group`` has the ranks with the same place in all islands, and each rank exchanges its share.
    - ``outer``: makes the outer optimizer from a list of parameters [:func:`nesterov`].
    - ``parts``: into so many pieces the parameters are cut, which take turns.
    - ``delay``: inner steps that go on while a difference travels [as many as there are between two parts, at most 10]; with 0 the ranks wait.
    - ``mode``: ``"raw"`` averages exactly.
    - ``group``, ``over``, ``fallback``, ``compression``, ``join``: as for :func:`thc.torch.wrap`. Of a compression ``method`` and the codec's fields count.
    """
    inside = _ranks_inside(model)
    if inside & set(dist.get_process_group_ranks(process_group or dist.group.WORLD)) - {dist.get_rank()}:
        raise errors.ConfigError(
            "the model's ranks average every gradient, and so do not need the outer loop: give outer the module itself, or the process group of the ranks "
            'that have the same place in all islands, mesh.get_group("islands")'
        )
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
    told: dict[str, Any] = dict(every=every, parts=parts, delay=delay, mode=mode, fallback=fallback)
    group = enter(process_group, group, over, compression, join, is_one_of_many=bool(inside), **told)
    begin_alike(model, process_group)
    kept = Options.of(compression, group, feedback=mode != "raw", fallback=fallback, device="cpu")
    engine = Engine(group, kept, Peers(process_group), by_optimizer=True)
    return Outer(engine, model, optimizer, every, outer, parts, delay, mode)


def _ranks_inside(model: torch.nn.Module) -> set[int]:
    """The ranks that average every gradient of a model: none of a plain module."""
    if isinstance(model, DistributedDataParallel):
        return set(dist.get_process_group_ranks(model.process_group))
    meshes = [p.device_mesh for p in model.parameters() if hasattr(p, "device_mesh")]
    return {int(rank) for mesh in meshes[:1] for rank in mesh.mesh.flatten()}


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
