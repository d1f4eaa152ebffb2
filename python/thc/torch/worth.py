"""Whether compression pays here: a step of a model as it is, and through THC, measured on the ranks and links that will train it."""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.torch.ranks.gathering import Gather
from thc.torch.ddp.wrap import hook_of, wrap

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from thc.torch.option_types import WrapOptions

__all__ = ["Measured", "Worth", "worth_it"]

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]

BATCHES = 4
"""Batches that are kept, and used in turn: loading is no part of what is measured."""
SETTLING = 3
"""Steps that are not counted: DDP orders its buckets anew after the first."""
FEWEST, MOST = 4, 200
"""Steps of a way that are."""
LINK = 1 << 24
"""Coordinates, at most, of the all-reduce that measures the link."""
WAITS = 0.2
"""The part of a step that must be waiting for gradients for compression to pay."""
FASTER = 1.05
"""How much faster a way must be to be worth a change."""


@dataclass(frozen=True)
class Measured:
    """One way to train."""

    name: str
    line: str
    """What to write for it."""
    seconds: float | None = None
    """Seconds of a step: the median, where each step counts as long as on the slowest rank."""
    least: float | None = None
    most: float | None = None
    steps: int = 0
    why: str = ""
    """Why it was not measured, if it was not."""
    compression: float = 0.0
    """Seconds of a step's that the host spent on compression, of all threads."""
    repeated: float = 0.0
    """The part of its packets that were sent again."""


@dataclass(frozen=True)
class Worth:
    """What :func:`worth_it` has found, the same on all ranks. As text it is a table."""

    ranks: int
    coordinates: int
    """Coordinates of the model's gradients."""
    gigabits: float
    """Per second and each way, what the process group's all-reduce gets through a rank's link."""
    alone: Measured
    """A step without averaging."""
    ways: list[Measured] = field(default_factory=list)
    """All others, the model as it is first."""

    @property
    def best(self) -> Measured:
        """What to train with: a way other than the first only if it is at least 5 % faster, and if a step waits at all."""
        plain = self.ways[0]
        if plain.seconds is None or self.waits < WAITS:
            return plain
        fastest = min((way for way in self.ways if way.seconds is not None), key=lambda way: way.seconds or 0.0)
        return fastest if plain.seconds > FASTER * (fastest.seconds or 0.0) else plain

    @property
    def gain(self) -> float:
        """How many times faster a step of the best way is than one of the model as it is."""
        plain, best = self.ways[0].seconds, self.best.seconds
        return plain / best if plain and best else 1.0

    @property
    def waits(self) -> float:
        """The part of a step of the model as it is that waits for gradients."""
        plain, alone = self.ways[0].seconds, self.alone.seconds
        return max(0.0, 1 - alone / plain) if plain and alone else 0.0

    @property
    def advice(self) -> list[str]:
        """What to set, in sentences."""
        best, said = self.best, []
        if best is not self.ways[0]:
            said.append(f"Write {best.line}: a step is {self.gain:.2f} times as fast.")
        elif self.waits < WAITS:
            said.append(f"Leave the model as it is: {100 * self.waits:.0f} % of a step waits for gradients, so there is next to nothing to gain.")
        else:
            said.append("Leave the model as it is: no way is faster by 5 % here.")
        for way in self.ways:
            if way.seconds and way.compression > 0.3 * way.seconds:
                said.append(
                    f"{way.name}: compression takes {1e3 * way.compression:.0f} ms of the CPU's time in a step of {1e3 * way.seconds:.0f}; "
                    "give it more cores (threads=), or gradients on a GPU (docs/pytorch.md, GPU)."
                )
            if way.repeated > 0.005:
                said.append(f"{way.name}: {100 * way.repeated:.1f} % of the packets were sent again; see docs/tuning.md about receive buffers.")
        return said

    def __str__(self) -> str:
        rows = [("", "ms a step", "least to most", "times as fast", "")]
        plain = self.ways[0].seconds
        for way in (self.alone, *self.ways):
            if way.seconds is None or way.least is None or way.most is None:
                rows.append((way.name, "–", "", "", f"not measured: {way.why}"))
                continue
            times = "" if way is self.alone or not plain else f"{plain / way.seconds:.2f}"
            rows.append((way.name, f"{1e3 * way.seconds:.1f}", f"{1e3 * way.least:.1f} to {1e3 * way.most:.1f}", times, f"{way.steps} steps"))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [f"{self.ranks} ranks, {self.coordinates / 1e6:.2f} M coordinates, {self.gigabits:.2f} Gb/s each way through the process group"]
        for row in rows:
            lines.append("  ".join([row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:4], widths[1:])), row[4]]).rstrip())
        return "\n".join(lines + self.advice)


