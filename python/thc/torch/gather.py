"""How the ranks of a process group learn of each other's servers."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

__all__ = ["Gather"]


class Gather:
    """Hands what each rank says to all, by a collective that torch offers to everybody."""

    def __init__(self, process_group: Any) -> None:
        self._group = process_group

    def gather(self, value: str) -> list[str]:
        every: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(every, value, group=self._group)
        return every
