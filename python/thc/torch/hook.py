"""The communication hook: what happens to a bucket of gradients."""

from __future__ import annotations

import fnmatch
import functools
import logging
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.group import Group
from thc.torch.adapt_options import Adapt
from thc.torch.adaptive import Adaptive
from thc.torch.board import Board
from thc.torch.bucket import Bucket
from thc.torch.clock import Clock
from thc.torch.carrier import Carrier
from thc.torch.comparing import Comparing, Comparison
from thc.torch.compressor import Compressor
from thc.torch.delivery import Delivery, Verdict
from thc.torch.device.choice import Choice
from thc.torch.joining import Gather, scope_of
from thc.torch.layout import Layout, Segment
from thc.torch.options import Options, noise_of
from thc.torch.pace import Pace
from thc.torch.passage import Passage
from thc.torch.peers import Peers
from thc.torch.pipeline import pipeline_of
from thc.torch.plan import Plan
from thc.torch.rail_compressor import RailCompressor
from thc.torch.rails import RailGroup
from thc.torch.refining import Refine, Refining, check_alike
from thc.torch.steps import Steps
from thc.torch.store import shared_store
from thc.torch.updates import Updates
from thc.torch.way import falls_back

__all__ = ["Hook", "check_shares", "hook"]

log = logging.getLogger("thc.torch")

PATIENCE = 10.0
"""Seconds that the board may take to answer."""


