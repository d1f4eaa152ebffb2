"""The stages of the pipeline, with work that does nothing but wait until it is told."""

from __future__ import annotations

import threading

import pytest
import thc
from conftest import needs, outcomes
from patience import HANG

needs("torch")

from thc.torch.engine.pipeline import Pipeline  # noqa: E402


class Piece:
    """Work that can be held up in each of its stages."""

    def __init__(self, name: str, log: list[str], room: int = 3, waits: bool = True) -> None:
        self.name, self._log, self._room, self._waits = name, log, room, waits
        self.begun, self.over, self.may_end = threading.Event(), threading.Event(), threading.Event()

    def room(self) -> int:
        return self._room

    def begin(self) -> bool:
        self._log.append(f"begin {self.name}")
        self.begun.set()
        return self._waits

    def wait(self) -> None:
        assert self.may_end.wait(HANG)
        self._log.append(f"store {self.name}")

    def end(self) -> None:
        self._log.append(f"end {self.name}")
        self.over.set()

    def give_up(self, error: BaseException) -> None:
        self._log.append(f"give up {self.name}: {type(error).__name__}")
        self.over.set()


def test_several_are_under_way_and_end_in_order() -> None:
    pipeline, log = Pipeline(), list[str]()
    pieces = [Piece(name, log) for name in "abcd"]
    for piece in pieces:
        pipeline.put(piece)
    # Three are fetched and submitted while the first has not been stored; the fourth waits for room.
    assert all(piece.begun.wait(HANG) for piece in pieces[:3])
    assert not pieces[3].begun.wait(0.1) and log == ["begin a", "begin b", "begin c"]
    pieces[1].may_end.set()
    assert not pieces[1].over.wait(0.1), "an earlier one is still under way"
    pieces[0].may_end.set()
    assert pieces[3].begun.wait(HANG)
    for piece in pieces:
        piece.may_end.set()
    assert pieces[3].over.wait(HANG)
    assert [entry for entry in log if entry.startswith("end")] == ["end a", "end b", "end c", "end d"]


def test_what_must_be_alone_is_alone_and_what_is_over_at_once_waits_for_its_turn_to_end() -> None:
    pipeline, log = Pipeline(), list[str]()
    first, last, alone = Piece("first", log), Piece("last", log, waits=False), Piece("alone", log, room=1)
    for piece in (first, last, alone):
        pipeline.put(piece)
    assert last.begun.wait(HANG) and not last.over.wait(0.1) and not alone.begun.is_set()
    first.may_end.set()
    assert alone.begun.wait(HANG)
    alone.may_end.set()
    assert alone.over.wait(HANG)
    assert log == ["begin first", "begin last", "store first", "end first", "end last", "begin alone", "store alone", "end alone"]


def test_questions_come_after_what_was_put_before_them() -> None:
    pipeline, log = Pipeline(), list[str]()
    piece = Piece("a", log)
    pipeline.put(piece)
    threading.Timer(0.05, piece.may_end.set).start()
    assert pipeline.ask(lambda: list(log)) == ["begin a", "store a", "end a"]
    with pytest.raises(ZeroDivisionError):
        pipeline.ask(lambda: 1 // 0)
    assert pipeline.ask(lambda: 5) == 5


class Faulty(Piece):
    """Work that breaks its promise not to raise."""

    stage = "end"

    def wait(self) -> None:
        super().wait()
        if self.stage == "wait":
            raise ZeroDivisionError("in wait")

    def end(self) -> None:
        super().end()
        raise ZeroDivisionError("in end")


@pytest.mark.parametrize("stage", ["wait", "end"])
def test_a_pipeline_that_has_failed_keeps_nobody_waiting(stage: str) -> None:
    pipeline, log = Pipeline(), list[str]()
    faulty, second, third = Faulty("faulty", log), Piece("second", log), Piece("third", log, room=1)
    faulty.stage = stage
    for piece in (faulty, second, third):
        pipeline.put(piece)
    asked = threading.Thread(target=lambda: log.append(str(outcomes(lambda: pipeline.ask(lambda: 5))[0])))
    asked.start()
    assert second.begun.wait(20)
    faulty.may_end.set()
    assert second.over.wait(20) and third.over.wait(20)
    asked.join(20)
    assert [entry for entry in log if entry.startswith("give up")] == [f"give up {name}: PanickedError" for name in ("faulty", "second", "third")]
    assert "close the group and join with a new one" in log[-1], log
    for again in (lambda: pipeline.put(Piece("late", log)), lambda: pipeline.ask(lambda: 5)):
        with pytest.raises(thc.PanickedError, match=f"in {stage}"):
            again()
    second.may_end.set()


def test_its_threads_end_with_it() -> None:
    pipeline = Pipeline()
    pipeline.ask(lambda: None)
    before = {thread for thread in threading.enumerate() if thread.name in ("thc-sequencer", "thc-store")}
    mine = [thread for thread in before if thread.is_alive()]
    del pipeline
    for _ in range(100):
        if sum(thread.is_alive() for thread in mine) <= len(mine) - 2:
            return
        threading.Event().wait(0.05)
    raise AssertionError("a pipeline that nobody uses keeps its threads")
