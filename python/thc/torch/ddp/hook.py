"""The communication hook: what happens to a bucket of gradients."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.ddp.buckets import Buckets, check_exclude, check_one_device
from thc.torch.ddp.future import BucketFuture, PassError
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import scope_of
from thc.torch.names import module_of, named_parameters
from thc.torch.options import Compression, Options
from thc.torch.parts.adaptive import Adaptive
from thc.torch.parts.plan import Plan
from thc.torch.ranks.peers import Peers


class Hook(Adapter):
    """What averages the gradients of a model: :func:`thc.torch.hook_of` finds it, :meth:`thc.torch.State.connect` makes it."""

    def __init__(self, group: BaseGroup, model: torch.nn.Module | None, process_group: Any, options: Options) -> None:
        self.peers = peers = Peers(process_group)
        """Process groups of this hook's own."""
        self._buckets = Buckets(model, options, f"hook{scope_of(group)}")
        self._closed = False
        self.owns_group = False
        """Whether the group is this hook's alone."""
        self.begun = 0
        """Backward passes whose last bucket has come."""
        self._pass_error = PassError()
        self._model: Any = (lambda: None) if model is None else weakref.ref(model)
        adaptive: Adaptive | None = None
        if options.adapt is not None:
            sizes = {name: p.numel() for name, p in named_parameters(module_of(model)).items() if p.requires_grad}
            raw = [name for name, size in sizes.items() if not self._buckets.compresses(name, size)]
            adaptive = Adaptive(options.adapt, group, peers.rank, sizes, raw, options.warmup)
        super().__init__(Engine(group, options, peers, adaptive))

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
        return self.engine.steps.skipped

    @property
    def plan(self) -> Plan | None:
        """What each layer gets now; printed, a table. Nothing before the first choice, and without ``adapt``."""
        return self.plans[-1] if self.plans else None

    # What DDP calls, on a thread of autograd.

    def start(self, given: Any) -> torch.futures.Future[torch.Tensor]:
        """Takes a bucket and returns a future of its mean."""
        engine, index = self.engine, int(given.index())
        if index == 0:
            self._pass_error.begin()
        future = BucketFuture(given.buffer(), self._pass_error, given.is_last())
        try:
            self._check_pass(given)
            is_lost = engine.fallback.agreement.fallback_active
            bucket = self._buckets.make(given, future, engine.fallback.is_enabled and not is_lost)
            engine.clock.produced = time.perf_counter()
            self.begun += int(bucket.is_last)
            if is_lost:
                # On DDP's own process group and thread, where its collectives and those of the model, such as SyncBatchNorm's, are in one
                # order on all ranks: two communicators of NCCL may wait for each other for good. All ranks have agreed on it before the last
                # backward pass was over.
                bucket.mean = self.peers.begin_mean(bucket.buffer, self.peers.given)
            engine.put(bucket)
        except Exception as error:
            # Raised from here it would leave DDP half-way, for good.
            future.set_result(error)
        return future.future

    def _check_pass(self, given: Any) -> None:
        """Refuses a backward pass whose gradients cannot be averaged."""
        if self._closed:
            raise errors.ClosedError("this model's hook has been closed: wrap a new DistributedDataParallel")
        if getattr(self._model(), "require_manual_backward_finalization", False):
            raise errors.ConfigError(
                "require_manual_backward_finalization: the backward pass ends before its gradients are averaged, and an error of theirs would "
                "be lost; leave it out"
            )
        if given.buffer().is_cuda and torch.cuda.is_current_stream_capturing():
            raise errors.ConfigError("a CUDA graph is being captured: what it replays would average nothing; capture the passes without this hook")

    def __repr__(self) -> str:
        return f"<thc.torch.Hook of {self.group!r}>"

    # What users call, between steps.

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
        """Has ``optimizer.step`` find no gradients after a backward pass whose gradients were not finite on some rank, so that it changes
        nothing. Returns the optimizer. Not needed with a ``GradScaler``, which leaves the step out."""
        optimizer.register_step_pre_hook(lambda *_: optimizer.zero_grad() if self.skipped else None)
        return optimizer

    def blank_feedback(self) -> dict[str, torch.Tensor]:
        """Error feedback as a checkpoint has it, of zeros; nothing where a rank has shares of parameters."""
        return self._buckets.blank_feedback() if self.options.feedback and self.engine.selector.shares is None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, also if buckets are others now. All ranks call it between the same steps, each
        with its own; if one does not, the next ``backward`` raises :exc:`thc.ConfigError` on all, in a job that loses nothing. What it has of
        parameters that the model does not have is left out, with a warning."""
        super().load_state_dict(self._buckets.without_strangers(state))

    def reset_feedback(self) -> None:
        """Forgets all error feedback, as for a new training run."""
        self.engine.ask(self.engine.selector.compressor.feedback.reset)


def check_model(model: torch.nn.Module | None, compression: Compression, exclude: Sequence[str], device: str) -> None:
    """Refuses options that do not go with a model, for which there is no group yet."""
    Options(device=device)
    if model is None:
        for option, wanted in (("exclude", exclude), ("adapt", compression.adapt)):
            if wanted:
                raise errors.ConfigError(f"{option} names parameters: give the state the model, too")
        return
    check_exclude(model, exclude)
    if getattr(model, "skip_all_reduce_unused_params", False):
        raise errors.ConfigError("skip_all_reduce_unused_params: DDP leaves buckets out, and a step ends with the last of them: leave it out")
    check_one_device({str(p.device) for p in model.parameters() if p.requires_grad})
