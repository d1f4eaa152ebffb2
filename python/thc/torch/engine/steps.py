"""An engine's steps, as the sequencer sees them: buckets begin and end, ranks agree, a step is over."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from thc import errors
from thc.torch.compression.compressor import Compressor, Task
from thc.torch.compression.selector import CompressorSelector
from thc.torch.engine.agreement import LOST, Route, Wish
from thc.torch.engine.bucket import Bucket, is_finite
from thc.torch.engine.clock import Clock
from thc.torch.engine.fallback import Fallback
from thc.torch.options import IN_FLIGHT, Options
from thc.torch.parts.adaptive import Adaptive
from thc.torch.ranks.gathering import exchange_halves, tells


log = logging.getLogger("thc.torch")


class Steps:
    """Does what the agreement wishes. All methods are the sequencer's."""

    def __init__(self, options: Options, fallback: Fallback, selector: CompressorSelector, adaptive: Adaptive | None, clock: Clock | None) -> None:
        """The end of a step is one of ``clock``, too."""
        self._options, self.fallback, self.selector, self.adaptive, self._clock = options, fallback, selector, adaptive, clock
        self._group, self._peers, self.agreement = fallback.group, fallback.peers, fallback.agreement
        self.compressor: Compressor | None = None
        """What takes buckets to the other ranks, once it is known."""
        self.number = 0
        """Backward passes that are over."""
        self._tells = tells(self._group)
        """Whether the call that ends a step compares the ranks' counts of steps; an empty call ends it otherwise."""
        self._is_fresh = True
        """Whether no bucket has begun yet. A state may have been loaded, on some ranks only."""
        self.skipped = False
        """Whether the last step's gradients were not finite on some rank; the same on all ranks."""
        self._held: list[Bucket] = []
        """Buckets of the step under way that training does not have yet."""
        self._nonfinite = False

    # The way of a bucket.

    def begin(self, bucket: Bucket) -> Route:
        """A bucket begins. Returns where it goes."""
        self.fallback.note_progress()
        if bucket.index == 0:
            # A backward pass may have ended half-way.
            self._held.clear()
            self._begin_step()
        self._held.append(bucket)
        route = self.agreement.route(bucket.index, bucket.foreign)
        if route is Route.COMPARE:
            # A rank that lacks the last answer of the step before waits for one of us to say that there was one.
            route = self.agreement.route_compared(self._peers.any(self.agreement.lost, meanwhile=self.fallback.idle))
            if route is Route.HOLD and self.fallback.error is None:
                self.fallback.error = errors.SilentError("another rank has lost the parameter server")
        is_fresh, self._is_fresh = self._is_fresh, False
        if is_fresh and route is Route.THC and self._tells and (self._options.warmup or self.adaptive):
            # What the first bucket's call is depends on the step, and calls of different forms say less clearly what is wrong.
            try:
                _check_counts(self._gather_counts())
            except LOST as error:
                self.fallback.lose(error)
                return Route.HOLD
        return route

    def average_by_peers(self, bucket: Bucket) -> None:
        """Averages a bucket through the process group."""
        if bucket.mean is not None:
            bucket.mean()
        else:
            if bucket.ready is not None:
                bucket.ready.synchronize()
            self._peers.mean(bucket.buffer)
        if bucket.ready is not None:
            torch.cuda.current_stream(bucket.buffer.device).synchronize()
        if not is_finite(bucket.buffer):
            self._nonfinite = True

    def end(self, bucket: Bucket, error: BaseException | None, finite: bool) -> None:
        """A bucket has been on its way, or went nowhere."""
        self.fallback.note_progress()
        if error is not None and isinstance(error, LOST):
            # It will not come to the process group either.
            self.fallback.departures.check(self.number)
        if not finite:
            self._nonfinite = True
        if self.adaptive is not None and not self.agreement.fallback_active:
            self.adaptive.end(bucket, error)
        if error is not None:
            if not isinstance(error, LOST):
                raise error
            self.fallback.lose(error)
        bucket.has_ended = True
        self._release(bucket)
        if bucket.is_last:
            try:
                if self.compressor is not None:
                    self.compressor.gather()
            except LOST as lost:
                self.fallback.lose(lost)
            self._end_step()

    def _release(self, bucket: Bucket) -> None:
        """Lets training have the buckets that all ranks have, now that this one is complete."""
        kept = self.agreement.complete(bucket.index)
        if bucket.is_last:
            # When training goes on the step is over.
            kept = min(kept, bucket.index)
        apart = None if self.compressor is None else self.compressor.first_apart()
        while self._held and self._held[0].index < (kept if apart is None else min(kept, apart)):
            self._held.pop(0).release()

    def fail(self, bucket: Bucket, error: BaseException) -> None:
        """Something went wrong with a bucket that nothing can be done about: training gets the error. Must not raise."""
        self.fallback.rest()
        self._peers.own.spoil()
        self.fallback.error = error
        bucket.has_ended = True
        held, self._held = self._held, []
        for waiting in held:
            if waiting.has_ended:
                waiting.release(error)
            else:
                # Its buffer is still being written.
                waiting.doomed = error
        bucket.release(error)
        self._begin_step()

    # The end of a step.

    def _begin_step(self) -> None:
        self.agreement.begin_step()
        self._nonfinite = False

    def _end_step(self) -> None:
        """Ends a step with its last bucket: all ranks have the same of it."""
        was_lost = self.agreement.fallback_active
        self.agreement.finish()
        try:
            counts = self._agree()
        except RuntimeError as error:
            if self.agreement.lost:
                raise errors.SessionError(f"{self.fallback.error}; and the process group fails, too: {error}") from error
            raise
        self.fallback.rest()
        _check_counts(counts)
        self.skipped, self._nonfinite = self._nonfinite, False
        self.number += 1
        if self._clock is not None:
            self._clock.end_step()
        if was_lost:
            self._look_for_server()
        held, self._held = self._held, []
        for bucket in held:
            bucket.release()

    def _agree(self) -> list[int] | None:
        """Does what has to be done before a step is over. Returns all ranks' counts of steps, if the call that ends the step has brought them."""
        agreement, counts = self.agreement, None
        while agreement.wish is not Wish.NOTHING:
            if agreement.wish is Wish.END:
                try:
                    counts = self._gather_counts()
                except LOST as error:
                    self.fallback.error = error
                    agreement.end_step(False)
                else:
                    agreement.end_step(True)
            elif agreement.wish is Wish.GATHER:
                rows = self.fallback.gather(agreement.row)
                if rows is None:
                    agreement.complete_elsewhere()
                else:
                    agreement.compare_rows(rows)
            else:
                self._repeat()
        return counts

    def _gather_counts(self) -> list[int]:
        """The call that ends a step, of one packet each way: all ranks' counts of steps, modulo 65536, where the job can tell them."""
        if not self._tells:
            self._group.allreduce(torch.zeros(1).numpy(), mode="raw")
            return []
        return [count for (count,) in exchange_halves(self._group, self._peers.rank, [self.number & 0xFFFF])]

    def _repeat(self) -> None:
        """Averages through the process group what some rank lacks of this step."""
        for bucket in self._held:
            if bucket.index >= self.agreement.first:
                bucket.restore()
                self.average_by_peers(bucket)
        self.agreement.finish_repetition()
        self.fallback.server_probe.begin()
        if self._peers.rank == 0:
            log.warning(
                "the parameter server is lost (%s): from step %d on, gradients go uncompressed through the process group", self.fallback.error, self.number
            )

    # The server's return.

    def _look_for_server(self) -> None:
        """At the end of a step without the server: takes it back once all ranks have seen it."""
        if self.fallback.all_see_server():
            if self.resume():
                if self._peers.rank == 0:
                    log.warning("the parameter server is back: from step %d on, gradients go through it again", self.number)
                return
            # It answers, and yet not all could join.
            self.fallback.server_probe.begin()
        self.fallback.look_again()

    def resume(self) -> bool:
        """Joins anew; whether all ranks have, and so go on with the server."""
        works = self.fallback.rejoin()
        if works:
            if self.adaptive is not None:
                self.adaptive.restart(self.number)
            self.fallback.error = None
        return works


