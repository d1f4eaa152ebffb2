"""The communication hook: what happens to a bucket of gradients."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.adapt.options import Adapt
from thc.torch.adapt.adaptive import Adaptive
from thc.torch.ddp.comparing import Comparing, Comparison
from thc.torch.ddp.buckets import Buckets, check_one_device
from thc.torch.ddp.delivery import Delivery, Verdict
from thc.torch.ddp.passes import Passes
from thc.torch.engine.bucket import Arrival, Bucket
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import falls_back, scope_of
from thc.torch.loops.optimizer_step import replace_step
from thc.torch.engine.options import Options, check_shares, feeds_back
from thc.torch.ranks.alike import compare_options
from thc.torch.ranks.lone import LoneGroup
from thc.torch.ranks.peers import Peers
from thc.torch.adapt.plan import Plan
from thc.torch.names import named_parameters
from thc.torch.hosts.rails import RailGroup

__all__ = ["Hook", "check_options", "hook"]


class Hook(Adapter):
    """A communication hook of DDP. ``ddp.register_comm_hook(hook.state, hook.fn)`` registers it; :func:`thc.torch.wrap`
    does so itself."""

    def __init__(
        self, group: BaseGroup, model: torch.nn.Module | None, process_group: Any, options: Options
    ) -> None:
        _check(group, model, process_group, options)
        compare_options({each.name: getattr(options, each.name) for each in dataclasses.fields(options)}, process_group)
        self.peers = peers = Peers(process_group)
        """Process groups of this hook's own."""
        self._comparing = None
        if options.only_if_faster:
            self._comparing = Comparing(peers.gathering_apart(), options.only_if_faster, peers.rank)
        self._plain = False
        """Whether the backward pass under way goes through the process group although the server is there."""
        self._buckets = Buckets(model, options, f"hook{scope_of(group)}")
        self._closed = False
        self.owns_group = False
        """Whether the group is this hook's alone."""
        self.compares = False
        """Whether ranks compare their parameters now and then."""
        self.begun = 0
        """Backward passes whose last bucket has come."""
        self._passes, self._verdict = Passes(model), Verdict()
        super().__init__(Engine(group, options, peers))
        self.adaptive: Adaptive | None = None
        """With ``adapt``: its threshold, the times of this rank's warm-up, the seconds that it took."""
        module: Any = getattr(model, "module", model)
        if options.adapt is not None:
            sizes = {name: p.numel() for name, p in named_parameters(module).items() if p.requires_grad}
            raw = [name for name, size in sizes.items() if not self._buckets.compresses(name, size)]
            self.adaptive = Adaptive.create(options.adapt, group, peers, sizes, raw, options.warmup)
            self.engine.parts.append(self.adaptive)

    @property
    def options(self) -> Options:
        """What the hook was made with."""
        return self.engine.options

    @property
    def steps(self) -> int:
        """Backward passes that have been averaged."""
        return self.engine.steps.number

    @property
    def skipped(self) -> bool:
        """Whether the last step's gradients were not finite on some rank; the same on all ranks. To be asked before gradients are zeroed."""
        return self.engine.steps.is_skipped()

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
        index, skips = self._passes.number(bucket), self._passes.skips
        if index == 0:
            self._verdict.begin()
        delivery = Delivery(bucket.buffer(), self._verdict, bucket.is_last(), self._end_pass if skips and index == 0 else None)
        try:
            if skips and not delivery.in_backward:
                raise errors.ConfigError("skip_all_reduce_unused_params and DDP.join(): nothing tells where a step ends: leave one of them out")
            if self._passes.is_finalized_by_hand:
                raise errors.ConfigError(
                    "require_manual_backward_finalization: the backward pass ends before its gradients are averaged, and an error of theirs would "
                    "be lost; leave it out"
                )
            if bucket.buffer().is_cuda and torch.cuda.is_current_stream_capturing():
                raise errors.ConfigError("a CUDA graph is being captured: what it replays would average nothing; capture the passes without this hook")
            if self._closed:
                raise errors.ClosedError("this model's hook has been closed: wrap a new DistributedDataParallel")
            self._start(bucket, index, delivery)
        except Exception as error:
            # Raised from here it would leave DDP half-way, for good.
            delivery.set_result(error)
        return delivery.future

    def _start(self, given: Any, index: int, delivery: Delivery) -> None:
        engine = self.engine
        if index == 0:
            self._plain = isinstance(self.group, LoneGroup) or self._comparing is not None and not self.fallback_active and self._comparing.next()
        keeps = engine.fallback.is_enabled and not self.fallback_active and not self._plain
        is_last = given.is_last() and not self._passes.skips
        bucket = self._buckets.make(given, index, is_last, delivery, keeps, any(part.one_call for part in engine.parts))
        self._put(bucket)

    def _end_pass(self) -> None:
        """The backward pass has computed all gradients, and DDP may have left out the last bucket: ends the step."""
        arrival = Arrival()
        try:
            self._put(self._buckets.end(self._passes.end(), arrival))
            arrival.wait()
        except Exception as error:
            # DDP has work of its own to do first.
            self._verdict.fail(error)

    def _put(self, bucket: Bucket) -> None:
        engine = self.engine
        bucket.plain = self._plain
        engine.clock.note_production()
        self.begun += int(bucket.is_last)
        if self._plain or self.fallback_active:
            # On DDP's own process group and thread, where its collectives and those of the model, such as SyncBatchNorm's, are in one
            # order on all ranks: two communicators of NCCL may wait for each other for good. All ranks have agreed on it before the last
            # backward pass was over, or compare alike; where a step follows the backward pass that may be after it.
            bucket.mean = self.peers.begin_mean(bucket.buffer, self.peers.given)
        engine.put(bucket)

    # What users call, between steps.

    def adapt_anew(self) -> None:
        """With ``adapt``: all defaults from the next step on, and another warm-up, as after a change of the network. All ranks must
        call this between the same steps."""
        adaptive = self.adaptive
        if adaptive is None:
            raise errors.ConfigError("this hook does not adapt: make it with adapt=True")
        self.engine.ask(lambda: adaptive.restart(self.steps))

    def close(self) -> None:
        """Averages nothing any more: leaves the job, unless the group was given or others may share it, and lets later hooks have what this one
        used to talk to the other ranks. A backward pass of the model then raises :exc:`thc.ClosedError`. All ranks call it; again, it does nothing."""
        if self._closed:
            return
        self._closed = True
        self.engine.ask(lambda: None)
        self.engine.fallback.departures.leave()
        self.peers.own.close()
        if self.owns_group:
            self.group.close()

    def guard(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Makes ``optimizer.step`` do nothing after a backward pass whose gradients were not finite on some
        rank. Returns the optimizer. Not needed with a ``GradScaler``, which does the same."""
        self.engine.steps.looks = True
        unguarded = replace_step(optimizer, lambda *args, **kwargs: None if self.skipped else unguarded(*args, **kwargs))
        return optimizer

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        # A DistributedDataParallel that is copied lists its hook, which averages nothing of the copy's.
        return self

    def __reduce__(self) -> Any:
        # One that is pickled does so, too, and what it becomes has none.
        return type(None), ()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: steps, error feedback by parameter, and with ``adapt`` the choices. For what writes one checkpoint
        of all ranks, as ``torch.distributed.checkpoint`` does, there is :class:`thc.torch.Checkpoint`."""
        return self.engine.own_state()

    def blank_feedback(self) -> dict[str, torch.Tensor]:
        """Error feedback as a checkpoint has it, of zeros; nothing where a rank has shares of parameters."""
        return self._buckets.blank_feedback() if self.options.feedback and self.engine.carrier.shares is None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, also if buckets are others now. All ranks call it between the same steps, each
        with its own; if one does not, the next ``backward`` raises :exc:`thc.ConfigError` on all, in a job that loses nothing. What it has of
        parameters that the model does not have is left out, with a warning."""
        state = self._buckets.without_strangers(state)
        self.engine.load_state_dict(state)

    @property
    def is_alike(self) -> bool:
        """Whether :meth:`state_dict` is the same on all ranks."""
        return self.engine.is_alike

    def reset_feedback(self) -> None:
        """Forgets all error feedback, as for a new training run."""
        self.engine.reset_feedback()


def _check(group: BaseGroup, model: torch.nn.Module | None, process_group: Any, options: Options) -> None:
    """Refuses what does not go together."""
    ranks = dist.get_world_size(process_group)
    if ranks != group.workers:
        raise errors.ConfigError(
            f"the process group has {ranks} ranks, but the THC job {group.workers} workers: "
            "they must be the same processes"
        )
    for option, wanted in (("exclude", options.exclude), ("adapt", options.adapt), ("check_accuracy", options.check_accuracy)):
        if wanted and model is None:
            raise errors.ConfigError(f"{option} names parameters: give the hook the model, too")
    if isinstance(group, RailGroup):
        check_shares(options.adapt, options.uncompressed, options.only_if_faster)
    if getattr(model, "skip_all_reduce_unused_params", False) and options.adapt is not None:
        raise errors.ConfigError("adapt needs all buckets in every step: leave skip_all_reduce_unused_params out")
    if options.adapt is not None and options.uncompressed != "raw":
        raise errors.ConfigError('adapt sends what is not compressed in the same call: leave uncompressed="process-group" out')
    check_one_device({str(p.device) for p in model.parameters() if p.requires_grad} if model is not None else set())


def check_options(ddp: torch.nn.Module, given: Mapping[str, Any]) -> None:
    """Refuses options of a hook for which there is no group yet. What depends on the group's job is left to :func:`hook`."""
    unknown = sorted(given.keys() - inspect.signature(hook).parameters.keys())
    if unknown:
        raise TypeError(f"wrap() got unknown options: {', '.join(unknown)}")
    options = _read(given, feedback=given.get("feedback") is not False, fallback=given.get("fallback") is not False)
    Buckets(ddp, options, "")
    check_one_device({str(p.device) for p in ddp.parameters() if p.requires_grad})


def _read(given: Mapping[str, Any], **noise: Any) -> Options:
    """Options as they are used."""
    exclude = given.get("exclude", ())
    kept = {**given, "exclude": (exclude,) if isinstance(exclude, str) else tuple(exclude), "adapt": Adapt.read(given.get("adapt"))}
    return Options(**{**kept, **noise})


def thc_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """The function that DDP calls."""
    return state.start(bucket)


def hook(
    group: BaseGroup,
    model: torch.nn.Module | None = None,
    process_group: Any = None,
    *,
    warmup: int = 0,
    min_size: int = 0,
    exclude: Sequence[str] = (),
    uncompressed: str = "raw",
    feedback: bool | None = None,
    nonfinite: str = "nan",
    fallback: bool | None = None,
    adapt: Adapt | Mapping[str, Any] | bool | None = None,
    device: str = "auto",
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
    - ``feedback``: whether what compression loses is added to the next step's gradients, as in the THC paper. By default it is with ``adapt``,
      which chooses fewer bits, and where packets or ranks may be missing from a mean.
    - ``nonfinite``: what DDP gets if some rank's gradient has a NaN or an infinity: ``"nan"``, NaNs in that bucket on
      all ranks, as without the hook and as a ``GradScaler`` needs it; or ``"zero"``, zeros everywhere. Either way
      :attr:`Hook.skipped` tells, and :meth:`Hook.guard` makes an optimizer skip such steps.
    - ``fallback``: whether training goes on through the process group when the parameter server is lost, as it does by default where
      there is a server. It costs one packet each way per step.
    - ``adapt``: ``True``, or a :class:`thc.torch.Adapt` (or its options as a dictionary): whether and how each tensor is compressed
      is chosen while training, on all ranks alike. :attr:`Hook.plan` shows it.
    - ``device``: where gradients are compressed; the bits are the same. ``"auto"``: those on a GPU there, by kernels in Triton, if
      Triton is installed; otherwise on the CPU, by the library. Or ``"cpu"``, ``"triton"``. Ranks may differ. :attr:`Hook.device` and
      :meth:`thc.Group.stats` tell what it came to, and why.
    - ``check_accuracy``: every so many steps one bucket in turn is averaged exactly, too, which costs that step what the bucket takes
      as 32-bit integers. The NMSE of each parameter's mean is in :attr:`Hook.accuracy`, :attr:`thc.Stats.nmse` and metrics; over 0.1
      there is a warning that names the parameter. Off by default.
    - ``only_if_faster``: after the first steps twelve take turns with compression and without, through the process group. If those without are
      shorter, gradients travel without from then on, as if there were no hook. A number: compared again every so many steps.
      :attr:`Hook.comparison` tells. Off by default, for which way a step goes follows from times, and so results do.
    """
    given = {
        "warmup": warmup,
        "min_size": min_size,
        "exclude": exclude,
        "uncompressed": uncompressed,
        "nonfinite": nonfinite,
        "adapt": adapt,
        "device": device,
        "check_accuracy": check_accuracy,
        "only_if_faster": only_if_faster,
    }
    feeds = feeds_back(group, feedback, bool(adapt))
    return Hook(group, model, process_group, _read(given, feedback=feeds, fallback=falls_back(group, fallback)))
