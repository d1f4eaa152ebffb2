"""What checks are made of: models whose gradients are whatever a check wants them to be."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import thc
import thc.torch
import torch
import torch.distributed as dist
from patience import HANG
from servers import COOKIE, ParameterServer, joining, started
from thc.torch.engine.bucket import Over
from thc.torch.ranks import health
from torch.nn.parallel import DistributedDataParallel

# Most checks that lose a server look at what follows, while it is still there.
health.SERVER_PERIOD = HANG

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])

TALK = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None
"""What ranks tell each other for a check, which is on the CPU."""

SIZES = (300_000, 1_000, 280_000, 320_000)
"""Parameters that DDP puts into several buckets of a mebibyte."""


class Weights(torch.nn.Module):
    """Its value is Σ parameter · input, so the gradient of each parameter is that input."""

    def __init__(self, sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in sizes]
        )

    def forward(self, inputs: Sequence[torch.Tensor], order: Sequence[int] | None = None) -> torch.Tensor:
        # DDP expects gradients in the order opposite to that of registration, and rebuilds its buckets otherwise.
        parts = [(self.weights[i] * inputs[i]).sum() for i in order or range(len(inputs))]
        return torch.stack(parts).sum()


def gradients(step: int, rank: int = RANK, sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """What a rank's gradients are at a step; each rank knows those of all."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def exact_mean(step: int, sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Their mean over all ranks."""
    every = [gradients(step, rank, sizes, dtype) for rank in range(SIZE)]
    return [torch.stack([g.double() for g in column]).mean(0) for column in zip(*every)]


def ddp(model: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model, **{"bucket_cap_mb": 1, **options})


def sort_options(**options: Any) -> dict[str, Any]:
    """Options of :func:`thc.torch.wrap` and its like: fields of a compression in one, those of a way to join in one, the others as they are."""
    if isinstance(options.get("adapt"), dict):
        options["adapt"] = thc.torch.Adapt(**options["adapt"])
    fields = {each.name for each in dataclasses.fields(thc.torch.Compression)} & options.keys()
    compression = {"compression": thc.torch.Compression(**{name: options.pop(name) for name in fields})} if fields else {}
    return {**joining(**options), **compression}


def connected(group: Any, model: torch.nn.Module | None = None, **options: Any) -> thc.torch.Hook:
    """The hook of a state that is registered nowhere."""
    return thc.torch.State(model, **sort_options(group=group, **options)).connect()


_made: list[Any] = []


def wrap_model(model: torch.nn.Module | None = None, ddp_options: dict[str, Any] | None = None, **options: Any) -> Any:
    """A DDP model with the hook, in a group of its own unless one is given; and the hook. What most checks look at shows best the paper's
    way, by the first step's error and by error feedback."""
    if "adapt" not in options:
        options.setdefault("feedback", True)
    if not options.keys() & {"group", "over"}:
        options = {"timeout": 20, "join_timeout": 20, **options}
    made = thc.torch.wrap(ddp(model or Weights(), **(ddp_options or {})), **sort_options(**options))
    hook = thc.torch.hook_of(made)
    _made.append(hook.group)
    return made, hook


def server_of_all(*jobs: dict[str, Any]) -> tuple[str, ParameterServer | None]:
    """A thc-ps that rank 0 starts; its address, and on rank 0 the process."""
    server = ParameterServer(*[{"workers": SIZE, **job} for job in jobs or ({},)]) if RANK == 0 else None
    box = [server.address if server else None]
    dist.broadcast_object_list(box, group=TALK)
    assert box[0] is not None
    return box[0], server


def join(address: str, job: int = 1, **options: Any) -> thc.Group:
    group = thc.Group(address, job, RANK, COOKIE, **joining(**{"timeout": 20, "join_timeout": 20, **options}))
    _made.append(group)
    return group


def served(*jobs: dict[str, Any], **options: Any) -> tuple[ParameterServer | None, thc.Group]:
    """The process of a server as rank 0 has it, and a group of all ranks there."""
    address, server = server_of_all(*jobs)
    return server, join(address, **options)


def close() -> None:
    """After a check: leaves all groups that it has made, and ends its servers."""
    for group in _made:
        group.close()
    _made.clear()
    while started:
        started.pop().kill()


def backward(model: torch.nn.Module, inputs: Sequence[torch.Tensor], order: Sequence[int] | None = None) -> list[torch.Tensor]:
    """A backward pass; the averaged gradients."""
    model.zero_grad(set_to_none=True)
    model(inputs, order).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def error_of(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Normalised mean squared error of all together."""
    a, b = torch.cat([f.double() for f in found]), torch.cat([e.double() for e in exact])
    return float((a - b).square().sum() / b.square().sum())


COMPRESSED = (1e-3, 0.05)
"""Normalised squared error of means at 4 bits: more than nothing, as for exact ones, and not much."""


def is_compressed(error: float) -> bool:
    return COMPRESSED[0] < error < COMPRESSED[1]


def same_everywhere(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all ranks have the same bits."""
    flat = torch.cat([t.detach().double().reshape(-1) for t in tensors]).nan_to_num(nan=7e77, posinf=7e88, neginf=-7e88)
    digest = torch.stack([flat.sum(), (flat * torch.arange(1, len(flat) + 1)).sum()])
    every = [torch.empty_like(digest) for _ in range(SIZE)]
    dist.all_gather(every, digest, group=TALK)
    return all(torch.equal(each, every[0]) for each in every)


def everywhere(flag: bool) -> list[bool]:
    """Every rank's flag."""
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, flag, group=TALK)
    return every


@contextlib.contextmanager
def refused(kind: type[Exception] | tuple[type[Exception], ...], *says: str) -> Iterator[None]:
    """What is done in it raises such an exception, with these words in its text."""
    try:
        yield
    except kind as error:
        assert all(each in str(error) for each in says), error
    else:
        raise AssertionError(f"no {kind} that says {says}")


def expect_error(kind: type[Exception], says: str, work: Callable[[], Any]) -> None:
    """The same of work."""
    with refused(kind, says):
        work()


def intercept(group: thc.Group, work: Callable[..., Any]) -> Callable[[], None]:
    """Has ``work(array, **options)`` done in place of each of a group's calls, also of those that are queued. Returns what ends that.
    Once ``work`` has raised it must go on to, for a session does."""

    def queue_sum(array: Any, **options: Any) -> Over:
        try:
            work(array, **options)
        except thc.ThcError as error:
            return Over(error)
        return Over()

    def undo() -> None:
        del group.allreduce, group.allreduce_async  # type: ignore[method-assign]

    group.allreduce, group.allreduce_async = work, queue_sum  # type: ignore[method-assign, assignment]
    return undo


def loses(group: thc.Group, first: int) -> Callable[[], None]:
    """From its call of this number on, counted from 1, a rank hears nothing of the answers, and of the mean only half a bucket. Returns what
    ends that."""
    allreduce, calls = group.allreduce, []

    def fails(array: Any, **options: Any) -> None:
        calls.append(array.size)
        allreduce(array, **options)
        if len(calls) >= first:
            array[: array.size // 2] = 7.0
            raise thc.SilentError("the parameter server has not answered")

    return intercept(group, fails)


class Messages(logging.Handler):
    """What thc.torch has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> Messages:
        logging.getLogger("thc.torch").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("thc.torch").removeHandler(self)
