"""The call that ends a step, one packet each way, in which ranks tell each other how the step before was."""

from __future__ import annotations

from collections.abc import Sequence

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.engine.bucket import Bucket
from thc.torch.compression.carrier import Carrier
from thc.torch.ranks.exchange import exchange_halves, join_halves, tells
from thc.torch.engine.part import EnginePart
from thc.torch.hosts.rails import RailGroup

__all__ = ["LastCall"]


class LastCall:
    """Tells the other ranks how this one scales, and what the engine's parts have to tell."""

    def __init__(self, group: BaseGroup, rank: int, carrier: Carrier, parts: Sequence[EnginePart]) -> None:
        self._group, self._rank, self._carrier, self._parts = group, rank, carrier, parts
        self.tells = tells(group)
        """Whether it can tell anything: otherwise an empty call ends a step."""
        self._alike = group.rail_ranks if isinstance(group, RailGroup) else range(group.workers)
        """The ranks that average the same coordinates as this one."""

    def make(self, step: int, buckets: Sequence[Bucket]) -> list[int] | None:
        """Makes the call. Returns all ranks' counts of steps, modulo 65536, if they differ. Raises what a call raises, and
        :exc:`~thc.ScalesError` if ranks have different scales."""
        scales = self._carrier.scales
        mine = [0 if scales is None else scales.digest]
        told = [part.row(buckets) for part in self._parts]
        for numbers in told:
            mine += numbers
        # The step comes last, in 16 bits: for up to 51 ranks all of it fits into one packet.
        halves = [half for number in mine for half in (number >> 16, number & 0xFFFF)] + [step & 0xFFFF]
        answers = exchange_halves(self._group, self._rank, halves)
        rows, steps = [join_halves(row[:-1]) for row in answers], [row[-1] for row in answers]
        if any(rows[rank][0] != mine[0] for rank in self._alike):
            raise errors.ScalesError()
        at = 1
        for part, numbers in zip(self._parts, told):
            part.agree([row[at : at + len(numbers)] for row in rows], buckets)
            at += len(numbers)
        return None if len(set(steps)) == 1 else steps
