"""How a hook works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc import errors
from thc.torch.adaptive import Adapt

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """See :func:`thc.torch.hook`."""

    warmup: int
    min_size: int
    exclude: Sequence[str]
    uncompressed: str
    feedback: bool
    nonfinite: str
    fallback: bool
    adapt: Adapt | None
    in_flight: int

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise errors.ConfigError(f"warmup is {self.warmup}: give a number of steps, 0 or more")
        if self.in_flight < 1:
            raise errors.ConfigError(f"in_flight is {self.in_flight}: give a number of buckets, at least 1")
        if self.uncompressed not in ("raw", "process-group"):
            raise errors.ConfigError(
                f'uncompressed is {self.uncompressed!r}: write "raw" or "process-group"'
            )
        if self.nonfinite not in ("nan", "zero"):
            raise errors.ConfigError(f'nonfinite is {self.nonfinite!r}: write "nan" or "zero"')