class _Kept:
    """What measuring changes, to be put back: parameters, buffers, gradients, an optimizer's state, random numbers."""

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None, loader: Any) -> None:
        self._optimizer = optimizer
        self._tensors = [(each, each.detach().to("cpu", copy=True)) for each in (*module.parameters(), *module.buffers())]
        self._gradients = [(p, p.grad) for p in module.parameters()]
        if optimizer is not None:
            self._state = {p: {key: _copy(value) for key, value in own.items()} for p, own in optimizer.state.items()}
            self._settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
        self._generators = [(each, each.get_state()) for each in _generators(loader)]

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, saved in self._tensors:
                tensor.copy_(saved)
        for p, gradient in self._gradients:
            p.grad = gradient
        if self._optimizer is not None:
            self._optimizer.state.clear()
            self._optimizer.state.update(self._state)
            for group, settings in zip(self._optimizer.param_groups, self._settings):
                group.update(settings)
        ours, numpys, torchs = self._random
        random.setstate(ours)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for generator, state in self._generators:
            generator.set_state(state)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators that a loader draws its order from."""
    sampler = getattr(loader, "sampler", None)
    owners = (loader, sampler, getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _move(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        moved = [_move(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch


def _default_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Something to differentiate that takes about as long as a loss: the output's ``loss``, or the mean of its squares."""
    if isinstance(batch, dict):
        output = model(**batch)
    elif isinstance(batch, (list, tuple)):
        output = model(*(batch[:-1] if len(batch) > 1 else batch))
    else:
        output = model(batch)
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else [output]
    found = [part.float().square().mean() for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()]
    if not found:
        raise errors.ConfigError(f"the model returns {type(output).__name__}, in which there is nothing to differentiate: give loss=, a function of model and batch")
    return torch.stack(found).sum()


class _Progress:
    """One line on rank 0's standard error, or a line for each way where that is not a terminal."""

    def __init__(self, shown: bool, ways: int) -> None:
        self._shown, self._ways, self._way, self._name = shown, ways, 0, ""
        self._terminal = sys.stderr.isatty()

    def begin(self, name: str) -> None:
        self._way, self._name = self._way + 1, name
        self._say("")

    def step(self, done: int, of: int) -> None:
        if self._terminal:
            self._say(f": step {done} of {of}")

    def end(self) -> None:
        if self._shown and self._terminal:
            sys.stderr.write("\r\x1b[K")

    def _say(self, what: str) -> None:
        if self._shown:
            begin, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
            sys.stderr.write(f"{begin}worth_it: {self._way} of {self._ways}, {self._name}{what}{end}")
            sys.stderr.flush()


class _Trial:
    """Steps of a model, and how long they take."""

    def __init__(self, loss: Loss, batches: list[Any], optimizer: torch.optim.Optimizer | None, gather: Gather, budget: float, progress: _Progress) -> None:
        self._loss, self._batches, self._optimizer = loss, batches, optimizer
        self._gather, self._budget, self._progress = gather, budget, progress

    def _step(self, model: torch.nn.Module, number: int) -> float:
        began = time.perf_counter()
        model.zero_grad(set_to_none=True)
        self._loss(model, self._batches[number % len(self._batches)]).backward()
        if self._optimizer is not None:
            self._optimizer.step()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def run(self, model: torch.nn.Module) -> list[float]:
        """How long steps took, each on the slowest rank. All ranks make as many."""
        took = [self._step(model, number) for number in range(SETTLING)]
        every = [json.loads(each) for each in self._gather.gather(json.dumps([sum(took), took[-1]]))]
        settled, slowest = (max(column) for column in zip(*every))
        steps = max(FEWEST, min(MOST, int((self._budget - settled) / slowest)))
        mine = []
        for number in range(steps):
            mine.append(self._step(model, number))
            self._progress.step(number + 1, steps)
        every = [json.loads(each) for each in self._gather.gather(json.dumps(mine))]
        return [max(column) for column in zip(*every)]


def _link(process_group: Any, coordinates: int, device: torch.device, gather: Gather) -> float:
    """Gigabits a second, each way, that a ring all-reduce of f32 gets through."""
    size = dist.get_world_size(process_group)
    numbers = torch.zeros(max(1 << 18, min(LINK, coordinates)), device=device)
    took = []
    for _ in range(4):
        gather.gather("")  # begins on all ranks together
        began = time.perf_counter()
        dist.all_reduce(numbers, group=process_group)
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    slowest = max(map(float, gather.gather(repr(statistics.median(took[1:])))))
    bits: float = 8 * 4 * numbers.numel() * 2 * (size - 1) / size
    return bits / slowest / 1e9


