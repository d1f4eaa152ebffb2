"""What an engine can be given besides its options: parts that decide how buckets travel, or what a step goes without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thc.torch.engine.bucket import Bucket
from thc.torch.parts.plan import Plan


class Part:
    """A part of an engine. All ranks have the same parts in the same order; the engine's sequencer calls the methods. One that a part leaves out does
    nothing."""

    name: str = ""
    """The key of the part's state in checkpoints; empty if it has none."""
    host_reason: str = ""
    """Why buckets are compressed on the host wherever gradients are, if the part needs that."""
    plans: Sequence[Plan] = ()
    """All choices so far."""
    is_timed: bool = False
    """Whether the calls of the step under way are timed, and so made one by one."""

    def begin(self, bucket: Bucket, step: int) -> None:
        """A bucket is about to travel through the job; the part may set its ``way``. Before the first bucket of a step the part may make calls of its
        own; raises what they raise. ``step`` is the number of backward passes before this one."""

    def end(self, bucket: Bucket, error: BaseException | None, nonfinite: bool) -> bool:
        """A bucket has travelled through the job, or has failed. After the last one of a step the part may make calls of its own; ``nonfinite`` is whether
        the step has had numbers that were not finite on this rank. Returns whether the step goes on without its mean, which the part then sees to on
        all ranks."""
        return False

    def restart(self, step: int) -> None:
        """The server is back after it was lost: the part begins anew, on all ranks alike."""

    def state_dict(self) -> dict[str, Any]:
        """The part's state, for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Goes on where :meth:`state_dict` was called, after that step."""
