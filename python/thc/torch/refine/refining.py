"""Two stages: a coarse mean in time for its deadline, and further calls that refine it as long as there is time (AQGB, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from thc import adapt, errors
from thc.base_group import BaseGroup
from thc.row import Span
from thc.torch.adapt.adaptive import Adaptive
from thc.torch.engine.arrival import Arrival, Further
from thc.torch.engine.bucket import Bucket, Calls
from thc.torch.refine.deadlines import Deadlines, Refinement, Width
from thc.torch.ranks.exchange import tells
from thc.torch.compression.flight import Flight
from thc.torch.engine.part import EnginePart
from thc.torch.ranks.peers import Peers

__all__ = ["Consumer", "Refine", "Refining", "check_alike"]


@dataclass(frozen=True)
class Refine:
    """How a hook refines; ``wrap(model, refine=optimizer)`` takes it as it is here.

    - ``optimizer``: the one that updates the model. Its step of a bucket is put off until the next forward pass needs the bucket.
    - ``least``: AQGB's bound on what a call sends of a gradient, of its 32 bits; by default what the job's first table needs.
    - ``calls``: by how many further calls a bucket is refined at most.
    """

    optimizer: torch.optim.Optimizer
    least: float | None = None
    calls: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise errors.ConfigError(f"refine is {type(self.optimizer).__name__}: give it the model's optimizer, whose steps it puts off")
        if self.least is not None and not 0 < self.least <= 1:
            raise errors.ConfigError(f"refine: least is {self.least}: give a share above 0 and up to 1")
        if self.calls < 1:
            raise errors.ConfigError(f"refine: calls is {self.calls}: give a number of calls, at least 1")

    @staticmethod
    def read(value: Any) -> Refine | None:
        """From what users give as ``refine``."""
        if value is None or isinstance(value, Refine):
            return value
        if isinstance(value, Mapping):
            unknown = sorted(set(value) - set(Refine.__dataclass_fields__))
            if unknown or "optimizer" not in value:
                raise errors.ConfigError(f"refine has the options {', '.join(Refine.__dataclass_fields__)}, of which it needs optimizer")
            return Refine(**value)
        return Refine(value)


def check_alike(refine: Refine | None, peers: Peers) -> None:
    """Raises unless all ranks refine, and alike, or none does."""
    mine = [0, 0] if refine is None else [refine.calls, 0 if refine.least is None else round(1e6 * refine.least)]
    for rank, theirs in enumerate(peers.gather(mine)):
        if theirs != mine:
            raise errors.ConfigError(f"refine is not the same on rank {rank}: give all ranks the same calls and least, or none")


class Consumer(Protocol):
    """Who uses the means."""

    def owns(self, parameters: Sequence[torch.nn.Parameter]) -> bool:
        """Whether all of these are its own: what others use is needed at once."""

    def use_time(self, parameters: Sequence[torch.nn.Parameter]) -> float | None:
        """How many seconds of computing there were before the mean was needed; nothing if that is not known."""

    def expect(self, bucket: Bucket) -> Further:
        """A bucket will be refined, whose mean is there."""

    def announce(self) -> None:
        """No more of this step will be refined."""


def widths_of(group: BaseGroup) -> list[Width]:
    """In which ways a bucket may travel, the job's first table first, then the others, narrowest first."""
    first, *others = group.tables
    workers = group.job.workers
    # A table that leaves most of what it is given is no good at refining.
    others = [
        table
        for table in others
        if adapt.thc_error(table.bits, workers, table.granularity, table.fraction, lane=table.lane).left <= adapt.MOST_LEFT
    ]
    found = [Width(f"{table.bits}/{table.lane}", table.id, max(table.width, table.lane) / 32) for table in (first, *others)]
    return [found[0], *sorted([*found[1:], Width("raw", "raw", 1.0)], key=lambda width: width.share)]


@dataclass(frozen=True)
class _OneWidth:
    """Sends a bucket by one table."""

    width: Width
    is_trial = False

    def send(self, calls: Calls, flight: Flight, bucket: Bucket, data: torch.Tensor, step: int, wait: bool) -> None:
        # What refines a bucket goes as a whole, since of what travels exactly nothing is left.
        spans: list[tuple[int, int | str]] = []
        for segment in bucket.layout.segments:
            if not segment.length:
                continue
            choice = "raw" if segment.exact and not bucket.is_further else self.width.choice
            length = segment.length + (spans.pop()[0] if spans and spans[-1][1] == choice else 0)
            spans.append((length, choice))
        calls.call(flight, data, wait, feedback=calls.key(bucket.layout), plan=spans)


