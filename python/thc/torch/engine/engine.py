"""The engine that averages gradients: everything that DDP's hook, :func:`overlap`, :func:`outer` and :func:`replicate` have in common.

An adapter makes buckets of what its framework hands over and puts them into its engine, which has them travel in steps that all ranks have alike
(docs/architecture.md has a picture).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.distributed as dist

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.torch.compression.selector import Choice, CompressorSelector
from thc.torch.engine.bucket import Bucket, Piece
from thc.torch.engine.clock import Clock
from thc.torch.engine.fallback import Fallback
from thc.torch.engine.pipeline import pipeline_of
from thc.torch.engine.steps import BucketTask, Steps
from thc.torch.options import Options
from thc.torch.parts.adaptive import Adaptive
from thc.torch.parts.plan import Plan
from thc.torch.ranks.peers import Peers


class Engine:
    """Averages buckets on a group's pipeline, and through the process group when the server is lost. All ranks make it, and all its calls, alike."""

    def __init__(self, group: BaseGroup, options: Options, peers: Peers, adaptive: Adaptive | None = None, by_optimizer: bool = False) -> None:
        """``adaptive`` chooses how buckets travel. ``by_optimizer``: the adapter ends the clock's steps, and not the last mean of each."""
        self.group, self.options, self.peers = group, options, peers
        self.clock = Clock(group.training)
        self.adaptive = adaptive
        self.fallback = Fallback(group, options.fallback, peers)
        self.selector = CompressorSelector(group, options, peers, self.fallback.idle)
        self.steps = Steps(options, self.fallback, self.selector, adaptive, None if by_optimizer else self.clock)
        self._pipeline = pipeline_of(group)
        if self.fallback.is_enabled:
            self._pipeline.when_idle(self.fallback)

    def put(self, bucket: Bucket) -> None:
        """Has a bucket averaged after all that was put before it."""
        self._pipeline.put(BucketTask(bucket=bucket, steps=self.steps))

    def begin(self, pieces: Sequence[Piece]) -> None:
        """Has pieces averaged: a step of its own, and all ranks have all of it or none."""
        for index, piece in enumerate(pieces):
            # Copies are kept also while the server is lost: it may be taken back at the end of a step that is still under way.
            self.put(piece.bucket(index, index + 1 == len(pieces), self.fallback.is_enabled))

    def ask(self, work: Callable[[], Any]) -> Any:
        """Does work on the sequencer, after all that was put before, and returns what it returns or raises."""
        return self._pipeline.ask(work)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """This rank's steps, error feedback by parameter, and the choices of ``adapt``. Between steps."""

        def save() -> dict[str, Any]:
            state: dict[str, Any] = {"steps": self.steps.number, "feedback": self.selector.compressor.feedback.save()}
            return state if self.adaptive is None else state | {"adapt": self.adaptive.state_dict()}

        found: dict[str, Any] = self.ask(save)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called. Without ``steps`` those are left as they are. Between steps."""
        rank = int(state.get("rank", dist.get_rank()))
        if rank != dist.get_rank():
            raise ConfigError(
                f"this is the state of rank {rank}, and rank {dist.get_rank()} has one of its own: what keeps one of equal names, as "
                "torch.distributed.checkpoint does, saves and loads thc.torch.Checkpoint(model)"
            )

        def load() -> None:
            step = int(state.get("steps", self.steps.number))
            if self.adaptive is not None and "adapt" in state:
                self.adaptive.load_state_dict(state["adapt"], step)
            self.selector.compressor.feedback.load(state["feedback"])
            # What ranks agree on when the server is lost counts on by itself: they have done the same steps together, whatever they load.
            self.steps.number = step

        self.ask(load)


class Adapter:
    """What averages through an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def group(self) -> BaseGroup:
        """The group: its statistics, its server."""
        return self.engine.group

    @property
    def fallback_active(self) -> bool:
        """Whether the parameter server has been lost and means come from the process group."""
        return self.engine.fallback.agreement.fallback_active

    @property
    def error(self) -> BaseException | None:
        """Why the parameter server counts as lost, or what ended the work."""
        return self.engine.fallback.error

    @property
    def device(self) -> Choice | None:
        """Where gradients are compressed, and why there; nothing before the first of them."""
        return self.engine.selector.choice

    @property
    def plans(self) -> Sequence[Plan]:
        """All choices so far, with ``adapt``."""
        return () if self.engine.adaptive is None else tuple(self.engine.adaptive.plans)

    @property
    def is_alike(self) -> bool:
        """Whether :meth:`state_dict` is the same on all ranks."""
        return not self.engine.options.feedback

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: steps, error feedback by parameter, and with ``adapt`` the choices. For what writes one checkpoint
        of all ranks, as ``torch.distributed.checkpoint`` does, there is :class:`thc.torch.Checkpoint`."""
        return self.engine.state_dict() | ({} if self.is_alike else {"rank": dist.get_rank()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called. All ranks call it between the same steps, each with its own."""
        self.engine.load_state_dict(state)

    def resume(self) -> bool:
        """After the parameter server was lost and is back: joins anew and goes on compressed. All ranks must
        call this between the same steps; returns, alike on all, whether it worked."""
        return bool(self.engine.ask(self.engine.steps.resume))
