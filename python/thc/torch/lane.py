"""The thread on which a group's calls are made, in order."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from thc.group import Group

__all__ = ["Lane", "lane_of"]

_lanes: weakref.WeakKeyDictionary[Group, Lane] = weakref.WeakKeyDictionary()


class Lane:
    """Does work in the order in which it was given, on one thread, so that autograd goes on meanwhile.

    All hooks of a group share its lane: then all ranks make the same calls in the same order, as long as
    they run their models in the same order.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=_run, args=(self._work,), name="thc-lane", daemon=True).start()

    def put(self, work: Callable[[], None]) -> None:
        """Appends work, which must not raise."""
        self._work.put(work)

    def ask(self, work: Callable[[], Any]) -> Any:
        """Does work after all that was put before, and returns what it returns or raises."""
        outcome: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append((work(), None))
            except BaseException as error:  # handed to whoever asks
                outcome.append((None, error))
            done.set()

        self._work.put(run)
        done.wait()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def __del__(self) -> None:
        self._work.put(None)


def _run(work_queue: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """Knows only the queue, so that a lane that nobody uses any more ends."""
    while (work := work_queue.get()) is not None:
        work()
        # What the work refers to shall not live until the next comes.
        del work


def lane_of(group: Group) -> Lane:
    """The lane of a group."""
    lane = _lanes.get(group)
    if lane is None:
        lane = _lanes[group] = Lane()
    return lane