class Refining(EnginePart):
    """The part of an engine that refines means. All methods run on the sequencer of the group's pipeline."""

    one_call = True
    has_further_steps = True
    host_reason = "refine decides how wide each bucket travels"

    def __init__(
        self, options: Refine, warmup: int, group: BaseGroup, consumer: Consumer, adaptive: Adaptive | None = None, behind: bool = False
    ) -> None:
        """After ``warmup`` steps. With ``adaptive`` that decides how buckets travel at first; ``behind`` says that means are needed a step later,
        so that there is no hurry with them."""
        if not tells(group):
            job = group.job
            raise errors.ConfigError(
                f"refine needs a job that loses nothing, for all ranks must refine alike: this one is {job.policy} with a quorum of "
                f"{job.quorum} of {job.workers}"
            )
        self._default, *others = widths_of(group)
        least = self._default.share if options.least is None else options.least
        self.deadlines = Deadlines(sorted([self._default, *others], key=lambda width: width.share), least, options.calls)
        self.updates = consumer
        self._warmup, self._adaptive, self._behind = warmup, adaptive, behind
        self._keys: list[int] = []
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}
        self.widths: list[str] = []
        """How the last step's buckets travelled, by name."""
        self.refined: list[Refinement] = []
        """The refinements of these buckets."""
        self.calls = 0
        """Further calls so far."""

    def begin_bucket(self, bucket: Bucket, step: int) -> None:
        if self._adaptive is None and not bucket.is_further and step >= self._warmup:
            first = self.deadlines.first
            bucket.sender = _OneWidth(first[bucket.index] if bucket.index < len(first) else self._default)

    def note_travel(self, bucket: Bucket, span: Span, finite: bool) -> None:
        self.deadlines.note_carriage(4.0 * bucket.layout.length * self.share(bucket), span)
        if bucket.is_further and not finite:
            bucket.buffer.zero_()

    def note_confirmation(self, seconds: float) -> None:
        self.deadlines.note_confirmation(seconds)

    def share(self, bucket: Bucket) -> float:
        """What a link carries of a bucket that travels, of 4 bytes for each coordinate."""
        if isinstance(bucket.sender, _OneWidth):
            return bucket.sender.width.share
        return 1.0 if self._adaptive is None else self._adaptive.share(bucket.layout)

    @property
    def _decides(self) -> bool:
        """Whether it is decided here how buckets travel at first."""
        return self._adaptive is None and not self._behind

    def row(self, buckets: Sequence[Bucket]) -> list[int]:
        keys = [bucket.layout.key for bucket in buckets]
        if keys != self._keys:
            self.deadlines.forget()
            self._buffers.clear()
            self._keys = keys
        for bucket in buckets:
            if bucket.computed is not None:
                self.deadlines.note_production(bucket.index, bucket.computed)
            ours = not bucket.foreign and self.updates.owns(bucket.parameters)
            self.deadlines.note_consumption(bucket.index, self.updates.use_time(bucket.parameters) if ours else None)
        return self.deadlines.row(len(buckets))

    def agree(self, rows: Sequence[Sequence[int]], buckets: Sequence[Bucket]) -> None:
        sizes = [bucket.layout.length for bucket in buckets]
        shares = None if self._decides else [self.share(bucket) for bucket in buckets]
        self.deadlines.agree(rows, sizes, shares, self._behind)

    def end_step(self, buckets: Sequence[Bucket], goes_on: bool) -> list[Bucket]:
        if goes_on:
            return self.begin(buckets)
        # This step's means are all that there is.
        self.refined = []
        self.updates.announce()
        return []

    def begin(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """The further calls of a step whose means are there: buckets to be added to them. Tells training of them."""
        self.widths = [self._name(bucket) for bucket in buckets]
        # Of what has travelled exactly nothing is left.
        self.refined = [each for each in self.deadlines.second if self.share(buckets[each.bucket]) < 1.0]
        self.calls += len(self.refined)
        refined: dict[int, Further] = {}
        found = []
        for at, each in enumerate(self.refined):
            bucket = buckets[each.bucket]
            if each.bucket not in refined:
                refined[each.bucket] = self.updates.expect(bucket)
            buffer = self._buffer(each, bucket)
            arrival = Arrival()
            refined[each.bucket].calls.append((buffer, arrival))
            last = at + 1 == len(self.refined)
            found.append(
                Bucket(at, last, buffer, bucket.parameters, bucket.layout, arrival, None, sender=_OneWidth(each.width), is_further=True)
            )
        self.updates.announce()
        return found

    def _name(self, bucket: Bucket) -> str:
        if isinstance(bucket.sender, _OneWidth):
            return bucket.sender.width.name
        return "raw" if self.share(bucket) >= 1.0 else "adapt"

    def restart(self, step: int) -> None:
        self.deadlines.forget()

    def _buffer(self, each: Refinement, bucket: Bucket) -> torch.Tensor:
        key = (each.bucket, each.number)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(bucket.layout.length)
        return self._buffers[key]
