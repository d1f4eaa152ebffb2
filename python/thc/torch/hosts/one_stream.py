"""Which ranks are on one host, and how one of them comes to speak for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thc import errors
from thc.base_group import BaseGroup
from thc.host import Listener, Speaker, this_host
from thc.line import Door
from thc.torch.ranks.gathering import Gather
from thc.torch.ranks.store import shared_store

__all__ = ["Hosts", "one_stream"]

PATIENCE = 60.0
"""Seconds in which the ranks of a host must have come."""


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


def one_stream(
    choice: bool | str,
    process_group: Any,
    rank: int,
    address: str | None,
    join: Callable[[int, Hosts, Any], BaseGroup],
    aside: Callable[[], None] | None = None,
) -> BaseGroup | None:
    """A group of all ranks in which each host is one worker, or nothing if each rank shall be one. A collective.

    ``join(host, hosts, store)`` joins the job for a host, on its first rank; through ``store`` these learn of each other. Where
    they do so by the process group itself there is none, and the other ranks call ``aside`` in the meantime. ``address`` is this host's, if
    it has to be told.
    """
    if choice not in (True, False, "auto"):
        raise errors.ConfigError(f'one_stream_per_host is {choice!r}: write True, False or "auto"')
    if choice is False:
        return None
    gather = Gather(process_group)
    hosts = Hosts.from_names(gather.gather(this_host()))
    if choice == "auto" and not hosts.pays():
        return None
    number = hosts.of_rank(rank)
    mine = hosts.ranks[number]
    door = Door() if rank == mine[0] and len(mine) > 1 else None
    names = [json.loads(each) for each in gather.gather(json.dumps(door and door.name))]
    store = shared_store(rank, gather, PATIENCE, address) if aside is None else None
    ranks = sum(map(len, hosts.ranks))
    if rank != mine[0]:
        if aside is not None:
            aside()
        return Listener(rank, ranks, Door.enter(names[mine[0]], rank, mine[0]))
    lines = {} if door is None else door.admit(mine[1:], PATIENCE)
    try:
        if aside is None and store is None:
            raise errors.ConfigError("the hosts do not reach rank 0: check MASTER_ADDR, or give address= on its host")
        return Speaker(join(number, hosts, store), rank, ranks, lines)
    except errors.ThcError as error:
        for line in lines.values():
            line.send({"over": [type(error).__name__, str(error)]})
        raise
