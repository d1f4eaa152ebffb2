"""Hosts with several ranks: each local rank has a job of its own over the hosts, a *rail* (docs/pytorch.md)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from thc import errors
from thc.arguments import Array, Plan
from thc.base_group import BaseGroup, Pending, _open
from thc.rendezvous import this_host
from thc.server import Server
from thc.stats import Job, Stats, Table, Training
from thc.torch.ranks.gathering import Gather, gather_numbers, gather_objects, tells
from thc.torch.ranks.peers import backend_on, borrow, wait_for


T = TypeVar("T")


class HostRanks:
    """Process groups of the ranks of this host. Making one is a collective of theirs, and all ranks of the process group make as many.

    On the host the sums go over gloo, on GPUs over NCCL. What fails here is a :exc:`thc.NetworkError`.
    """

    def __init__(self, process_group: Any, ranks: Sequence[int]) -> None:
        """``ranks`` are those of ``process_group`` that are on this host."""
        self.ranks = list(ranks)
        self.place = self.ranks.index(dist.get_rank(process_group))
        """This rank's number on its host."""
        on_gpus = backend_on(process_group, "cuda") == "nccl"
        self._own = borrow(process_group, ["gloo", "gloo", *(["nccl"] if on_gpus else [])], ranks)
        self._sums, self._states = self._own.groups[:2]
        self._gpus = self._own.groups[2] if on_gpus else None

    def reduce_scatter(self, buffer: torch.Tensor, shares: Sequence[slice], meanwhile: Callable[[], None]) -> torch.Tensor:
        """The mean over the host's ranks of this rank's share of a one-dimensional buffer, of which ``shares`` are a partition. On the CPU it is
        f32, added in the order of ranks; on a GPU it has the buffer's type, and is made on the current stream."""
        own = shares[self.place]
        length, ranks = own.stop - own.start, len(shares)
        if buffer.device.type != "cpu":
            group = self._group_for(buffer.device)
            longest = _longest(shares)
            padded = torch.empty(ranks, longest, dtype=buffer.dtype, device=buffer.device)
            for row, share in zip(padded, shares):
                row[: share.stop - share.start].copy_(buffer[share])
            found = torch.empty(longest, dtype=buffer.dtype, device=buffer.device)
            self._run_checked(lambda: dist.reduce_scatter_tensor(found, padded.view(-1), op=dist.ReduceOp.AVG, group=group))
            return found[:length]
        # Older gloo has no reduce-scatter; this moves as much, and halves are added as f32.
        size = buffer.element_size()
        received = torch.empty(ranks * length, dtype=buffer.dtype)
        sent = [size * (share.stop - share.start) for share in shares]
        self._await(
            lambda: dist.all_to_all_single(
                received.view(torch.uint8), buffer.view(torch.uint8), [size * length] * ranks, sent, group=self._sums, async_op=True
            ),
            meanwhile,
        )
        total = torch.zeros(length)
        for addend in received.view(ranks, length) if length else ():
            total += addend
        return total.mul_(1.0 / ranks)

    def all_gather(self, share: torch.Tensor, buffer: torch.Tensor, shares: Sequence[slice], meanwhile: Callable[[], None]) -> None:
        """Fills a buffer with the shares of all ranks of the host: on a GPU on the current stream."""
        longest = _longest(shares)
        own = share if share.dtype == buffer.dtype else share.to(buffer.dtype)
        whole = all(each.stop - each.start == longest for each in shares)
        padded = buffer if whole else torch.empty(len(shares) * longest, dtype=buffer.dtype, device=buffer.device)
        if own.numel() < longest:
            own = torch.nn.functional.pad(own, (0, longest - own.numel()))
        if buffer.device.type == "cpu":
            self._await(
                lambda: dist.all_gather_into_tensor(padded.view(torch.uint8), own.contiguous().view(torch.uint8), group=self._sums, async_op=True),
                meanwhile,
            )
        else:
            group = self._group_for(buffer.device)
            self._run_checked(lambda: dist.all_gather_into_tensor(padded, own.contiguous(), group=group))
        if not whole:
            for row, each in zip(padded.view(len(shares), longest), shares):
                buffer[each].copy_(row[: each.stop - each.start])

    def add_up(self, numbers: torch.Tensor) -> None:
        """Replaces numbers on the CPU by their sums over the host's ranks."""
        self._run_checked(lambda: dist.all_reduce(numbers, group=self._sums))

    def gather_states(self, mine: int) -> list[int]:
        """What each rank of the host says of a bucket. On the thread that stores means, in their order."""
        return [state for (state,) in self._run_checked(lambda: gather_numbers([mine], self._states))]

    def _group_for(self, device: torch.device) -> Any:
        if self._gpus is None:
            raise errors.ConfigError(f"gradients are on {device}, and the process group has no NCCL to add them up inside the host: leave rails out")
        return self._gpus

    def _await(self, begin: Callable[[], Any], meanwhile: Callable[[], None]) -> None:
        def work() -> None:
            under_way = begin()
            wait_for(under_way.is_completed, meanwhile)
            under_way.wait()

        self._run_checked(work)

    def _run_checked(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except RuntimeError as error:
            self._own.spoil()
            raise errors.NetworkError(f"a rank of this host is gone, or does not answer: {error}") from error


def _longest(shares: Sequence[slice]) -> int:
    longest: int = max(each.stop - each.start for each in shares)
    return longest


class RailGroup(BaseGroup):
    """All ranks of a process group, in which the ranks with the same place on their hosts are the workers of a job, one a host.

    :func:`thc.torch.wrap` makes it with ``rails=True``. Hooks average buckets through it; of its own calls it takes those in which ranks tell each
    other numbers, ``mode="raw"``.
    """

    def __init__(self, rail: BaseGroup, ranks: HostRanks, hosts: Hosts, rank: int) -> None:
        self._pid = os.getpid()
        self.rail = rail
        """This rank's membership in its job, whose workers are the hosts."""
        self.host_ranks = ranks
        self.worker, self.workers = rank, sum(map(len, hosts.ranks))
        self.rail_ranks = [each[ranks.place] for each in hosts.ranks]
        """The ranks that are on this rail."""
        self.ps, self.job_number = rail.ps, rail.job_number
        self.sums_in_lanes, self.method = rail.sums_in_lanes, rail.method
        self.training = Training()
        _open.add(self)

    @property
    def server(self) -> Server | None:
        return self.rail.server

    @property
    def job(self) -> Job:
        return self.rail.job

    @property
    def tables(self) -> list[Table]:
        return self.rail.tables

    def allreduce(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Array:
        if mode != "raw" or plan is not None:
            raise errors.ConfigError('a group of rails averages buckets of gradients: give mode="raw", or use the rail that this rank is on, group.rail')
        total = torch.from_numpy(np.array(array, np.float32).reshape(-1))
        self.host_ranks.add_up(total)
        self.rail.allreduce(total.numpy(), mode="raw")
        array[...] = total.div_(len(self.host_ranks.ranks)).numpy().reshape(array.shape)
        return array

    def allreduce_async(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Pending:
        raise errors.ConfigError("a group of rails averages buckets of gradients: use the rail that this rank is on, group.rail")

    def stats(self) -> Stats:
        """The rail's: a host sends the sum of what its ranks do."""
        return dataclasses.replace(self.rail.stats(), **self.training.totals())

    def give_up(self) -> None:
        self.rail.give_up()

    def rejoin(self) -> None:
        self.rail.rejoin()

    def find_server(self, patience: float | str = 0.3) -> bool:
        return self.rail.find_server(patience)

    @property
    def _library(self) -> Any:
        return self.rail._library

    def _leave(self, linger: float) -> None:
        _open.discard(self)
        if self._pid == os.getpid():
            self.rail._leave(linger)

    def __del__(self) -> None:
        if hasattr(self, "rail"):
            self.close()

    def __repr__(self) -> str:
        return f"<thc.RailGroup rank {self.worker} of {self.workers} on {len(self.rail_ranks)} hosts, job {self.job_number} at {self.ps}>"


class _ByHost:
    """Hands what each host says to all, in the order of hosts: torch numbers the ranks of a process group by their numbers among all."""

    def __init__(self, gather: Gather, ranks: Sequence[int]) -> None:
        self._gather, self._places = gather, [sorted(ranks).index(rank) for rank in ranks]

    def gather(self, value: str) -> list[str]:
        every = self._gather.gather(value)
        return [every[place] for place in self._places]


def hosts_of(process_group: Any) -> Hosts:
    """Which ranks are on which host. A collective."""
    return Hosts.from_names(gather_objects(this_host(), process_group))


def rails(process_group: Any, hosts: Hosts, join: Callable[[int, int, int, Any], BaseGroup]) -> RailGroup:
    """A group of all ranks in which the k-th ranks of all hosts are the workers of the k-th job. A collective.

    ``join(host, hosts, k, store)`` joins that job; through ``store`` its workers learn of each other.
    """
    rank = dist.get_rank(process_group)
    if not hosts.is_even:
        raise errors.ConfigError(
            f"rails: hosts have {', '.join(str(len(each)) for each in hosts.ranks)} ranks, and a rail needs one of each host: give all hosts as many, "
            "or leave rails out: then each rank is a worker"
        )
    number = hosts.of_rank(rank)
    place = hosts.ranks[number].index(rank)
    along = [each[place] for each in hosts.ranks]
    every = along if process_group is None else [dist.get_global_rank(process_group, each) for each in along]
    # Only by this do workers of one rail learn of each other: a rail that cannot be made must not leave the others waiting in a collective.
    own = borrow(process_group, ["gloo"], along)
    meeting = own.groups[0]
    group, failed = None, None
    try:
        group = join(number, len(hosts.ranks), place, _ByHost(Gather(meeting), every))
        if not tells(group):
            raise errors.ConfigError("rails need jobs that lose nothing and wait for all their workers: leave policy and quorum out, or rails")
        if group.workers != len(hosts.ranks):
            raise errors.ConfigError(f"there are {len(hosts.ranks)} hosts, but job {group.job_number} at {group.ps} has {group.workers} workers: rails have one a host")
    except errors.ThcError as error:
        own.spoil()
        failed = error
    told = gather_objects("" if failed is None else f"{type(failed).__name__}: {failed}", process_group)
    if failed is not None:
        raise failed
    assert group is not None
    other = next((each for each in range(len(told)) if told[each]), None)
    if other is not None:
        group.close()
        raise errors.JoinError(f"rank {other} could not join its rail: {told[other]}")
    return RailGroup(group, HostRanks(process_group, hosts.ranks[number]), hosts, rank)


@dataclass(frozen=True)
class Hosts:
    """Hosts in the order of their first ranks, with the ranks of each."""

    ranks: list[list[int]]

    @classmethod
    def from_names(cls, names: list[str]) -> Hosts:
        """From the host of each rank."""
        distinct = list(dict.fromkeys(names))
        return cls([[rank for rank, name in enumerate(names) if name == host] for host in distinct])

    def pays(self) -> bool:
        """Whether there is anything to gain: several hosts, and one of them with several ranks."""
        return 1 < len(self.ranks) < sum(map(len, self.ranks))

    @property
    def is_even(self) -> bool:
        """Whether all have as many ranks."""
        return len({len(ranks) for ranks in self.ranks}) == 1

    def of_rank(self, rank: int) -> int:
        """The number of a rank's host."""
        return next(number for number, ranks in enumerate(self.ranks) if rank in ranks)
