"""A hook's steps, as the sequencer sees them: buckets begin and end, ranks agree, a step is over."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

import torch

from thc import errors
from thc.group import Group
from thc.torch.adaptive import Adaptive
from thc.torch.agreement import LOST, Agreement, Route, Wish
from thc.torch.board import Board
from thc.torch.bucket import Bucket, is_finite
from thc.torch.clock import Clock
from thc.torch.compressor import Compressor
from thc.torch.last_call import LastCall
from thc.torch.lookout import Lookout
from thc.torch.options import Options
from thc.torch.pace import Pace
from thc.torch.passage import Passage
from thc.torch.peers import Gathering, Peers
from thc.torch.refining import Refining
from thc.torch.scales import Scales
from thc.torch.scout import Scout

__all__ = ["Steps"]

log = logging.getLogger("thc.torch")

_sessions: weakref.WeakKeyDictionary[Group, int] = weakref.WeakKeyDictionary()
"""How often all ranks of a group have joined anew, by whichever of its hooks."""


class Steps:
    """Does what the agreement wishes. All methods are the sequencer's."""

    def __init__(
        self,
        group: Group,
        options: Options,
        peers: Peers,
        board: Board | None,
        adaptive: Adaptive | None,
        compressor: Callable[[Bucket], Compressor],
        clock: Clock,
        refining: Refining | None,
        put_next: Callable[[list[Passage]], None],
        scales: Callable[[], Scales | None] = lambda: None,
    ) -> None:
        self._group, self._options, self._peers, self._adaptive = group, options, peers, adaptive
        self._compressor = compressor
        self._refining, self._put_next, self._scales = refining, put_next, scales
        self.agreement = Agreement(
            fallback=options.fallback, depth=options.in_flight, holds_all=options.nonfinite == "zero"
        )
        self.clock = clock
        self.number = 0
        """Backward passes that are over."""
        self._last_call = LastCall(group, peers.rank, clock, scales, refining)
        self.skipped = False
        """Whether the last step's gradients were not finite on some rank, as far as anybody has looked."""
        self.looks = options.nonfinite == "zero"
        """Whether means of the process group are looked at at once; it is a pass over them, which costs as much as some hooks gain."""
        self._unlooked: list[torch.Tensor] = []
        self.error: BaseException | None = None
        """Why the parameter server counts as lost, or what ended the work."""
        self._carrier: Compressor | None = None
        """What buckets have been given to."""
        self.pace: Pace | None = None
        """The pace of a rank that need not have every mean."""
        # Of the step under way.
        self._held: list[Passage] = []
        self._buckets: list[Bucket] = []
        self._nonfinite = False
        self._apart: list[int] | None = None
        """Ranks' counts of steps, if they differ."""
        # Of a loss.
        self._board = board
        self._lookout = None if board is None else Lookout(group, board)
        self._gathering: Gathering | None = None
        self._session = _sessions.get(group, 0)
        self._scout = Scout(group)
        self._sightings: Gathering | None = None
        """Which ranks had seen the server again at the end of the last step."""

    def _needs_peers(self, bucket: Bucket) -> bool:
        """Whether a bucket, or part of it, goes through the process group also while the server is there."""
        if bucket.foreign:
            return True
        layout = bucket.layout
        uncompressed = self.number < self._options.warmup or not layout.kept or bool(layout.aside)
        return uncompressed and self._options.uncompressed == "process-group"

    def _is_timed(self) -> bool:
        """Whether this step's calls are timed, and so made one by one."""
        return self._adaptive is not None and self._adaptive.times(self.number)

    def room(self, bucket: Bucket) -> int:
        """How many buckets may be under way when this one begins, itself among them."""
        agreement = self.agreement
        alone = (
            # Ranks agree on a plan, and what an aborted backward pass has left is cleared away.
            bucket.index == 0
            # Collectives of the process group: by then all ranks must know whether they have lost the server.
            or agreement.fallback_active
            or agreement.lost
            or bucket.plain
            or self._needs_peers(bucket)
            or self._is_timed()
            # Each is given to training as soon as all ranks have it.
            or bucket.refines
            or self._compressor(bucket).must_be_alone(bucket)
        )
        return 1 if alone else self._options.in_flight

    def begin(self, passage: Passage) -> None:
        """Sends a bucket on its way."""
        bucket = passage.bucket
        if bucket.buffer.device.type == "cuda":
            # A thread begins with the first GPU, whichever this process has.
            torch.cuda.set_device(bucket.buffer.device)
        if self._lookout is not None and not self.agreement.fallback_active:
            self._lookout.progress()
        if bucket.index == 0:
            # A backward pass may have ended half-way.
            self._held.clear()
            self._begin_step()
        self._held.append(passage)
        self._buckets.append(bucket)
        if bucket.refines:
            bucket.buffer.zero_()
        elif self._refining is not None and self.number >= self._options.warmup:
            bucket.width = self._refining.width(bucket)
        route = Route.PEERS if bucket.plain else self.agreement.route(bucket.index, self._needs_peers(bucket))
        if route is Route.COMPARE:
            # A rank that lacks the last answer of the step before waits for one of us to say that there was one.
            route = self.agreement.route_compared(self._peers.any(self.agreement.lost, meanwhile=self.idle))
            if route is Route.HOLD and self.error is None:
                self.error = errors.SilentError("another rank has lost the parameter server")
        if route is Route.PEERS or (route is Route.THC and bucket.foreign):
            passage.began = time.perf_counter()
            self._through_peers(bucket)
            passage.landed = time.perf_counter()
        elif route is Route.THC:
            if self._adaptive is not None:
                self._adaptive.place(bucket.layout)
                if bucket.index == 0:
                    self._adaptive.begin_step(self.number)
            passage.compressor = self._carrier = self._compressor(bucket)
            passage.fetched = passage.compressor.fetch(bucket)
            passage.began = time.perf_counter()
            # The sequencer itself works on a bucket that nothing comes after: that saves copies and waking other threads.
            wait = (bucket.is_last or self._options.in_flight == 1 or self._is_timed()) and not passage.compressor.queues
            passage.flight = passage.compressor.submit(bucket, passage.fetched, self.number, wait)
            passage.over = wait
        elif route is Route.HOLD and not bucket.foreign:
            lost = self.error if isinstance(self.error, LOST) else errors.GivenUpError("another rank has lost the parameter server")
            self._carrier = self._compressor(bucket)
            found = self._carrier.stand_in(bucket, lost)
            if found is not None:
                passage.compressor = self._carrier
                passage.fetched, passage.flight = found

    def end(self, passage: Passage) -> None:
        """What comes of a bucket that has been on its way."""
        bucket, error = passage.bucket, passage.error
        if self._lookout is not None and not self.agreement.fallback_active:
            self._lookout.progress()
        if isinstance(error, LOST) and self.pace is not None:
            self.pace.miss(bucket, error)
        elif isinstance(error, LOST) and self._options.fallback:
            self.error = error
            self.agreement.lose()
        elif error is not None:
            if isinstance(error, errors.MismatchError) and self._adaptive is not None:
                error.args = (f"{error}; with adapt, also if ranks have different plans: load checkpoints of one step on all",)
            raise error
        if not passage.finite:
            self._nonfinite = True
        if passage.landed:
            self._note(passage)
        passage.has_ended = True
        if bucket.is_last and not bucket.plain and not self._options.fallback and self._scales() is not None and not self._end_call():
            # With a fall-back ranks compare their scales when they agree on the step's end.
            raise self.error or errors.SessionError("the parameter server is lost")
        if bucket.is_last and not bucket.plain and self.pace is not None and not self.agreement.fallback_active:
            try:
                self.pace.end_step(self._nonfinite)
            except LOST as error:
                self.pace.lose(error)
        if bucket.plain:
            # Complete on all ranks or on none.
            kept = 0 if self._options.nonfinite == "zero" else bucket.index + 1
        else:
            kept = self.agreement.complete(bucket.index)
        if bucket.is_last:
            # When training goes on the step is over.
            kept = min(kept, bucket.index)
        if bucket.refines and not bucket.is_last and not self.agreement.lost:
            kept = self._confirm()
        apart = None if self._carrier is None else self._carrier.first_apart()
        while self._held and self._held[0].bucket.index < (kept if apart is None else min(kept, apart)):
            self._held.pop(0).release()
        if bucket.is_last:
            self._gather_shares()
            self._end_step(bucket)

    def _gather_shares(self) -> None:
        """Completes all buckets of a step."""
        try:
            if self._carrier is not None:
                self._carrier.gather()
        except LOST as error:
            if not self._options.fallback:
                raise
            self.error = error
            self.agreement.lose()

    def _note(self, passage: Passage) -> None:
        """When a bucket was on its way."""
        bucket, span = passage.bucket, (passage.began, passage.landed)
        self.clock.note_travel(*span)
        if self._adaptive is not None and not bucket.refines:
            self._adaptive.note_travel(bucket.layout, *span)
        if self._refining is not None:
            self._refining.deadlines.note_carriage(4.0 * bucket.layout.length * self._refining.share(bucket), span)
            if bucket.refines and not passage.finite:
                bucket.buffer.zero_()

    def _confirm(self) -> int:
        """Makes sure that all ranks have what is complete here. Returns the first bucket that some rank may still lack."""
        assert self._refining is not None
        began = time.perf_counter()
        if not self._empty_call():
            self.agreement.lose()
            return self.agreement.kept
        self._refining.deadlines.note_confirmation(time.perf_counter() - began)
        return self.agreement.confirm()

    def fail(self, passage: Passage, error: BaseException) -> None:
        """DDP shall hear of anything that goes wrong here."""
        if self._lookout is not None:
            self._lookout.rest()
        self.error = error
        passage.has_ended = True
        held, self._held = self._held, []
        for waiting in held:
            if waiting.has_ended:
                waiting.release(error)
            else:
                # Its buffer is still being written.
                waiting.doomed = error
        if passage not in held:
            passage.release(error)
        self._begin_step()

    def is_skipped(self) -> bool:
        """The same, between steps, when all has been looked at."""
        unlooked, self._unlooked = self._unlooked, []
        self.skipped = self.skipped or not all(map(is_finite, unlooked))
        return self.skipped

    def _begin_step(self) -> None:
        self.agreement.begin_step()
        self._unlooked = []
        self._buckets.clear()
        self._nonfinite = False

    def _agree(self) -> None:
        """Does what has to be done before a step is over."""
        agreement = self.agreement
        while agreement.wish is not Wish.NOTHING:
            if agreement.wish is Wish.END:
                agreement.end_step(self._end_call())
            elif agreement.wish is Wish.GATHER:
                rows = self._gather(agreement.row)
                if rows is None:
                    agreement.complete_elsewhere()
                else:
                    agreement.compare_rows(rows)
            else:
                self._repeat()

    def _conclude(self) -> None:
        """Ends a step: all ranks have the same of it."""
        self.agreement.finish()
        try:
            self._agree()
        except RuntimeError as error:
            if self.agreement.lost:
                raise errors.SessionError(f"{self.error}; and the process group fails, too: {error}") from error
            raise

    def _end_step(self, last: Bucket) -> None:
        refines, was_lost = last.refines, self.agreement.fallback_active
        if last.plain:
            self.agreement.pass_step()
        else:
            self._conclude()
        if self._lookout is not None:
            self._lookout.rest()
        apart, self._apart = self._apart, None
        if apart is not None:
            told = ", ".join(f"{number} on rank {rank}" for rank, number in enumerate(apart))
            raise errors.ConfigError(
                f"ranks count different steps, modulo 65536: {told}. Each rank saves and loads its own checkpoint of the hook, and all of the "
                "same step: call load_state_dict on all ranks"
            )
        if not refines:
            self._end_backward()
        if was_lost:
            self._look_for_server()
        held, self._held = self._held, []
        for passage in held:
            passage.release()
        if not refines and self._refining is not None and not was_lost and not self.agreement.fallback_active:
            self._refine(self._refining)

    def _end_backward(self) -> None:
        if self._nonfinite and self._options.nonfinite == "zero":
            for passage in self._held:
                with passage.bucket.on_stream():
                    passage.bucket.buffer.zero_()
        self.skipped, self._nonfinite = self._nonfinite, False
        if self._adaptive is not None:
            self._adaptive.end_step()
        self.number += 1
        if (row := self.clock.end_step()) is not None:
            self._group.training.step(row)
        if self._refining is not None:
            self._prepare(self._refining)

    def _prepare(self, refining: Refining) -> None:
        """Tells training what will be refined, before it goes on."""
        self._further: list[Bucket] = []
        if self.agreement.fallback_active or self.agreement.lost or self.skipped or self.number <= self._options.warmup:
            # A rank that has not heard what the others decided makes no further call, so theirs fail, and all agree on none.
            refining.pause()
        else:
            self._further = refining.begin(self._buckets)

    def _refine(self, refining: Refining) -> None:
        """The step that follows each backward pass as long as the server is there, of calls that refine its means."""
        further, self._further = self._further, []
        if further:
            self._put_next([Passage(self, bucket) for bucket in further])
            return
        self._begin_step()
        self.agreement.pause()
        if self.agreement.lost:
            self._conclude()

    def _empty_call(self) -> bool:
        """A call of one packet each way. Whether there was an answer."""
        try:
            self._group.allreduce(torch.zeros(1).numpy())
        except LOST as error:
            self.error = error
            return False
        return True

    def _end_call(self) -> bool:
        """The call that ends a step. Whether there was an answer."""
        if not self._last_call.tells or (self._buckets and self._buckets[0].refines):
            return self._empty_call()
        try:
            self._apart = self._last_call.make(self.number, self._buckets)
        except LOST as error:
            self.error = error
            return False
        return True

    def _through_peers(self, bucket: Bucket) -> None:
        on_gpu = bucket.ready is not None
        if bucket.mean is not None:
            # A rank that lacks the last answer of the step before waits for one of us to say that there was one.
            bucket.mean(self.idle if self._board is not None and bucket.plain else None)
        else:
            if on_gpu:
                bucket.ready.synchronize()
            self._peers.mean(bucket.buffer)
        if on_gpu:
            torch.cuda.current_stream(bucket.buffer.device).synchronize()
        if bucket.plain and not self.looks:
            self._unlooked.append(bucket.buffer)
        elif not is_finite(bucket.buffer):
            self._nonfinite = True

    def _repeat(self) -> None:
        """Averages through the process group what some rank lacks of this step."""
        for passage in self._held:
            if passage.bucket.index >= self.agreement.first:
                passage.bucket.restore()
                # What refines is left out on all ranks.
                if not passage.bucket.refines:
                    self._through_peers(passage.bucket)
        step = self.number
        self.agreement.finish_repetition()
        self._scout.begin()
        if self._peers.rank == 0:
            log.warning(
                "the parameter server is lost (%s): from step %d on, gradients go uncompressed through the "
                "process group",
                self.error,
                step,
            )

    def _gather(self, row: list[int]) -> list[list[int]] | None:
        """All ranks' rows; nothing if some rank turns out to have completed the step. A rank's may be that of a step that it left
        that way."""
        if self._gathering is None:
            self._gathering = self._peers.begin_gather(row)
        pause = 0.001
        while self._board is not None and row[0] >= 0 and not self._gathering.is_complete():
            if self._board.ask(row[0]):
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        rows, self._gathering = self._gathering.numbers(), None
        return rows

    def idle(self) -> None:
        """Answers a rank that has lost the server, if there is one."""
        if self._board is not None and not self.agreement.fallback_active:
            self._board.tell(self.agreement.steps)

    def _look_for_server(self) -> None:
        """At the end of a step without the server, after which all ranks are at the same place: takes it back once all have seen it. What they
        have seen travels during the next step, so this waits for nobody."""
        sightings, self._sightings = self._sightings, None
        if sightings is not None and self.agreement.all_tell(sightings.numbers()):
            if self.resume():
                if self._peers.rank == 0:
                    log.warning("the parameter server is back: from step %d on, gradients go through it again", self.number)
                return
            # It answers, and yet not all could join.
            self._scout.begin()
        self._sightings = self._peers.begin_gather(self.agreement.join_row(self._scout.sees_server))

    def _join(self) -> bool:
        """Joins anew, unless another hook of this group has led all ranks into another session than this hook's."""
        if _sessions.get(self._group, 0) == self._session:
            try:
                self._group.rejoin()
            except errors.ThcError as error:
                self.error = error
                return False
        if self._group.workers != self._peers.size:
            self.error = errors.ChangedError(f"the job has {self._group.workers} workers now, and there are {self._peers.size} ranks")
            return False
        return True

    def resume(self) -> bool:
        """Joins anew; whether all ranks have, and so go on with the server."""
        joined, works = self._join(), None
        while works is None:
            rows = self._gather(self.agreement.join_row(joined))
            works = None if rows is None else self.agreement.finish_rejoining(rows)
        if works:
            self._session = _sessions[self._group] = max(_sessions.get(self._group, 0), self._session + 1)
            self._scout.end()
            # All ranks have made it; what it says is old.
            self._sightings = None
            if self._board is not None:
                self._board.begin_anew()
            if self.pace is not None:
                self.pace.begin_anew()
            if self._adaptive is not None:
                self._adaptive.restart(self.number)
            if (scales := self._scales()) is not None:
                # A rank may have seen a mean that others have not.
                scales.reset()
            if self._refining is not None:
                self._refining.restart()
            self.error = None
        return works

    def keep_pace(self, pace: Pace) -> None:
        """From now on a step may go without its mean: ranks agree when they meet."""
        self.pace, self._options = pace, replace(self._options, fallback=False)
        self.agreement = Agreement(fallback=False, depth=self._options.in_flight, holds_all=self._options.nonfinite == "zero")

    def meet(self, step: int, sees_server: bool) -> None:
        """All ranks are between two steps, and alike from now on: after this step, and with the server if all have seen it."""
        self.number = self.agreement.steps = step
        assert self.pace is not None
        self.pace.begin_anew()
        if sees_server and self.resume():
            return
        self.agreement.fallback_active = True
        self._scout.begin()
        if self._peers.rank == 0:
            log.warning("the parameter server is lost: from step %d on, gradients go uncompressed through the process group", step)
