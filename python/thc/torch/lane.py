"""The thread on which a group's calls are made, in order."""

from __future__ import annotations

import atexit
import functools
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from thc.group import Group

__all__ = ["Lane", "lane_of"]

IDLE = 0.5
"""Seconds without work after which a lane looks around."""

_lanes: weakref.WeakKeyDictionary[Group, Lane] = weakref.WeakKeyDictionary()

_looking_around = threading.Lock()


def _stop_looking_around() -> None:
    """A thread that is inside torch when the interpreter ends would take the process down."""
    _looking_around.acquire(timeout=2)


atexit.register(_stop_looking_around)


class Idler(Protocol):
    """Something to be looked after between work."""

    def idle(self) -> None:
        """Called on the lane. Must not raise."""


class Lane:
    """Does work in the order in which it was given, on one thread, so that autograd goes on meanwhile.

    All hooks of a group share its lane: then all ranks make the same calls in the same order, as long as
    they run their models in the same order.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idlers: weakref.WeakSet[Idler] = weakref.WeakSet()
        threading.Thread(target=_run, args=(self._work, self._idlers), name="thc-lane", daemon=True).start()

    def when_idle(self, idler: Idler) -> None:
        """Has something looked after whenever there has been no work for a moment, as long as it lives."""
        self.ask(functools.partial(self._idlers.add, idler))

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


def _run(
    work_queue: queue.SimpleQueue[Callable[[], None] | None], idlers: weakref.WeakSet[Idler]
) -> None:
    """Knows only the queue, so that a lane that nobody uses any more ends."""
    while True:
        try:
            work = work_queue.get(timeout=IDLE)
        except queue.Empty:
            _look_around(idlers)
            continue
        if work is None:
            return
        work()
        # What the work refers to shall not live until the next comes.
        del work


def _look_around(idlers: weakref.WeakSet[Idler]) -> None:
    if not _looking_around.acquire(blocking=False):
        return
    try:
        for idler in list(idlers):
            idler.idle()
    finally:
        _looking_around.release()


def lane_of(group: Group) -> Lane:
    """The lane of a group."""
    lane = _lanes.get(group)
    if lane is None:
        lane = _lanes[group] = Lane()
    return lane
