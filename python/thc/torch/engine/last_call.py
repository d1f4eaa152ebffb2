"""The call that ends a step, one packet each way, in which ranks tell each other how the step before was."""

from __future__ import annotations

from collections.abc import Sequence

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.engine.bucket import Bucket
from thc.torch.compression.carrier import Carrier
from thc.torch.engine.clock import Clock
from thc.torch.ranks.exchange import exchange_halves, join_halves, tells
from thc.torch.engine.part import EnginePart
from thc.torch.hosts.rails import RailGroup

__all__ = ["LastCall"]


def _micros(seconds: float) -> int:
    """As ranks tell it, in 32 bits."""
    return min(round(seconds * 1e6), 0xFFFF_FFFF)


class LastCall:
    """Tells the other ranks what this one waited, how it scales, and what the engine's parts have to tell."""

    def __init__(self, group: BaseGroup, rank: int, clock: Clock, carrier: Carrier, parts: Sequence[EnginePart]) -> None:
        self._group, self._rank, self._clock, self._carrier, self._parts = group, rank, clock, carrier, parts
        self.tells = tells(group)
        """Whether it can tell anything: otherwise an empty call ends a step."""
        self._alike = group.rail_ranks if isinstance(group, RailGroup) else range(group.workers)
        """The ranks that average the same coordinates as this one."""

    def make(self, step: int, buckets: Sequence[Bucket]) -> list[int] | None:
        """Makes the call. Returns all ranks' counts of steps, modulo 65536, if they differ. Raises what a call raises, and
        :exc:`~thc.ScalesError` if ranks have different scales."""
        scales, last = self._carrier.scales, self._clock.last
        mine = [_micros(last.hidden), _micros(last.waited), 0 if scales is None else scales.digest]
        told = [part.row(buckets) for part in self._parts]
        for numbers in told:
            mine += numbers
        # The step comes last, in 16 bits: for up to 51 ranks all of it fits into one packet.
        halves = [half for number in mine for half in (number >> 16, number & 0xFFFF)] + [step & 0xFFFF]
        answers = exchange_halves(self._group, self._rank, halves)
        rows, steps = [join_halves(row[:-1]) for row in answers], [row[-1] for row in answers]
        if any(rows[rank][2] != mine[2] for rank in self._alike):
            raise errors.ScalesError()
        if all(row[0] + row[1] > 0 for row in rows):
            self._group.training.note_comparison((row[0] / 1e6, row[1] / 1e6) for row in rows)
        at = 3
        for part, numbers in zip(self._parts, told):
            part.agree([row[at : at + len(numbers)] for row in rows], buckets)
            at += len(numbers)
        return None if len(set(steps)) == 1 else steps
