"""How a hook works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.adapt.options import Adapt
from thc.torch.ranks.exchange import tells
from thc.torch.ranks.lone import LoneGroup

__all__ = ["IN_FLIGHT", "KERNELS", "Options", "check_shares", "feeds_back"]

KERNELS = {"triton": "thc.torch.device.compiled"}
"""What compresses gradients where they are, by the name of the option ``device``: the name of a module. Tests add one."""

IN_FLIGHT = 3
"""Buckets that are under way at once: while one is copied, another is compressed and a third is on the network."""

LEAST = 28
"""Steps from one comparison of ``only_if_faster`` to the next, at least."""


@dataclass(frozen=True)
class Options:
    """See :func:`thc.torch.hook`."""

    feedback: bool
    fallback: bool
    warmup: int = 0
    min_size: int = 0
    exclude: Sequence[str] = ()
    uncompressed: str = "raw"
    nonfinite: str = "nan"
    device: str = "auto"
    adapt: Adapt | None = None
    check_accuracy: int | None = None
    """Every how many steps a bucket's mean is compared with the exact one."""
    only_if_faster: bool | int = False
    """Whether, or after how many steps again, steps are compared with such without compression."""

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise errors.ConfigError(f"warmup is {self.warmup}: give a number of steps, 0 or more")
        if self.device not in ("auto", "cpu", *KERNELS):
            raise errors.ConfigError(f"device is {self.device!r}: write 'auto', 'cpu' or 'triton'")
        if self.uncompressed not in ("raw", "process-group"):
            raise errors.ConfigError(
                f'uncompressed is {self.uncompressed!r}: write "raw" or "process-group"'
            )
        if self.only_if_faster and self.adapt is not None:
            raise errors.ConfigError("only_if_faster compares whole steps, and adapt makes each step another one: leave one of them out")
        every = self.check_accuracy
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise errors.ConfigError(f"check_accuracy is {every!r}: give a number of steps, at least 1")
        again = self.only_if_faster
        if not isinstance(again, bool) and (not isinstance(again, int) or again < LEAST):
            raise errors.ConfigError(f"only_if_faster is {again!r}: write True, or after how many steps to compare again, at least {LEAST}")
        if self.nonfinite not in ("nan", "zero"):
            raise errors.ConfigError(f'nonfinite is {self.nonfinite!r}: write "nan" or "zero"')


def check_shares(adapt: Any, uncompressed: str, only_if_faster: bool | int) -> None:
    """Refuses options that need whole parameters, where each rank of a host has a share of the host's mean."""
    through_peers = 'uncompressed="process-group"', uncompressed == "process-group"
    for option, wrong in (("adapt", adapt), through_peers, ("only_if_faster", only_if_faster)):
        if wrong:
            raise errors.ConfigError(f"rails and {option}: a rank averages shares of parameters, not whole ones: leave one of them out")


def feeds_back(group: BaseGroup, feedback: bool | None, chooses: bool) -> bool:
    """Whether there is error feedback, where it is not said: with `adapt`, which chooses fewer bits (``chooses``), and in jobs that may lose packets or
    do not wait for all ranks. With 4 bits and nothing missing, training is better without (docs/measuring.md)."""
    if isinstance(group, LoneGroup):
        return False
    return chooses or not tells(group) if feedback is None else feedback