class Hook:
    """A communication hook of DDP. ``ddp.register_comm_hook(hook.state, hook.fn)`` registers it; :func:`thc.torch.wrap`
    does so itself."""

    def __init__(
        self, group: Group, model: torch.nn.Module | None, process_group: Any, options: Options
    ) -> None:
        self.group = group
        self.options = options
        ranks = dist.get_world_size(process_group)
        if ranks != group.workers:
            raise errors.ConfigError(
                f"the process group has {ranks} ranks, but the THC job {group.workers} workers: "
                "they must be the same processes"
            )
        for option, wanted in (("exclude", options.exclude), ("adapt", options.adapt), ("refine", options.refine)):
            if wanted and model is None:
                raise errors.ConfigError(f"{option} names parameters: give the hook the model, too")
        if isinstance(group, RailGroup):
            check_shares(options.adapt, options.refine, options.uncompressed, options.only_if_faster)
        _one_device({str(p.device) for p in model.parameters() if p.requires_grad} if model is not None else set())
        self.peers = Peers(process_group)
        """Process groups of this hook's own."""
        for rank, (in_flight,) in enumerate(self.peers.gather([options.in_flight])):
            if in_flight != options.in_flight:
                raise errors.ConfigError(f"in_flight is {options.in_flight}, but {in_flight} on rank {rank}: give all ranks the same")
        check_alike(options.refine, self.peers)
        self._comparing = None
        if options.only_if_faster:
            self._comparing = Comparing(self.peers.gathering_apart(), options.only_if_faster, self.peers.rank)
        self._plain = False
        """Whether the backward pass under way goes through the process group although the server is there."""
        self._pipeline = pipeline_of(group)
        self._scope = f"hook{scope_of(group)}"
        self._names = _names_of(model)
        self.compares = False
        """Whether ranks compare their parameters now and then."""
        self.begun = 0
        """Backward passes whose last bucket has come."""
        self._ddp = weakref.ref(model) if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        self._verdict = Verdict()
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._backups: dict[int, torch.Tensor] = {}
        board = Board(shared_store(self.peers.rank, Gather(process_group), PATIENCE)) if options.fallback else None
        self._adaptive = None if options.adapt is None else self._make_adaptive(options.adapt, model)
        self._carrier = Carrier(group.rail if isinstance(group, RailGroup) else group, options, self.peers, self._adaptive)
        self._of_shares: RailCompressor | None = None
        if isinstance(group, RailGroup):
            self._of_shares = RailCompressor(group, lambda: self._carrier.compressor, options.in_flight, lambda: self._steps.idle())
        self._devices: set[str] = set()
        """Where buckets have come from."""
        clock = Clock()
        self._updates = None if options.refine is None else Updates(options.refine.optimizer, getattr(model, "module", model), clock)
        self._refining = None
        if options.refine is not None and self._updates is not None:
            self._refining = Refining(options.refine, group, self._updates, self._adaptive)
        self._steps = Steps(
            group, options, self.peers, board, self._adaptive, self._compressor, clock, self._refining, self._pipeline.put_next,
            lambda: self._carrier.compressor.scales,
        )
        if board is not None:
            self._pipeline.when_idle(self._steps)

    @property
    def steps(self) -> int:
        """Backward passes that have been averaged."""
        return self._steps.number

    @property
    def fallback_active(self) -> bool:
        """Whether the parameter server has been lost and gradients go through the process group."""
        return self._steps.agreement.fallback_active

    @property
    def skipped(self) -> bool:
        """Whether the last step's gradients were not finite on some rank; the same on all ranks. To be asked before gradients are zeroed."""
        return self._steps.is_skipped()

    @property
    def error(self) -> BaseException | None:
        """Why the parameter server counts as lost, or what ended the hook's work."""
        return self._steps.error

    def _compressor(self, bucket: Bucket) -> Compressor:
        """What takes a bucket to the others."""
        compressor = self._carrier.choose(bucket)
        return compressor if self._of_shares is None else self._of_shares

    @property
    def device(self) -> Choice | None:
        """Where gradients are compressed, and why there; nothing before the first bucket."""
        return self._carrier.choice

    def _make_adaptive(self, options: Adapt, model: Any) -> Adaptive:
        if self.options.uncompressed != "raw":
            raise errors.ConfigError('adapt sends what is not compressed in the same call: leave uncompressed="process-group" out')
        module = getattr(model, "module", model)
        sizes = {name: p.numel() for name, p in module.named_parameters() if p.requires_grad}
        raw = [name for name, size in sizes.items() if not self._compresses(name, size)]
        return Adaptive.create(options, self.group, self.peers, sizes, raw, self.options.warmup)

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
    def accuracy(self) -> Mapping[str, float]:
        """With ``check_accuracy``: the NMSE of each parameter's mean when it was looked at last."""
        return types.MappingProxyType(self.group.nmse)

    @property
    def comparison(self) -> Comparison | None:
        """With ``only_if_faster``: what steps have taken, and what came of it; the same on all ranks. Nothing before it is known."""
        return None if self._comparing is None else self._comparing.last

    @property
    def refining(self) -> Refining | None:
        """With ``refine``: how the last step's buckets travelled and what of them was refined."""
        return self._refining

    def settle(self) -> None:
        """With ``refine``: makes the updates that have been put off until the next forward pass, as before parameters are looked at. What
        makes ``state_dict`` of model and optimizer does so itself."""
        if self._updates is not None:
            self._updates.settle()

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
        index, is_last, buffer = bucket.index(), bucket.is_last(), bucket.buffer()
        if index == 0:
            self._verdict.begin()
        delivery = Delivery(buffer, self._verdict, is_last)
        try:
            self._start(bucket, index, is_last, buffer, delivery)
        except Exception as error:
            # Raised from here it would leave DDP half-way, for good.
            delivery.set_result(error)
        return delivery.future

    def _start(self, bucket: Any, index: int, is_last: bool, buffer: torch.Tensor, delivery: Delivery) -> None:
        self._devices.add(str(buffer.device))
        _one_device(self._devices)
        if index == 0:
            self._plain = self._comparing is not None and not self.fallback_active and self._comparing.next()
        parameters = bucket.parameters()
        layout = self._layout(parameters, bucket.gradients(), buffer)
        copy = None
        if self.options.fallback and not self.fallback_active and not self._plain:
            if not (self._keeps_gradients and Bucket.keeps_gradients(parameters, buffer)):
                copy = self._backup(index, buffer)
        work = Bucket(index, is_last, buffer, parameters, layout, delivery, copy, plain=self._plain)
        if buffer.device.type == "cuda":
            work.ready = torch.cuda.Event()
            work.ready.record(torch.cuda.current_stream(buffer.device))
        self._steps.clock.note_production()
        work.computed = self._steps.clock.compute_time()
        self.begun += int(is_last)
        if self._plain or (self.fallback_active and self._refining is None):
            # On DDP's own process group and thread, where its collectives and those of the model, such as SyncBatchNorm's, are in one
            # order on all ranks: two communicators of NCCL may wait for each other for good. All ranks have agreed on it before the last
            # backward pass was over, or compare alike; with refine that may be after it.
            work.mean = self.peers.begin_mean(buffer, self.peers.given)
        self._pipeline.put(Passage(self._steps, work))

    @property
    def _keeps_gradients(self) -> bool:
        """Whether this rank's gradients are in the parameters' ``grad`` whenever a bucket comes. They are not where DDP looks for unused
        parameters, nor in ``DDP.join()``: a rank without inputs hands over zeros there, and its ``grad`` is that of its last step."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None:
            # A plain module does not tell how DDP treats it.
            return False
        joins = getattr(getattr(ddp, "_join_config", None), "enable", True)
        return not (ddp.find_unused_parameters or getattr(ddp, "static_graph", False) or joins)

    def _backup(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """A copy of a bucket. Its memory is kept for the next step: getting it anew costs as much as the copy."""
        if buffer.is_sparse:
            return buffer.detach().clone()
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
                # With adapt or refine, what is not compressed is a span of the same call.
                one_call = self._adaptive is not None or self._refining is not None
                exact = not self._compresses(name, length)
                rows = parameter.shape[0] if parameter.dim() == 2 else 1
                segments.append(Segment(name, offset, length, one_call or not exact, exact, rows))
                offset += length
            # DDP makes other buckets: what was for the old ones may go.
            for old in self._layouts.values():
                old.forget_staging()
            layout = self._layouts[identity] = Layout(self._scope, segments)
        return layout

    # What users call, between steps.

    def resume(self) -> bool:
        """After the parameter server was lost and is back: joins anew and goes on compressed. All ranks must
        call this between the same steps; returns, alike on all, whether it worked."""

        return bool(self._pipeline.ask(self._steps.resume))

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
        unguarded, self._steps.looks = optimizer.step, True

        @functools.wraps(unguarded)
        def step(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return None if self.skipped else unguarded(*args, **kwargs)

        # A bound method, since schedulers ask the step whose it is.
        optimizer.step = types.MethodType(step, optimizer)
        return optimizer

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        # A DistributedDataParallel that is copied lists its hook, which averages nothing of the copy's.
        return self

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: steps, error feedback by parameter, and with ``adapt`` the choices."""

        def save() -> dict[str, Any]:
            state = {"steps": self.steps, "feedback": self._carrier.compressor.feedback.save()}
            if self._carrier.compressor.scales is not None:
                state["scales"] = self._carrier.compressor.scales.state_dict()
            return state if self._adaptive is None else state | {"adapt": self._adaptive.state_dict()}

        found: dict[str, Any] = self._pipeline.ask(save)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, also if buckets are others now. All ranks call it between the same steps, each
        with its own; if one does not, the next ``backward`` raises :exc:`thc.ConfigError` on all, in a job that loses nothing."""

        def load() -> None:
            if self._adaptive is not None and "adapt" in state:
                self._adaptive.load_state_dict(state["adapt"], int(state["steps"]))
            self._carrier.compressor.feedback.load(state["feedback"])
            if self._carrier.compressor.scales is not None:
                self._carrier.compressor.scales.load_state_dict(state.get("scales"))
            # What ranks agree on when the server is lost counts on by itself: they have done the same steps together, whatever they load.
            self._steps.number = int(state["steps"])

        self._pipeline.ask(load)

    @property
    def is_alike(self) -> bool:
        """Whether :meth:`state_dict` is the same on all ranks."""
        return not self.options.feedback and self._of_shares is None

    def reset_feedback(self) -> None:
        """Forgets all error feedback, as for a new training run."""
        self._pipeline.ask(self._carrier.compressor.feedback.reset)

    # What :mod:`thc.torch.keep_up` calls, between steps.

    def keep_pace(self, pace: Pace) -> None:
        """From now on a step may go without its mean, as ``pace`` notes."""
        self.options = replace(self.options, fallback=False)
        self._pipeline.ask(lambda: self._steps.keep_pace(pace))

    def tell(self, numbers: list[int]) -> list[list[int]]:
        """Tells all ranks, which all call it, some numbers; what all have told."""
        found: list[list[int]] = self._pipeline.ask(lambda: self.peers.gather(numbers))
        return found

    def meet(self, step: int, sees_server: bool, behind: bool) -> None:
        """All ranks go on alike after this step, in a new session if all have seen the server. What compression has lost of a rank that
        was ``behind`` is of other parameters, and forgotten."""

        def work() -> None:
            self._steps.meet(step, sees_server)
            if behind:
                self._carrier.compressor.feedback.reset()

        self._pipeline.ask(work)


def check_shares(adapt: Any, refine: Any, uncompressed: str, only_if_faster: bool | int) -> None:
    """Refuses options that need whole parameters, where each rank of a host has a share of the host's mean."""
    through_peers = 'uncompressed="process-group"', uncompressed == "process-group"
    for option, wrong in (("adapt", adapt), ("refine", refine), through_peers, ("only_if_faster", only_if_faster)):
        if wrong:
            raise errors.ConfigError(f"rails and {option}: a rank averages shares of parameters, not whole ones: leave one of them out")


