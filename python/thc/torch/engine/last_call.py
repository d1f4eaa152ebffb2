"""The call that ends a step, in which ranks tell each other which step it is."""

from __future__ import annotations

from thc.base_group import BaseGroup
from thc.torch.ranks.exchange import exchange_halves, tells

__all__ = ["LastCall"]


class LastCall:
    """Tells the other ranks the number of the step."""

    def __init__(self, group: BaseGroup, rank: int) -> None:
        self._group, self._rank = group, rank
        self.tells = tells(group)
        """Whether it can tell anything: otherwise an empty call ends a step."""

    def make(self, step: int) -> list[int] | None:
        """Makes the call. Returns all ranks' counts of steps, modulo 65536, if they differ. Raises what a call raises."""
        steps = [told for (told,) in exchange_halves(self._group, self._rank, [step & 0xFFFF])]
        return None if len(set(steps)) == 1 else steps
