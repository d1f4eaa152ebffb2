"""The call that ends a step, one packet each way, in which ranks tell each other how the step before was."""

from __future__ import annotations

from collections.abc import Sequence

from thc.base_group import BaseGroup
from thc.torch.engine.bucket import Bucket
from thc.torch.ranks.exchange import exchange_halves, join_halves, tells
from thc.torch.engine.part import EnginePart

__all__ = ["LastCall"]


class LastCall:
    """Tells the other ranks what the engine's parts have to tell."""

    def __init__(self, group: BaseGroup, rank: int, parts: Sequence[EnginePart]) -> None:
        self._group, self._rank, self._parts = group, rank, parts
        self.tells = tells(group)
        """Whether it can tell anything: otherwise an empty call ends a step."""

    def make(self, step: int, buckets: Sequence[Bucket]) -> list[int] | None:
        """Makes the call. Returns all ranks' counts of steps, modulo 65536, if they differ. Raises what a call raises."""
        mine: list[int] = []
        told = [part.row(buckets) for part in self._parts]
        for numbers in told:
            mine += numbers
        # The step comes last, in 16 bits: for up to 51 ranks all of it fits into one packet.
        halves = [half for number in mine for half in (number >> 16, number & 0xFFFF)] + [step & 0xFFFF]
        answers = exchange_halves(self._group, self._rank, halves)
        rows, steps = [join_halves(row[:-1]) for row in answers], [row[-1] for row in answers]
        at = 0
        for part, numbers in zip(self._parts, told):
            part.agree([row[at : at + len(numbers)] for row in rows], buckets)
            at += len(numbers)
        return None if len(set(steps)) == 1 else steps
