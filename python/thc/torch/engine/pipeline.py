"""The stages that a group's work goes through, several pieces of it at once.

The *sequencer* begins work in the order in which it was given, which is the same on all ranks, and ends it in that order; what must not happen twice at
a time happens there. The *store* thread waits for means and puts them where they belong (docs/architecture.md).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from thc import errors
from thc.base_group import BaseGroup

log = logging.getLogger("thc.torch")

IDLE = 0.5
"""Seconds without work after which a sequencer looks around."""

_looking_around = threading.Lock()
# A thread that is inside torch when the interpreter ends would take the process down.
atexit.register(lambda: _looking_around.acquire(timeout=2))


@contextlib.contextmanager
def looking_around() -> Iterator[bool]:
    """Whether a thread of ours may be inside torch now without work to do: one at a time, and none when the interpreter ends."""
    may = _looking_around.acquire(blocking=False)
    try:
        yield may
    finally:
        if may:
            _looking_around.release()


class Work(Protocol):
    """A piece of work. No method may raise."""

    def room(self) -> int:
        """How many pieces may be under way when this one begins, itself among them: 1 if it must be alone. Asked on the sequencer."""

    def begin(self) -> bool:
        """On the sequencer: submits. Whether there is something to wait for."""

    def wait(self) -> None:
        """On the store thread: waits for the mean, and stores it. Only after a :meth:`begin` that said so."""

    def end(self) -> None:
        """On the sequencer, in the order of beginnings."""

    def give_up(self, error: BaseException) -> None:
        """The pipeline has failed and does nothing more: whatever waits for this gets the error. From any stage, on any thread."""


class _Question:
    """Work that is done alone and at once, and whose outcome is waited for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.answer: Future[Any] = Future()

    def room(self) -> int:
        return 1

    def begin(self) -> bool:
        try:
            self.answer.set_result(self._work())
        except BaseException as error:  # raised by the answer
            self.answer.set_exception(error)
        return False

    def wait(self) -> None:
        pass

    def end(self) -> None:
        pass

    def give_up(self, error: BaseException) -> None:
        self.answer.set_exception(error)


class _Stages:
    """What the threads know: not the pipeline, so that one that is not used any more ends."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        """``"put"`` and work; ``"done"`` and work that has been stored; ``"failed"`` and an error; ``"close"``."""
        self.under_way: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.idlers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._failed: BaseException | None = None
        # Only the sequencer touches these.
        self._waiting: deque[Work] = deque()
        self._begun: deque[Work] = deque()
        self._done: set[int] = set()

    def put(self, work: Work) -> None:
        with self._lock:
            if self._failed is not None:
                raise self._panic()
            self.events.put(("put", work))

    def sequencer(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            # No method of work may raise. If one does, nothing else will do the work.
            self._fail(error)

    def _turn(self) -> bool:
        """Does what is to be done now. Whether there may be more."""
        try:
            what, value = self.events.get(timeout=IDLE)
        except queue.Empty:
            with looking_around() as may:
                for idler in list(self.idlers) if may else ():
                    idler.idle()
            return True
        if what == "close":
            self.under_way.put(None)
            return False
        if what == "failed":
            raise value
        if what == "put":
            self._waiting.append(value)
        else:
            self._done.add(value)
        # What it refers to shall not live until the next comes.
        del value
        self._advance()
        return True

    def _advance(self) -> None:
        """Ends what is done and begins what may begin, until nothing changes."""
        while True:
            if self._begun and id(self._begun[0]) in self._done:
                work = self._begun[0]
                self._done.discard(id(work))
                work.end()
                self._begun.popleft()
            elif self._waiting and len(self._begun) < self._waiting[0].room():
                work = self._waiting.popleft()
                self._begun.append(work)
                if work.begin():
                    self.under_way.put(work)
                else:
                    self._done.add(id(work))
            else:
                return

    def store(self) -> None:
        while (work := self.under_way.get()) is not None:
            try:
                work.wait()
            except BaseException as error:
                # The sequencer fails with it.
                self.events.put(("failed", error))
                return
            done, work = id(work), None
            self.events.put(("done", done))

    def _panic(self) -> errors.PanickedError:
        """The error of all work when the pipeline has failed."""
        panic = errors.PanickedError(f"the pipeline of this group has failed ({self._failed!r}): close the group and join with a new one")
        panic.__cause__ = self._failed
        return panic

    def _fail(self, error: BaseException) -> None:
        log.error("the pipeline has failed", exc_info=error)
        with self._lock:
            self._failed = error
        self.under_way.put(None)
        with contextlib.suppress(queue.Empty):
            while True:
                what, value = self.events.get_nowait()
                if what == "put":
                    self._waiting.append(value)
        for work in (*self._begun, *self._waiting):
            with contextlib.suppress(Exception):
                work.give_up(self._panic())
        self._begun.clear()
        self._waiting.clear()


class Pipeline:
    """Does work, so that autograd goes on meanwhile.

    All hooks of a group share it: then all ranks make the same calls in the same order, as long as they run their models in the same
    order.
    """

    def __init__(self) -> None:
        self._stages = stages = _Stages()
        self.put = stages.put
        """Appends work. Raises :exc:`thc.PanickedError` if the pipeline has failed."""
        for name, run in (("thc-sequencer", stages.sequencer), ("thc-store", stages.store)):
            threading.Thread(target=run, name=name, daemon=True).start()

    def ask(self, work: Callable[[], Any]) -> Any:
        """Does work after all that was put before, and returns what it returns or raises."""
        question = _Question(work)
        self.put(question)
        return question.answer.result()

    def when_idle(self, idler: Any) -> None:
        """Calls ``idler.idle`` on the sequencer whenever there has been no work for a moment, as long as the object lives. It must not raise."""
        self.ask(lambda: self._stages.idlers.add(idler))

    def __del__(self) -> None:
        self._stages.events.put(("close", None))


_pipelines: weakref.WeakKeyDictionary[BaseGroup, Pipeline] = weakref.WeakKeyDictionary()


def pipeline_of(group: BaseGroup) -> Pipeline:
    """The pipeline of a group."""
    found = _pipelines.get(group)
    if found is None:
        found = _pipelines[group] = Pipeline()
    return found
