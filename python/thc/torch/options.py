"""How a hook works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc import errors
from thc.torch.adaptive import Adapt
from thc.torch.refining import Refine

__all__ = ["DEVICES", "Options"]

DEVICES = ("auto", "host", "triton", "torch")
"""Where gradients may be compressed."""

_WHY_NOT_REFINE = {
    "feedback=False": "what is refined is what error feedback keeps: leave feedback=False out",
    "fallback=False": "ranks agree on it in the call that ends a step: leave fallback=False out",
}


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
    device: str
    refine: Refine | None = None

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise errors.ConfigError(f"warmup is {self.warmup}: give a number of steps, 0 or more")
        if self.in_flight < 1:
            raise errors.ConfigError(f"in_flight is {self.in_flight}: give a number of buckets, at least 1")
        if self.device not in DEVICES:
            raise errors.ConfigError(f"device is {self.device!r}: write {', '.join(map(repr, DEVICES[:-1]))} or {DEVICES[-1]!r}")
        if self.uncompressed not in ("raw", "process-group"):
            raise errors.ConfigError(
                f'uncompressed is {self.uncompressed!r}: write "raw" or "process-group"'
            )
        if self.refine is not None:
            for option, wrong in (("feedback=False", not self.feedback), ("fallback=False", not self.fallback)):
                if wrong:
                    raise errors.ConfigError(f"refine and {option}: {_WHY_NOT_REFINE[option]}")
            if self.uncompressed != "raw":
                raise errors.ConfigError('refine sends what is not compressed in the same call: leave uncompressed="process-group" out')
        if self.nonfinite not in ("nan", "zero"):
            raise errors.ConfigError(f'nonfinite is {self.nonfinite!r}: write "nan" or "zero"')