def _check_counts(counts: list[int] | None) -> None:
    """Raises an error if ranks count different steps."""
    if counts and len(set(counts)) > 1:
        each = ", ".join(f"{number} on rank {rank}" for rank, number in enumerate(counts))
        raise errors.ConfigError(
            f"ranks count different steps, modulo 65536: {each}. Each rank saves and loads its own checkpoint of the hook, and all of the "
            "same step: call load_state_dict on all ranks"
        )


@dataclass(eq=False, kw_only=True)
class BucketTask(Task):
    """The work of a pipeline that averages a bucket as part of a step: it goes to the compressor, which makes its calls, or through the process group."""

    steps: Steps
    is_over: bool = False
    """Whether its calls were over when they had been submitted."""
    finite: bool = True
    error: BaseException | None = None

    def room(self) -> int:
        steps, bucket = self.steps, self.bucket
        alone = (
            # Ranks agree on a plan, and what an aborted backward pass has left is cleared away.
            bucket.index == 0
            or steps.compressor is None
            # Collectives of the process group: by then all ranks must know whether they have lost the server.
            or steps.agreement.fallback_active
            or steps.agreement.lost
            or bucket.foreign
            or (steps.adaptive is not None and steps.adaptive.is_timed)
            or steps.compressor.must_be_alone(bucket)
        )
        return 1 if alone else IN_FLIGHT

    def begin(self) -> bool:
        bucket, steps = self.bucket, self.steps
        try:
            if bucket.buffer.is_cuda:
                # A thread begins with the first GPU, whichever this process has.
                torch.cuda.set_device(bucket.buffer.device)
            route = steps.begin(bucket)
            if route is Route.PEERS or (route is Route.THC and bucket.foreign):
                steps.average_by_peers(bucket)
                return False
            # Parameters of no coordinates have a bucket of their own where their type is another one.
            if bucket.foreign or bucket.buffer.numel() == 0:
                return False
            if steps.compressor is None:
                steps.compressor = steps.selector.choose(bucket)
            if route is Route.HOLD:
                lost = steps.fallback.error if isinstance(steps.fallback.error, LOST) else errors.LostError("another rank has lost the parameter server")
                return steps.compressor.stand_in(self, lost)
            alone = bucket.is_last
            if steps.adaptive is not None:
                steps.adaptive.begin(bucket, steps.number)
                alone = alone or steps.adaptive.is_timed
            # The sequencer itself works on a bucket that nothing comes after: that saves copies and waking other threads.
            self.is_over = alone and not steps.compressor.queues
            steps.compressor.submit(self, steps.number, self.is_over)
        except BaseException as error:
            self.error = error
            return False
        if self.is_over:
            self.wait()
        return not self.is_over

    def wait(self) -> None:
        assert self.steps.compressor is not None
        try:
            self.finite = self.steps.compressor.finish(self)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.data = None
        self.calls = []
        bucket = self.bucket
        if bucket.doomed is not None:
            bucket.release(bucket.doomed)
            return
        try:
            self.steps.end(bucket, self.error, self.finite)
        except BaseException as error:
            self.steps.fail(bucket, error)

    def give_up(self, error: BaseException) -> None:
        self.bucket.release(error)
