"""The communication hook: what happens to a bucket of gradients."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import logging
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.group import Group
from thc.torch.adaptive import Adapt, Adaptive
from thc.torch.board import Board
from thc.torch.bucket import Bucket
from thc.torch.feedback import FeedbackStore
from thc.torch.lane import lane_of
from thc.torch.layout import Layout, Segment, scatter
from thc.torch.options import Options
from thc.torch.peers import Gathering, Peers
from thc.torch.plan import Plan

__all__ = ["Hook", "hook"]

log = logging.getLogger("thc.torch")

LOST = (
    errors.SilentError,
    errors.MissingError,
    errors.LeftBehindError,
    errors.ChangedError,
    errors.NormLostError,
    errors.ReformingError,
    errors.NetworkError,
    errors.JoinError,
    errors.ClosedError,
)
"""What means that the parameter server, or the way to it, is lost."""

_scopes: weakref.WeakKeyDictionary[Group, itertools.count[int]] = weakref.WeakKeyDictionary()
"""Hooks of one group are counted, in the same order on all ranks: their keys must differ."""


class Hook:
    """A communication hook of DDP. ``ddp.register_comm_hook(hook.state, hook.fn)`` registers it; :func:`thc.torch.wrap`
    does so itself."""

    def __init__(
        self, group: Group, model: torch.nn.Module | None, process_group: Any, options: Options
    ) -> None:
        self.group = group
        self.options = options
        self.skipped = False
        """Whether the last step's gradients were not finite on some rank; the same on all ranks."""
        self.fallback_active = False
        """Whether the parameter server has been lost and gradients go through the process group."""
        self.error: BaseException | None = None
        """Why the parameter server counts as lost, or what ended the hook's work."""
        self.steps = 0
        """Backward passes that have been averaged."""
        ranks = dist.get_world_size(process_group)
        if ranks != group.workers:
            raise errors.ConfigError(
                f"the process group has {ranks} ranks, but the THC job {group.workers} workers: "
                "they must be the same processes"
            )
        for option, wanted in (("exclude", options.exclude), ("adapt", options.adapt)):
            if wanted and model is None:
                raise errors.ConfigError(f"{option} names parameters: give the hook the model, too")
        self._peers = Peers(process_group)
        self._lane = lane_of(group)
        self._feedback = FeedbackStore(group)
        self._scope = f"hook{next(_scopes.setdefault(group, itertools.count()))}"
        self._names, unused = _names_of(model)
        self._grads_tell = model is not None and not unused
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._backups: dict[int, torch.Tensor] = {}
        self._lost: BaseException | None = None
        """Why the ranks must agree at the end of this step, if they must."""
        # Of the step under way; only the lane touches these.
        self._held: list[Bucket] = []
        self._done = 0
        self._nonfinite = False
        # Of a loss.
        self._board = Board(self._peers) if options.fallback else None
        self._gathering: Gathering | None = None
        self._all_know = False
        if self._board is not None:
            self._lane.when_idle(self)
        self._side_stream: Any = None
        self._adaptive = None if options.adapt is None else self._adapting(options.adapt, model)

    def _adapting(self, options: Adapt, model: Any) -> Adaptive:
        if self.options.uncompressed != "raw":
            raise errors.ConfigError('adapt sends what is not compressed in the same call: leave uncompressed="process-group" out')
        module = getattr(model, "module", model)
        sizes = {name: p.numel() for name, p in module.named_parameters() if p.requires_grad}
        raw = [name for name, size in sizes.items() if not self._compresses(name, size)]
        made = Adaptive(options, self.group, sizes, raw, self._peers.rank, self.options.warmup)
        prints = [print_ for print_, in self._peers.gather([made.fingerprint()])]
        other = next((rank for rank, each in enumerate(prints) if each != prints[0]), None)
        if other is not None:
            raise errors.ConfigError(
                f"adapt: rank {other} has another model, or other options, than rank 0: all ranks choose for the same parameters"
            )
        return made

    def _compresses(self, name: str, size: int) -> bool:
        """Whether the options let a parameter be compressed."""
        return size >= self.options.min_size and not any(
            fnmatch.fnmatchcase(name, pattern) for pattern in self.options.exclude
        )

    @property
    def plans(self) -> Sequence[Plan]:
        """All choices so far, with ``adapt``."""
        return () if self._adaptive is None else tuple(self._adaptive.plans)

    @property
    def plan(self) -> Plan | None:
        """What each layer gets now; printed, a table. Nothing before the first choice, and without ``adapt``."""
        return self.plans[-1] if self.plans else None

    @property
    def adaptive(self) -> Adaptive | None:
        """With ``adapt``: its threshold, the times of this rank's warm-up, the seconds that it took."""
        return self._adaptive

    @property
    def state(self) -> Hook:
        """The first argument of ``register_comm_hook``."""
        return self

    @property
    def fn(self) -> Callable[[Hook, Any], torch.futures.Future[torch.Tensor]]:
        """The second argument of ``register_comm_hook``."""
        return thc_hook

    # What DDP calls, on a thread of autograd.

    def start(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Takes a bucket and returns a future of its mean."""
        buffer = bucket.buffer()
        parameters = bucket.parameters()
        layout = self._layout(parameters, bucket.gradients(), buffer)
        copy = None
        if self.options.fallback and not self.fallback_active:
            if not (self._grads_tell and Bucket.keeps_gradients(parameters, buffer)):
                copy = self._backup(bucket.index(), buffer)
        on_gpu = buffer.device.type == "cuda"
        promise: torch.futures.Future[Any] = (
            torch.futures.Future(devices=[buffer.device]) if on_gpu else torch.futures.Future()
        )
        work = Bucket(
            bucket.index(), bucket.is_last(), buffer, parameters, layout, promise, copy
        )
        if on_gpu:
            work.ready = torch.cuda.Event()
            work.ready.record(torch.cuda.current_stream(buffer.device))

        def deliver(fulfilled: torch.futures.Future[Any]) -> torch.Tensor:
            error = fulfilled.value()
            if error is not None:
                raise error
            return buffer

        result = promise.then(deliver)
        self._lane.put(functools.partial(self._handle, work))
        return result

    def _backup(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """A copy of a bucket. Its memory is kept for the next step: getting it anew costs as much as the copy."""
        found = self._backups.get(index)
        if found is None or found.shape != buffer.shape or found.dtype != buffer.dtype:
            found = self._backups[index] = torch.empty_like(buffer)
        return found.copy_(buffer.detach())

    def _layout(
        self, parameters: list[torch.nn.Parameter], gradients: list[torch.Tensor], buffer: torch.Tensor
    ) -> Layout:
        identity = tuple(id(parameter) for parameter in parameters)
        layout = self._layouts.get(identity)
        if layout is None:
            segments = []
            offset = 0
            for parameter, gradient in zip(parameters, gradients):
                name = self._names.setdefault(id(parameter), f"p{len(self._names)}")
                length = gradient.numel()
                # With adapt, what is not compressed is a span of the same call.
                compressed = self._adaptive is not None or self._compresses(name, length)
                segments.append(Segment(name, offset, length, compressed))
                offset += length
            # DDP makes other buckets: what was for the old ones may go.
            for old in self._layouts.values():
                old.forget_staging()
            layout = self._layouts[identity] = Layout(self._scope, segments)
        return layout

    # The rest happens on the lane, bucket after bucket.

    def _handle(self, bucket: Bucket) -> None:
        try:
            self._reduce(bucket)
        except BaseException as error:  # DDP shall hear of anything that goes wrong here
            self.error = error
            held, self._held = self._held, []
            for waiting in held:
                waiting.release(error)
            if bucket not in held:
                bucket.release(error)
            self._begin_step()

    def _begin_step(self) -> None:
        self._done = 0
        self._nonfinite = False

    def _reduce(self, bucket: Bucket) -> None:
        if bucket.index == 0 and self._held:
            # A backward pass that ended half-way.
            self._held.clear()
            self._begin_step()
        if self.fallback_active:
            self._through_peers(bucket)
        elif self._lost is not None:
            # Those who have not lost it would wait for this rank there.
            if self._needs_peers(bucket):
                self._nobody_has_lost()
        else:
            try:
                if self._adaptive is not None:
                    self._adaptive.place(bucket.layout.segments)
                    if bucket.index == 0:
                        self._adaptive.begin_step(self.steps)
                self._through_thc(bucket)
            except LOST as error:
                self._lose(error)
            except errors.MismatchError as error:
                if self._adaptive is not None:
                    error.args = (f"{error}; with adapt, also if ranks have different plans: load checkpoints of one step on all",)
                raise
        self._held.append(bucket)
        if self._lost is None:
            self._done += 1
            # What all ranks are known to have: they begin a call only when the one before is complete.
            keep = len(self._held) if self.options.nonfinite == "zero" else 1
            while len(self._held) > keep:
                self._held.pop(0).release()
        if bucket.is_last:
            self._end_step()

    def _lose(self, error: BaseException) -> None:
        if not self.options.fallback:
            raise error
        self.error = self._lost = error

    def _end_step(self) -> None:
        if self.options.fallback and not self.fallback_active and self._lost is None:
            # Gradients of zero cost one packet each way. A rank that gets this answer knows that all ranks
            # have all results of the step, and no rank needs anything of it any more.
            try:
                self.group.allreduce(torch.zeros(1).numpy())
            except LOST as error:
                self._lose(error)
        if self._lost is not None:
            self._agree()
        if self._nonfinite and self.options.nonfinite == "zero":
            for bucket in self._held:
                bucket.buffer.zero_()
        self.skipped = self._nonfinite
        self.steps += 1
        self._begin_step()
        held, self._held = self._held, []
        for bucket in held:
            bucket.release()

    # Through THC.

    def _through_thc(self, bucket: Bucket) -> None:
        if bucket.buffer.dtype == torch.float64:
            if not self._nobody_has_lost():
                raise errors.SilentError("another rank has lost the parameter server")
            self._through_peers(bucket)
            return
        direct = bucket.buffer.device.type == "cpu" and bucket.buffer.dtype == torch.float32
        data = bucket.buffer if direct else self._fetch(bucket)
        try:
            self._average(bucket.layout, data)
        except (errors.NonFiniteError, errors.NormError):
            self._nonfinite = True
            data.fill_(float("nan"))
        if not direct:
            self._store(bucket, data)

    def _average(self, layout: Layout, data: torch.Tensor) -> None:
        """A bucket of f32 on the CPU to its mean."""
        adaptive = self._adaptive
        if self.steps < self.options.warmup or not layout.kept:
            self._uncompressed(data)
            return
        if adaptive is None:
            self._compressed(layout, data)
            return
        if adaptive.measures(self.steps):
            adaptive.look(layout.segments, data)
        key = self._key(layout)
        spans = adaptive.spans(layout, self.steps)
        raw = spans == [(layout.length, "raw")]
        computed = self.group.stats().compression if adaptive.warming else 0.0
        started = time.perf_counter()
        self.group.allreduce(data.numpy(), feedback=key, plan=spans)
        seconds = time.perf_counter() - started
        if adaptive.warming:
            computed = min(seconds, self.group.stats().compression - computed)
        adaptive.took(self.steps, layout.length, raw, seconds, computed)

    def _compressed(self, layout: Layout, data: torch.Tensor) -> None:
        """The same for a bucket of which something is compressed."""
        key = self._key(layout)
        if not layout.aside:
            self.group.allreduce(data.numpy(), feedback=key)
            return
        aside = torch.cat([data[place] for place in layout.aside])
        self._uncompressed(aside)
        if layout.gathers:
            kept = torch.cat([data[place] for place in layout.kept])
            self.group.allreduce(kept.numpy(), feedback=key)
            scatter(kept, data, layout.kept)
        else:
            for place in layout.aside:
                data[place] = 0.0
            self.group.allreduce(data.numpy(), feedback=key)
        scatter(aside, data, layout.aside)

    def _key(self, layout: Layout) -> int | None:
        """Under which the bucket's error feedback is kept."""
        if not self.options.feedback:
            return None
        self._feedback.settle(layout)
        return layout.key

    def _uncompressed(self, data: torch.Tensor) -> None:
        if self.options.uncompressed == "raw":
            self.group.allreduce(data.numpy(), mode="raw")
            return
        if not self._nobody_has_lost():
            raise errors.SilentError("another rank has lost the parameter server")
        self._peers.mean(data)
        if not bool(torch.isfinite(data.sum())):
            self._nonfinite = True

    def _needs_peers(self, bucket: Bucket) -> bool:
        """Whether a bucket, or part of it, goes through the process group also while the server is there."""
        layout = bucket.layout
        uncompressed = self.steps < self.options.warmup or not layout.kept or bool(layout.aside)
        return bucket.buffer.dtype == torch.float64 or (
            uncompressed and self.options.uncompressed == "process-group"
        )

    def _nobody_has_lost(self) -> bool:
        """Whether no rank has lost the server in this step, before a call of the process group that all must make. When one
        has, all know, and none makes such a call again before they agree."""
        if self.options.fallback and not self._all_know:
            self._all_know = self._peers.any(self._lost is not None)
        return not self._all_know

    def _fetch(self, bucket: Bucket) -> torch.Tensor:
        """The bucket as f32 on the CPU."""
        staging = bucket.layout.staging(bucket.buffer.device)
        if bucket.ready is None:
            staging.copy_(bucket.buffer)
            return staging
        if self._side_stream is None:
            self._side_stream = torch.cuda.Stream(bucket.buffer.device)
        with torch.cuda.stream(self._side_stream):
            self._side_stream.wait_event(bucket.ready)
            staging.copy_(bucket.buffer, non_blocking=True)
            bucket.buffer.record_stream(self._side_stream)
        self._side_stream.synchronize()
        return staging

    def _store(self, bucket: Bucket, data: torch.Tensor) -> None:
        if bucket.ready is None:
            bucket.buffer.copy_(data)
            return
        with torch.cuda.stream(self._side_stream):
            bucket.buffer.copy_(data, non_blocking=True)
        # The staging memory is used again, by the next step at the earliest.
        self._side_stream.synchronize()

    # Through the process group.

    def _through_peers(self, bucket: Bucket) -> None:
        if bucket.ready is not None:
            bucket.ready.synchronize()
        self._peers.mean(bucket.buffer)
        if bucket.ready is not None:
            torch.cuda.current_stream(bucket.buffer.device).synchronize()
        if not bool(torch.isfinite(bucket.buffer.sum())):
            self._nonfinite = True

    def _agree(self) -> None:
        """All ranks find out which buckets some rank lacks, and average those through the process group.

        A rank comes here once a call has failed and its backward pass is over. One that had the last answer of
        this step has gone on; that tells that nobody lacks anything of this one. It fails in the next step and comes
        from there, unless it waits for us before: then it answers on the board.
        """
        while True:
            table = self._gather(self.steps, self._done)
            if table is None or self.steps < max(step for step, _ in table):
                if self._done < self._held_from + len(self._held):
                    raise errors.LeftBehindError(
                        "the parameter server was lost, and the other ranks have gone on by quorum: "
                        "without this rank's gradients they cannot be joined again"
                    )
                return
            newest = self.steps
            if all(step == newest for step, _ in table):
                break
        first = min(done for _, done in table)
        if first < self._held_from:
            raise errors.LeftBehindError("the parameter server was lost, and a rank lacks what others discarded")
        for bucket in self._held:
            if bucket.index >= first:
                bucket.restore()
                self._through_peers(bucket)
        self.fallback_active = True
        self._lost = None
        self._all_know = False
        if self._peers.rank == 0:
            log.warning(
                "the parameter server is lost (%s): from step %d on, gradients go uncompressed through the "
                "process group",
                self.error,
                self.steps,
            )

    def _gather(self, step: int, number: int) -> list[list[int]] | None:
        """Both numbers of each rank; nothing if some rank turns out to have completed the step. A rank's may be those
        of a step that it left that way: then all have to gather again."""
        if self._gathering is None:
            self._gathering = self._peers.begin_gather([step, number])
        pause = 0.001
        while self._board is not None and step >= 0 and not self._gathering.is_complete():
            if self._board.ask(step):
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        numbers, self._gathering = self._gathering.numbers(), None
        return numbers

    def idle(self) -> None:
        """Answers a rank that has lost the server, if there is one."""
        if self._board is not None and not self.fallback_active:
            self._board.tell(self.steps)

    @property
    def _held_from(self) -> int:
        """The first bucket of the step that has not been handed to DDP yet."""
        return self._held[0].index if self._held else 0

    # What users call, between steps.

    def resume(self) -> bool:
        """After the parameter server was lost and is back: joins anew and goes on compressed. All ranks must
        call this between the same steps; returns, alike on all, whether it worked."""

        def join() -> bool:
            try:
                self.group.rejoin()
                joined = 1
            except errors.ThcError as error:
                self.error = error
                joined = 0
            table = self._gather(-1, joined)
            while table is None or any(step >= 0 for step, _ in table):
                table = self._gather(-1, joined)
            works = all(flag == 1 for _, flag in table)
            self.fallback_active = not works
            self._lost = None
            self._all_know = False
            if works and self._board is not None:
                self._board.begin_anew()
            if works and self._adaptive is not None:
                self._adaptive.restart(self.steps)
            if works:
                self.error = None
            return works

        return bool(self._lane.ask(join))

    def adapt_anew(self) -> None:
        """With ``adapt``: all defaults from the next step on, and another warm-up, as after a change of the network. All ranks must
        call this between the same steps."""
        adaptive = self._adaptive
        if adaptive is None:
            raise errors.ConfigError("this hook does not adapt: make it with adapt=True")
        self._lane.ask(lambda: adaptive.restart(self.steps))

    def guard(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Makes ``optimizer.step`` do nothing after a backward pass whose gradients were not finite on some
        rank. Returns the optimizer. Not needed with a ``GradScaler``, which does the same."""
        unguarded = optimizer.step

        @functools.wraps(unguarded)
        def step(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return None if self.skipped else unguarded(*args, **kwargs)

        # A bound method, since schedulers ask the step whose it is.
        optimizer.step = types.MethodType(step, optimizer)
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: steps, error feedback by parameter, and with ``adapt`` the choices."""

        def save() -> dict[str, Any]:
            state = {"steps": self.steps, "feedback": self._feedback.save()}
            return state if self._adaptive is None else state | {"adapt": self._adaptive.state_dict()}

        found: dict[str, Any] = self._lane.ask(save)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, also if buckets are others now."""

        def load() -> None:
            if self._adaptive is not None and "adapt" in state:
                self._adaptive.load_state_dict(state["adapt"], int(state["steps"]))
            self._feedback.load(state["feedback"])
            self.steps = int(state["steps"])

        self._lane.ask(load)

    def reset_feedback(self) -> None:
        """Forgets all error feedback, as for a new training run."""
        self._lane.ask(self._feedback.reset)


def thc_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """The function that DDP calls."""
    return state.start(bucket)


def hook(
    group: Group,
    model: torch.nn.Module | None = None,
    process_group: Any = None,
    *,
    warmup: int = 0,
    min_size: int = 0,
    exclude: Sequence[str] = (),
    uncompressed: str = "raw",
    feedback: bool = True,
    nonfinite: str = "nan",
    fallback: bool = True,
    adapt: Adapt | Mapping[str, Any] | bool | None = None,
) -> Hook:
    """A communication hook for ``DistributedDataParallel``; all ranks must make it, in the same order.

    ``model`` is the DDP object or the module in it: with it, parameters have their names in
    ``exclude`` and in checkpoints. ``process_group`` is the one that DDP has. Options:

    - ``warmup``: so many first steps are averaged without compression.
    - ``min_size``: parameters of fewer coordinates are not compressed.
    - ``exclude``: nor are those with these names, or names that match, like ``"*.bias"``.
    - ``uncompressed``: how what is not compressed travels: ``"raw"``, through the parameter server as
      32-bit integers, or ``"process-group"``.
    - ``feedback``: whether what compression loses is added to the next step's gradients.
    - ``nonfinite``: what DDP gets if some rank's gradient has a NaN or an infinity: ``"nan"``, NaNs in that bucket on
      all ranks, as without the hook and as a ``GradScaler`` needs it; or ``"zero"``, zeros everywhere. Either way
      :attr:`Hook.skipped` tells, and :meth:`Hook.guard` makes an optimizer skip such steps.
    - ``fallback``: whether training goes on through the process group when the parameter server is lost. It costs
      one packet each way per step.
    - ``adapt``: ``True``, or a :class:`thc.torch.Adapt` (or its options as a dictionary): whether and how each tensor is compressed
      is chosen while training, on all ranks alike. :attr:`Hook.plan` shows it.
    """
    options = Options(
        warmup=warmup,
        min_size=min_size,
        exclude=(exclude,) if isinstance(exclude, str) else tuple(exclude),
        uncompressed=uncompressed,
        feedback=feedback,
        nonfinite=nonfinite,
        fallback=fallback,
        adapt=Adapt.read(adapt),
    )
    return Hook(group, model, process_group, options)


def _names_of(model: torch.nn.Module | None) -> tuple[dict[int, str], bool]:
    """Parameters' names by identity, and whether some may be unused in a step."""
    if model is None:
        return {}, True
    unused = False
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        unused = bool(model.find_unused_parameters or getattr(model, "static_graph", False))
        model = model.module
    else:
        # A plain module does not tell how DDP treats it.
        unused = True
    return {id(parameter): name for name, parameter in model.named_parameters()}, unused
