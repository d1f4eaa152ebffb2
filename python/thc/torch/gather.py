"""How the ranks of a process group learn of each other's servers."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch.distributed as dist

from thc.group import Group

__all__ = ["Gather", "scope_of"]

_scopes: weakref.WeakKeyDictionary[Group, itertools.count[int]] = weakref.WeakKeyDictionary()


def scope_of(group: Group) -> int:
    """A number for who comes next to share a group, in the same order on all ranks: their keys of error feedback must differ."""
    return next(_scopes.setdefault(group, itertools.count()))


class Gather:
    """Hands what each rank says to all, by a collective that torch offers to everybody."""

    def __init__(self, process_group: Any) -> None:
        self._group = process_group

    def gather(self, value: str) -> list[str]:
        every: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(every, value, group=self._group)
        return every
