"""The cores that this process may use, and how the ranks of a host divide them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Cores that this process may keep busy: those that it is bound to, or fewer if its control group has a quota of time."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota() -> float | None:
    """The cores that the quotas of this process's control groups come to, if there are any."""
    found = []
    for folder in _folders():
        with contextlib.suppress(OSError, ValueError):
            most, period = (folder / "cpu.max").read_text().split()
            if most != "max":
                found.append(int(most) / int(period))
        with contextlib.suppress(OSError, ValueError):
            # The first version of control groups.
            most = (folder / "cpu.cfs_quota_us").read_text()
            if int(most) > 0:
                found.append(int(most) / int((folder / "cpu.cfs_period_us").read_text()))
    return min(found, default=None)


def _folders() -> Iterator[Path]:
    """The control groups of this process, with all above them. Inside a container the paths may be those of the host, and its own is the root."""
    yield _CGROUPS
    yield _CGROUPS / "cpu"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            folder = (_CGROUPS / "cpu" if controllers else _CGROUPS) / path.strip("/")
            yield folder
            yield from (each for each in folder.parents if each.is_relative_to(_CGROUPS))


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
    """Threads of a rank that has so many cores, and with the others of its host a quota."""
    quota = _quota()
    return max(1, int(cores if quota is None else min(cores, quota / ranks)) - 1)
