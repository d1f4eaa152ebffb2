"""Hosts with several ranks: each local rank has a job of its own over the hosts, a *rail*.

A bucket is summed inside the host first, so that each of its ranks has the host's mean of a share; that share travels in the job of the
ranks which have the same one, and inside the host the shares come together again. Between hosts a coordinate travels once,
all GPUs of a host compress, and nothing of it passes through the memory of one process.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from thc import errors
from thc.arguments import Array, Plan
from thc.base_group import BaseGroup, Pending, _open
from thc.stats import Job, Stats, Table, Training
from thc.server import Server
from thc.torch.ranks.exchange import tells
from thc.torch.hosts.host_ranks import HostRanks
from thc.torch.ranks.gathering import Gather
from thc.rendezvous import this_host
from thc.torch.ranks.own_groups import borrow


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
        self.sums_in_lanes = rail.sums_in_lanes
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
    return Hosts.from_names(Gather(process_group).gather(this_host()))


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
    told = Gather(process_group).gather("" if failed is None else f"{type(failed).__name__}: {failed}")
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
