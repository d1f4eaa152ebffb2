"""What an engine can be given besides its options: parts that decide how buckets travel, each asked at fixed points of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thc.errors import ThcError
from thc.torch.engine.clock import Span
from thc.torch.engine.bucket import Bucket
from thc.torch.adapt.plan import Plan

__all__ = ["EnginePart"]


class EnginePart:
    """A part of an engine: ``adapt``, and the pace of :func:`thc.torch.keep_up`. All ranks have the same parts in the same order.

    The engine's sequencer calls all methods, in this order: for each bucket :meth:`begin_bucket`, :meth:`begin_calls` unless the bucket goes
    through the process group, :meth:`note_travel`, :meth:`forgo_mean` or :meth:`note_error`; then for the step :meth:`end_calls`, :meth:`row` and :meth:`agree` in the call
    that ends it, and :meth:`end_step`. A method that a part leaves out does nothing.
    """

    name: str = ""
    """The key of the part's state in checkpoints; empty if it has none."""
    one_call: bool = False
    """Whether what is not compressed of a bucket travels in the same call with what is."""
    host_reason: str = ""
    """Why buckets are compressed on the host wherever gradients are, if the part needs that."""
    plans: Sequence[Plan] = ()
    """All choices so far."""

    def is_timed(self, step: int) -> bool:
        """Whether this step's calls are timed, and so made one by one."""
        return False

    def begin_bucket(self, bucket: Bucket, step: int) -> None:
        """A bucket has come, whose ``sender`` the part may set. ``step`` is the number of backward passes before this one."""

    def begin_calls(self, bucket: Bucket, step: int) -> None:
        """A bucket is about to travel through the job. The part may make calls of its own before the first bucket of a step; raises what they raise."""

    def note_travel(self, bucket: Bucket, span: Span, finite: bool) -> None:
        """A bucket has travelled in that time, with numbers that were finite on all ranks or not."""

    def forgo_mean(self, bucket: Bucket, error: ThcError) -> bool:
        """The parameter server was lost before a bucket had its mean. Whether the step goes on without, which the part then sees to on all ranks."""
        return False

    def note_error(self, error: BaseException) -> None:
        """A bucket's call has failed with an error that training will get."""

    def end_calls(self, nonfinite: bool) -> None:
        """All buckets of a step have travelled through the job, with numbers that were not finite on this rank or without. The part may make calls
        of its own."""

    def end_step(self, buckets: Sequence[Bucket]) -> None:
        """A backward pass is over, with these buckets; training goes on after this."""

    def restart(self, step: int) -> None:
        """The server is back after it was lost: the part begins anew, on all ranks alike."""

    def state_dict(self) -> dict[str, Any]:
        """The part's state, for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Goes on where :meth:`state_dict` was called, after that step."""
