"""The cores that this process may use, and how the ranks of a host divide them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from thc import _native


def is_bound() -> bool:
    """Whether this process is bound to cores of its own: it has fewer than the process that started it."""
    with contextlib.suppress(OSError):
        return os.sched_getaffinity(0) < os.sched_getaffinity(os.getppid())
    return False


def threads_of_rank(ranks: Sequence[Iterable[int]]) -> int | None:
    """Threads that compute by default, the caller's among them, where these are the cores of the ranks of this host, this one's among them. Ranks
    divide the cores that they have in common, and all of them a quota. Nothing if this one is alone, which takes the library's default."""
    if len(ranks) < 2:
        return None
    mine = os.sched_getaffinity(0)
    sharing = max(1, sum(not mine.isdisjoint(each) for each in ranks))
    return _threads(len(mine) / sharing, len(ranks))


def threads_by_count(ranks: int) -> int | None:
    """The same where nobody knows more than how many ranks there are. A rank that has fewer cores than the process that started it has them alone."""
    return None if ranks < 2 else _threads(len(os.sched_getaffinity(0)) / (1 if is_bound() else ranks), ranks)


def _threads(cores: float, ranks: int) -> int:
    """Threads of a rank that has so many cores, and with the others of its host a quota of time, where a control group has one."""
    available = _native.available_cores()
    return max(1, int(min(cores, available / ranks) if available < len(os.sched_getaffinity(0)) else cores) - 1)