def _one_device(devices: set[str]) -> None:
    """Gradients are copied or compressed on streams of one device."""
    if len(devices) > 1:
        raise errors.ConfigError(
            f"the model's parameters are on {len(devices)} devices ({', '.join(sorted(devices))}), and a hook takes gradients of one: have a rank for each "
            "device, or average with thc.torch.overlap, which takes gradients from anywhere"
        )


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
    feedback: bool | None = None,
    scales: bool | float | None = None,
    nonfinite: str = "nan",
    fallback: bool | None = None,
    adapt: Adapt | Mapping[str, Any] | bool | None = None,
    in_flight: int = 3,
    device: str = "auto",
    refine: Refine | Mapping[str, Any] | torch.optim.Optimizer | None = None,
    check_accuracy: int | None = None,
    only_if_faster: bool | int = False,
) -> Hook:
    """A communication hook for ``DistributedDataParallel``; all ranks must make it, in the same order.

    ``model`` is the DDP object or the module in it: with it, parameters have their names in
    ``exclude`` and in checkpoints. ``process_group`` is the one that DDP has. Options:

    - ``warmup``: so many first steps are averaged without compression.
    - ``min_size``: parameters of fewer coordinates are not compressed.
    - ``exclude``: nor are those with these names, or names that match, like ``"*.bias"``.
    - ``uncompressed``: how what is not compressed travels: ``"raw"``, through the parameter server as
      32-bit integers, or ``"process-group"``.
    - ``scales``: whether each coordinate is divided by its usual size before it is compressed, and the mean multiplied by that:
      then the error of compression is in proportion to each coordinate, as Adam needs it, parameters do not mix in a block, the first
      step travels uncompressed, and rows of embeddings without gradient stay exactly zero. It is so by default where all ranks are sure to have
      the same means (reliable, no quorum), and without ``adapt`` and ``refine``. 0.5, 0.75 (as ``True``) and 1.0 are the power of sizes.
    - ``feedback``: whether what compression loses is added to the next step's gradients, as in the THC paper. By default where there are
      no scales; ``feedback=True`` is the paper's way.
    - ``nonfinite``: what DDP gets if some rank's gradient has a NaN or an infinity: ``"nan"``, NaNs in that bucket on
      all ranks, as without the hook and as a ``GradScaler`` needs it; or ``"zero"``, zeros everywhere. Either way
      :attr:`Hook.skipped` tells, and :meth:`Hook.guard` makes an optimizer skip such steps.
    - ``fallback``: whether training goes on through the process group when the parameter server is lost, as it does by default where
      there is a server. It costs one packet each way per step.
    - ``adapt``: ``True``, or a :class:`thc.torch.Adapt` (or its options as a dictionary): whether and how each tensor is compressed
      is chosen while training, on all ranks alike. :attr:`Hook.plan` shows it.
    - ``device``: where gradients are compressed; the bits are the same. ``"auto"``: those on a GPU there, by kernels in Triton, if
      Triton is installed, and those on another device that is not the CPU by torch's plain operations; otherwise on the host, by
      the library. Or ``"host"``, ``"triton"``, ``"torch"``. Ranks may differ. :attr:`Hook.device` and :meth:`thc.Group.stats` tell
      what it came to, and why.
    - ``refine``: the model's optimizer, or a :class:`thc.torch.Refine`: gradients travel in two stages. What the first one's compression
      has lost follows in further calls while the next forward pass has not come to the layers in question, whose update waits for
      it. How wide each bucket travels at first, and what is refined, follows from when buckets are produced and needed, and
      from the bandwidth. Needs ``feedback`` and ``fallback``.
    - ``check_accuracy``: every so many steps one bucket in turn is averaged exactly, too, which costs that step what the bucket takes
      as 32-bit integers. The NMSE of each parameter's mean is in :attr:`Hook.accuracy`, :attr:`thc.Stats.nmse` and metrics; over 0.1
      there is a warning that names the parameter. Off by default.
    - ``only_if_faster``: after the first steps twelve take turns with compression and without, through the process group. If those without are
      shorter, gradients travel without from then on, as if there were no hook. A number: compared again every so many steps.
      :attr:`Hook.comparison` tells. Off by default, for which way a step goes follows from times, and so results do.
    - ``in_flight``: so many buckets are under way at once: while one is copied, another is compressed and a third on the network.
    """
    options = Options(
        warmup=warmup,
        min_size=min_size,
        exclude=(exclude,) if isinstance(exclude, str) else tuple(exclude),
        uncompressed=uncompressed,
        **noise_of(group, feedback, scales, bool(adapt or refine)),
        nonfinite=nonfinite,
        fallback=falls_back(group, fallback, refine is not None),
        adapt=Adapt.read(adapt),
        in_flight=in_flight,
        device=device,
        refine=Refine.read(refine),
        check_accuracy=check_accuracy,
        only_if_faster=only_if_faster,
    )
    return Hook(group, model, process_group, options)


def _names_of(model: torch.nn.Module | None) -> dict[int, str]:
    """Parameters' names by identity."""
    if model is None:
        return {}
    module = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    return {id(parameter): name for name, parameter in module.named_parameters()}
