"""Which ranks are on one host."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Hosts"]


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