def worth_it(
    model: torch.nn.Module,
    loader: Iterable[Any],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    seconds: float = 60.0,
    process_group: Any = None,
    **options: Unpack[WrapOptions],
) -> Worth:
    """Measures on this cluster whether THC makes a step faster, in about a minute, before anything is changed; all ranks call it alike.

    It trains a few steps without averaging, as DDP does it, with torch's bf16 hook, through THC, and through THC without a server, and measures what the link
    carries. Rank 0 shows progress on standard error and, at the end, one table on standard output with what to set; the :class:`Worth` with all
    numbers is returned on every rank. Model, optimizer, gradients and random numbers are then as they were; of the loader a few batches are read. ::

        thc.torch.worth_it(model, loader, loss=lambda model, batch: criterion(model(batch[0]), batch[1]))

    ``model`` is the plain module, on its device, or one of DistributedDataParallel, whose options are then used. ``loss(model, batch)`` is what is
    differentiated; without it the model is called with the batch (with all but the last part if the batch is a tuple, by keywords if it is a
    dictionary) and gives its output's ``loss``, or the mean of its squares: for times it hardly matters which. With ``optimizer`` its
    steps are part of a step. ``options`` are those of :func:`thc.torch.wrap`.
    """
    if seconds <= 0:
        raise errors.ConfigError(f"seconds is {seconds}: give the time that measuring may take")
    given: dict[str, Any] = {}
    if isinstance(model, DistributedDataParallel):
        process_group = model.process_group if process_group is None else process_group
        given = {
            "find_unused_parameters": model.find_unused_parameters, "broadcast_buffers": model.broadcast_buffers,
            "gradient_as_bucket_view": model.gradient_as_bucket_view, "static_graph": model.static_graph,
        }  # fmt: skip
        if not getattr(model, "bucket_bytes_cap_default", False):
            given["bucket_cap_mb"] = model.bucket_bytes_cap / (1 << 20)
        model = model.module
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise errors.ConfigError("the model has no parameters that are trained, so there are no gradients to average")
    device, gather = parameters[0].device, Gather(process_group)
    coordinates = sum(p.numel() for p in parameters)
    kept = _Kept(model, optimizer, loader)
    try:
        batches = [_move(batch, device) for batch, _ in zip(loader, range(BATCHES))]
        if not batches:
            raise errors.ConfigError("the loader has no batch: give one with at least one")
        progress = _Progress(dist.get_rank(process_group) == 0, 6)
        trial = _Trial(loss or _default_loss, batches, optimizer, gather, seconds / 6, progress)

        def ddp() -> DistributedDataParallel:
            return DistributedDataParallel(model, process_group=process_group, **given)

        progress.begin("what the link carries")
        gigabits = _link(process_group, coordinates, device, gather)
        rows = [_measure(name, line, make, ddp, trial, gather, progress) for name, line, make in _ways({**options})]
    finally:
        kept.restore()
    progress.end()
    found = Worth(dist.get_world_size(process_group), coordinates, gigabits, rows[0], rows[1:])
    if dist.get_rank(process_group) == 0:
        print(found, flush=True)
    return found


_ANY_WAY = frozenset("warmup min_size exclude feedback scales nonfinite in_flight device one_stream_per_host threads seed".split())
"""Options of :func:`thc.torch.wrap` that do not speak of a server."""


def _as_it_is(model: DistributedDataParallel) -> None:
    """DDP averages by itself."""


def _in_halves(model: DistributedDataParallel) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model.register_comm_hook(None, bf16_compress_hook)


def _through_thc(options: dict[str, Any]) -> tuple[str, Callable[[DistributedDataParallel], None]]:
    """The line to write, and what it does."""

    def make(model: DistributedDataParallel) -> None:
        wrap(model, **options)

    return f"model = thc.torch.wrap({', '.join(['model', *(f'{key}={value!r}' for key, value in options.items())])})", make


def _ways(options: dict[str, Any]) -> Iterator[tuple[str, str, Callable[[DistributedDataParallel], None]]]:
    """By name: what to write, and what makes a DDP model train so."""
    yield "no averaging", "", _as_it_is
    yield "as it is", "nothing", _as_it_is
    yield "bf16", "model.register_comm_hook(None, bf16_compress_hook), from torch.distributed.algorithms.ddp_comm_hooks.default_hooks", _in_halves
    yield "THC", *_through_thc(options)
    if "over" not in options:
        yield "THC, no server", *_through_thc({"over": "process-group", **{key: value for key, value in options.items() if key in _ANY_WAY}})


def _measure(
    name: str, line: str, make: Callable[[DistributedDataParallel], None], ddp: Callable[[], DistributedDataParallel], trial: _Trial, gather: Gather,
    progress: _Progress,
) -> Measured:  # fmt: skip
    progress.begin(name)
    model = group = None
    why, times, compression, repeated = "", [], 0.0, 0.0
    try:
        model = ddp()
        make(model)
        if line.startswith("model = thc"):
            group = hook_of(model).group
        if line:
            times = trial.run(model)
        else:
            with model.no_sync():
                times = trial.run(model)
        if group is not None:
            stats = group.stats()
            compression = stats.compression / (len(times) + SETTLING)
            repeated = stats.retransmissions / max(1, stats.packets_up)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    finally:
        if group is not None:
            group.close()
        del model
        gc.collect()
    told = [json.loads(each) for each in gather.gather(json.dumps([why, compression, repeated]))]
    why = next((each[0] for each in told if each[0]), "")
    if why:
        return Measured(name, line, why=why)
    # The first ones are slower: scales are learnt, caches are cold.
    late = times[len(times) // 2 :]
    return Measured(
        name, line, statistics.median(late), min(late), max(late), len(late), compression=max(each[1] for each in told), repeated=max(each[2] for each in told)
    )
