"""Two stages: a coarse mean in time for its deadline, and further calls that refine it as long as there is time (AQGB, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from thc import adapt, errors
from thc.group import Group
from thc.torch.adaptive import Adaptive
from thc.torch.bucket import Bucket
from thc.torch.deadlines import Deadlines, Refinement, Width
from thc.torch.exchange import tells
from thc.torch.peers import Peers
from thc.torch.updates import Arrival, Further

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


def widths_of(group: Group) -> list[Width]:
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


class Refining:
    """The state of one hook's refinement. All methods run on the sequencer of the group's pipeline."""

    def __init__(self, options: Refine, group: Group, consumer: Consumer, adaptive: Adaptive | None = None, behind: bool = False) -> None:
        """With ``adaptive`` that decides how buckets travel at first; ``behind`` says that means are needed a step later, so that
        there is no hurry with them."""
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
        self._adaptive, self._behind = adaptive, behind
        self._keys: list[int] = []
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}
        self.widths: list[str] = []
        """How the last step's buckets travelled, by name."""
        self.refined: list[Refinement] = []
        """The refinements of these buckets."""
        self.calls = 0
        """Further calls so far."""

    def width(self, bucket: Bucket) -> Width | None:
        """How a bucket travels at first; nothing if that is not decided here."""
        if self._adaptive is not None:
            return None
        first = self.deadlines.first
        return first[bucket.index] if bucket.index < len(first) else self._default

    def share(self, bucket: Bucket) -> float:
        """What a link carries of a bucket that travels, of 4 bytes for each coordinate."""
        if bucket.width is not None:
            return bucket.width.share
        return 1.0 if self._adaptive is None else self._adaptive.share(bucket.layout)

    @property
    def _decides(self) -> bool:
        """Whether it is decided here how buckets travel at first."""
        return self._adaptive is None and not self._behind

    def row(self, buckets: Sequence[Bucket]) -> list[int]:
        """What this rank tells the others at the end of a step."""
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
        """What all ranks have told."""
        sizes = [bucket.layout.length for bucket in buckets]
        shares = None if self._decides else [self.share(bucket) for bucket in buckets]
        self.deadlines.agree(rows, sizes, shares, self._behind)

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
                Bucket(at, last, buffer, bucket.parameters, bucket.layout, arrival, None, width=each.width, refines=True)
            )
        self.updates.announce()
        return found

    def _name(self, bucket: Bucket) -> str:
        if bucket.width is not None:
            return bucket.width.name
        return "raw" if self.share(bucket) >= 1.0 else "adapt"

    def pause(self) -> None:
        """This step's means are all that there is."""
        self.refined = []
        self.updates.announce()

    def restart(self) -> None:
        """Begins anew, as after a time without the server: on all ranks alike."""
        self.deadlines.forget()

    def _buffer(self, each: Refinement, bucket: Bucket) -> torch.Tensor:
        key = (each.bucket, each.number)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(bucket.layout.length)
        return self._buffers[key]
