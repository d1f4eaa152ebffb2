"""What ranks send each other: numbers through the job itself, and numbers and objects as collectives of a process group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.rendezvous import addresses_among, data_address, this_host


def tells(group: BaseGroup) -> bool:
    """Whether ranks can tell each other something that way: the job loses nothing, and waits for all."""
    job = group.job
    return job.policy == "reliable" and job.quorum >= job.workers


def exchange(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """Every rank's numbers, of 32 bits each, and as many on each rank. It is a call in the order of calls: lost, repeated and given up like
    any other, and all ranks that have it have the same. Raises what a call raises."""
    rows = exchange_halves(group, rank, [half for number in mine for half in (number >> 16, number & 0xFFFF)])
    return [[high << 16 | low for high, low in zip(row[::2], row[1::2])] for row in rows]


def exchange_halves(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """The same with numbers of 16 bits, which the mean of an all-reduce in 32-bit integers keeps exactly."""
    size = group.workers
    box = np.zeros((size, len(mine)), dtype=np.float32)
    box[rank] = mine
    flat = box.reshape(-1)
    group.allreduce(flat, mode="raw")
    found: list[list[int]] = np.rint(flat.astype(np.float64) * size).astype(np.int64).reshape(size, -1).tolist()
    return found


class Gathering:
    """Numbers of all ranks, on their way."""

    def __init__(self, work: Any, every: list[torch.Tensor]) -> None:
        self._work = work
        self._every = every

    def is_complete(self) -> bool:
        """Whether they have come, or never will."""
        return bool(self._work.is_completed())

    def numbers(self) -> list[list[int]]:
        """Waits for them."""
        self._work.wait()
        return [theirs.tolist() for theirs in self._every]


def begin_gather(numbers: list[int], process_group: Any) -> Gathering:
    """Has every rank's numbers on their way, from -2^63 to 2^63 - 1 and as many on all ranks, without waiting for the others."""
    mine = torch.tensor(numbers, dtype=torch.int64)
    group = dist.group.WORLD if process_group is None else process_group
    try:
        group._get_backend(mine.device)
    except RuntimeError:
        # It knows no tensors of the CPU.
        mine = mine.cuda()
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(process_group))]
    return Gathering(dist.all_gather(every, mine, group=process_group, async_op=True), every)


def gather_numbers(numbers: list[int], process_group: Any) -> list[list[int]]:
    """Every rank's numbers; see :func:`begin_gather`."""
    return begin_gather(numbers, process_group).numbers()


def gather_objects(value: Any, process_group: Any) -> list[Any]:
    """What every rank has, by pickle."""
    every: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(every, value, group=process_group)
    return every


class Gather:
    """Hands what each rank says to all: a :class:`thc.rendezvous.Gather` of a process group."""

    def __init__(self, process_group: Any) -> None:
        self._group = process_group

    def gather(self, value: str) -> list[str]:
        return gather_objects(value, self._group)


OF_A_RANK = frozenset(
    "address bind cookie controller_ca controller_cert controller_key device dpdk inject inject_seed io join_timeout min_rto patience "
    "port recv_buffer seed send_buffer threads timeout".split()
)
"""Options in which ranks may differ."""


def _text(value: Any) -> str:
    """An option as it is compared."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_text(each)}' for key, each in sorted(value.items()))}}}"
    return repr(value)


def compare_options(options: Mapping[str, Any], process_group: Any, failed: Exception | None = None) -> None:
    """Raises :exc:`~thc.ConfigError` on all ranks if one has other options than rank 0, or if this one has ``failed`` to understand its own.
    A collective, to be made before any that depends on an option."""
    mine = {name: _text(value) for name, value in sorted(options.items()) if name not in OF_A_RANK}
    told = gather_objects((mine, None if failed is None else str(failed)), process_group)
    if failed is not None:
        raise failed
    for rank, (_, why) in enumerate(told):
        if why is not None:
            raise ConfigError(f"rank {rank} has options that it does not understand: {why}")
    first = told[0][0]
    other = next((rank for rank, (theirs, _) in enumerate(told) if theirs != first), None)
    if other is None:
        return
    theirs = told[other][0]
    differ = [name for name in sorted(first.keys() | theirs.keys()) if first.get(name) != theirs.get(name)]
    said = [f"{name} is {first.get(name)} on rank 0 and {theirs.get(name)} on rank {other}" for name in differ]
    raise ConfigError(f"{'; '.join(said)}: give all ranks the same")


def shared_store(process_group: Any, patience: float) -> Any:
    """A ``TCPStore``, or nothing on a rank that does not reach it. A collective. ``patience``: seconds that a call may take."""
    store: Any = None
    where: tuple[str, int] | None = None
    told = gather_objects((this_host(), _address()), process_group)
    if dist.get_rank(process_group) == 0:
        with suppress(RuntimeError, OSError, ConfigError):
            own = addresses_among([host for host, _ in told], [each for _, each in told])[0]
            # It listens on all addresses, of which the others' one need not be this host's own.
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=patience))
            where = own, store.port
    where = gather_objects(where, process_group)[0]
    if store is None and where is not None:
        with suppress(RuntimeError, OSError):
            store = dist.TCPStore(*where, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=patience))
    # Nobody lets go of it before all have found it.
    gather_objects(None, process_group)
    return store


def _address() -> tuple[str, bool]:
    try:
        return data_address()
    except ConfigError:
        return "127.0.0.1", True
