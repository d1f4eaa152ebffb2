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
from thc.torch.agreement import Agreement, Route, Wish
from thc.torch.board import Board
from thc.torch.bucket import Bucket
from thc.torch.compressor import Compressor, Flight, HostCompressor
from thc.torch.device.choice import Choice, choose
from thc.torch.device.codec import DeviceCodec
from thc.torch.device.compressor import DeviceCompressor
from thc.torch.gather import Gather
from thc.torch.layout import Layout, Segment
from thc.torch.options import Options
from thc.torch.peers import Gathering, Peers
from thc.torch.pipeline import pipeline_of
from thc.torch.plan import Plan
from thc.torch.store import shared_store

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

PATIENCE = 10.0
"""Seconds that the board may take to answer."""

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
        self.error: BaseException | None = None
        """Why the parameter server counts as lost, or what ended the hook's work."""
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
        for rank, (theirs,) in enumerate(self._peers.gather([options.in_flight])):
            if theirs != options.in_flight:
                raise errors.ConfigError(f"in_flight is {options.in_flight}, but {theirs} on rank {rank}: give all ranks the same")
        self._pipeline = pipeline_of(group)
        self._agreement = Agreement(
            fallback=options.fallback, depth=options.in_flight, holds_all=options.nonfinite == "zero"
        )
        self._scope = f"hook{next(_scopes.setdefault(group, itertools.count()))}"
        self._names, unused = _names_of(model)
        self._grads_tell = model is not None and not unused
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._backups: dict[int, torch.Tensor] = {}
        # Of the step under way; only the lane touches these.
        self._held: list[_Passage] = []
        self._nonfinite = False
        # Of a loss.
        self._board = Board(shared_store(self._peers.rank, Gather(process_group), PATIENCE)) if options.fallback else None
        self._gathering: Gathering | None = None
        if self._board is not None:
            self._pipeline.when_idle(self)
        self._adaptive = None if options.adapt is None else self._adapting(options.adapt, model)
        self._chosen: HostCompressor = HostCompressor(group, options, self._peers, self._adaptive)
        self._choice: Choice | None = None

    @property
    def steps(self) -> int:
        """Backward passes that have been averaged."""
        return self._agreement.steps

    @property
    def fallback_active(self) -> bool:
        """Whether the parameter server has been lost and gradients go through the process group."""
        return self._agreement.fallback_active

    def _compressor(self, bucket: Bucket) -> Compressor:
        """What takes a bucket to the others. The first bucket decides for all: DDP has a model on one device."""
        if self._choice is None:
            device = bucket.buffer.device
            made = choose(self.group, device, self.options)
            if made.kernels is not None:
                codec = DeviceCodec(self.group, device, made.kernels)
                feedback = self._chosen.feedback.save()
                self._chosen = DeviceCompressor(self.group, self.options, self._peers, codec)
                self._chosen.feedback.load(feedback)
            self._choice = made
            self.group.compresses_on = (made.where, made.why)
            log.info("gradients on %s are compressed by %s: %s", device, made.where, made.why)
        return self._chosen

    @property
    def device(self) -> Choice | None:
        """Where gradients are compressed, and why there; nothing before the first bucket."""
        return self._choice

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
        self._pipeline.put(_Passage(self, work))
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

    # The rest happens on the lane, in the order of buckets, but for what a passage waits for.

    def _needs_peers(self, bucket: Bucket) -> bool:
        """Whether a bucket, or part of it, goes through the process group also while the server is there."""
        if bucket.buffer.dtype == torch.float64:
            return True
        layout = bucket.layout
        uncompressed = self.steps < self.options.warmup or not layout.kept or bool(layout.aside)
        return uncompressed and self.options.uncompressed == "process-group"

    def _timed(self) -> bool:
        """Whether this step's calls are timed, and so made one by one."""
        return self._adaptive is not None and self._adaptive.times(self.steps)

    def _room(self, bucket: Bucket) -> int:
        """How many buckets may be under way when this one begins, itself among them."""
        agreement = self._agreement
        alone = (
            # Ranks agree on a plan, and what an aborted backward pass has left is cleared away.
            bucket.index == 0
            # Collectives of the process group: by then all ranks must know whether they have lost the server.
            or agreement.fallback_active
            or agreement.lost
            or self._needs_peers(bucket)
            or self._timed()
            or self._compressor(bucket).must_be_alone(bucket)
        )
        return 1 if alone else self.options.in_flight

    def _begin(self, passage: _Passage) -> None:
        """Sends a bucket on its way."""
        bucket = passage.bucket
        if bucket.index == 0:
            # A backward pass may have ended half-way.
            self._held.clear()
            self._begin_step()
        self._held.append(passage)
        route = self._agreement.route(bucket.index, self._needs_peers(bucket))
        if route is Route.COMPARE:
            # A rank that lacks the last answer of the step before waits for one of us to say that there was one.
            route = self._agreement.compared(self._peers.any(self._agreement.lost, meanwhile=self.idle))
            if route is Route.HOLD and self.error is None:
                self.error = errors.SilentError("another rank has lost the parameter server")
        if route is Route.PEERS or (route is Route.THC and bucket.buffer.dtype == torch.float64):
            self._through_peers(bucket)
        elif route is Route.THC:
            if self._adaptive is not None:
                self._adaptive.place(bucket.layout.segments)
                if bucket.index == 0:
                    self._adaptive.begin_step(self.steps)
            passage.compressor = self._compressor(bucket)
            passage.fetched = passage.compressor.fetch(bucket)
            # The lane itself works on a bucket that nothing comes after: that saves copies and waking other threads.
            wait = bucket.is_last or self.options.in_flight == 1 or self._timed()
            passage.flight = passage.compressor.submit(bucket, passage.fetched, self.steps, wait)
            passage.over = wait

    def _end(self, passage: _Passage) -> None:
        """What comes of a bucket that has been on its way."""
        bucket, error = passage.bucket, passage.error
        if isinstance(error, LOST) and self.options.fallback:
            self.error = error
            self._agreement.lose()
        elif error is not None:
            if isinstance(error, errors.MismatchError) and self._adaptive is not None:
                error.args = (f"{error}; with adapt, also if ranks have different plans: load checkpoints of one step on all",)
            raise error
        if not passage.finite:
            self._nonfinite = True
        passage.has_ended = True
        kept = self._agreement.complete(bucket.index)
        while self._held and self._held[0].bucket.index < kept:
            self._held.pop(0).release()
        if bucket.is_last:
            self._end_step()

    def _fail(self, passage: _Passage, error: BaseException) -> None:
        """DDP shall hear of anything that goes wrong here."""
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

    def _begin_step(self) -> None:
        self._agreement.begin_step()
        self._nonfinite = False

    def _agree(self) -> None:
        """Does what has to be done before a step is over."""
        agreement = self._agreement
        while agreement.wish is not Wish.NOTHING:
            if agreement.wish is Wish.END:
                agreement.ended(self._end_call())
            elif agreement.wish is Wish.GATHER:
                rows = self._gather(agreement.row)
                if rows is None:
                    agreement.completed_elsewhere()
                else:
                    agreement.gathered(rows)
            else:
                self._repeat()

    def _end_step(self) -> None:
        self._agreement.finish()
        try:
            self._agree()
        except RuntimeError as error:
            if self._agreement.lost:
                raise RuntimeError(f"{self.error}; and the process group fails, too: {error}") from error
            raise
        if self._nonfinite and self.options.nonfinite == "zero":
            for passage in self._held:
                with passage.bucket.on_stream():
                    passage.bucket.buffer.zero_()
        self.skipped, self._nonfinite = self._nonfinite, False
        held, self._held = self._held, []
        for passage in held:
            passage.release()

    def _end_call(self) -> bool:
        """The call that ends a step: zeros cost one packet each way. Whether there was an answer."""
        try:
            self.group.allreduce(torch.zeros(1).numpy())
        except LOST as error:
            self.error = error
            return False
        return True

    def _through_peers(self, bucket: Bucket) -> None:
        if bucket.ready is not None:
            with torch.cuda.device(bucket.buffer.device):
                bucket.ready.synchronize()
                self._peers.mean(bucket.buffer)
                torch.cuda.current_stream().synchronize()
        else:
            self._peers.mean(bucket.buffer)
        if not bool(torch.isfinite(bucket.buffer.sum())):
            self._nonfinite = True

    def _repeat(self) -> None:
        """Averages through the process group what some rank lacks of this step."""
        for passage in self._held:
            if passage.bucket.index >= self._agreement.first:
                passage.bucket.restore()
                self._through_peers(passage.bucket)
        step = self.steps
        self._agreement.repeated()
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
        if self._board is not None and not self.fallback_active:
            self._board.tell(self.steps)

    # What users call, between steps.

    def resume(self) -> bool:
        """After the parameter server was lost and is back: joins anew and goes on compressed. All ranks must
        call this between the same steps; returns, alike on all, whether it worked."""

        def join() -> bool:
            try:
                self.group.rejoin()
                joined = True
            except errors.ThcError as error:
                self.error, joined = error, False
            works = None
            while works is None:
                rows = self._gather(self._agreement.join_row(joined))
                works = None if rows is None else self._agreement.rejoined(rows)
            if works:
                if self._board is not None:
                    self._board.begin_anew()
                if self._adaptive is not None:
                    self._adaptive.restart(self.steps)
                self.error = None
            return works

        return bool(self._pipeline.ask(join))

    def adapt_anew(self) -> None:
        """With ``adapt``: all defaults from the next step on, and another warm-up, as after a change of the network. All ranks must
        call this between the same steps."""
        adaptive = self._adaptive
        if adaptive is None:
            raise errors.ConfigError("this hook does not adapt: make it with adapt=True")
        self._pipeline.ask(lambda: adaptive.restart(self.steps))

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
            state = {"steps": self.steps, "feedback": self._chosen.feedback.save()}
            return state if self._adaptive is None else state | {"adapt": self._adaptive.state_dict()}

        found: dict[str, Any] = self._pipeline.ask(save)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, also if buckets are others now."""

        def load() -> None:
            if self._adaptive is not None and "adapt" in state:
                self._adaptive.load_state_dict(state["adapt"], int(state["steps"]))
            self._chosen.feedback.load(state["feedback"])
            self._agreement.steps = int(state["steps"])

        self._pipeline.ask(load)

    def reset_feedback(self) -> None:
        """Forgets all error feedback, as for a new training run."""
        self._pipeline.ask(self._chosen.feedback.reset)


class _Passage:
    """A bucket on its way through the pipeline."""

    def __init__(self, hook: Hook, bucket: Bucket) -> None:
        self._hook, self.bucket = hook, bucket
        self.compressor: Compressor | None = None
        self.fetched: Any = None
        self.flight: Flight | None = None
        self.over = False
        """Whether its calls were over when they had been submitted."""
        self.finite = True
        self.error: BaseException | None = None
        self.has_ended = False
        self.doomed: BaseException | None = None
        """Why it fails although nothing was wrong with it."""

    def room(self) -> int:
        return self._hook._room(self.bucket)

    def begin(self) -> bool:
        try:
            self._hook._begin(self)
        except BaseException as error:
            self.error = error
            return False
        if self.over:
            self.wait()
        return self.flight is not None and not self.over

    def wait(self) -> None:
        assert self.compressor is not None and self.flight is not None
        try:
            self.finite = self.compressor.store(self.bucket, self.fetched, self.flight)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.fetched = self.flight = None
        if self.doomed is not None:
            self.release(self.doomed)
            return
        try:
            self._hook._end(self)
        except BaseException as error:
            self._hook._fail(self, error)

    def release(self, error: BaseException | None = None) -> None:
        """Lets DDP go on."""
        self.bucket.release(error)


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
    in_flight: int = 3,
    device: str = "auto",
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
    - ``device``: where gradients are compressed; the bits are the same. ``"auto"``: those on a GPU there, by kernels in Triton, if
      Triton is installed, and those on another device that is not the CPU by torch's plain operations; otherwise on the host, by
      the library. Or ``"host"``, ``"triton"``, ``"torch"``. Ranks may differ. :attr:`Hook.device` and :meth:`thc.Group.stats` tell
      what it came to, and why.
    - ``in_flight``: so many buckets are under way at once: while one is copied, another is compressed and a third on the network.
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
        in_flight=in_flight,
        device=device,
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
