"""How gradients are compressed: what users say, and what an engine makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from thc import _native
from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.join import OptionSet
from thc.torch.parts.plan import Adapt
from thc.torch.ranks.gathering import tells
from thc.torch.ranks.lone import LoneGroup

KERNELS = {"triton": "thc.torch.device.compiled"}
"""What compresses gradients where they are, by the name of the option ``device``: the name of a module. Tests add one."""

IN_FLIGHT = 3
"""Buckets that are under way at once: while one is copied, another is compressed and a third is on the network."""

_BOUNDS = {"bits": (1, 8), "lane": (4, 16), "block": (10, 20), "threads": (1, None), "warmup": (0, None), "min_size": (0, None)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Compression(OptionSet):
    """How gradients are compressed, and when they are not. ``bits``, ``lane``, ``block`` and ``tables`` are of a server that the ranks run
    themselves, and of ``over="process-group"``; a server that is named has its own.

    - ``method``: ``"thc-paper"`` is THC as published and nothing else: error feedback, independent rounding, blocks of 2^20 coordinates, g = 30,
      p = 1/32, 4 bits. It works with a server that is named if that has the same method, which ``THC_METHOD`` may say, too ["default"].
    - ``bits``: bits of an index, 1 to 4 or 8 [4; with ``over="process-group"`` as many as the lane has room for].
    - ``lane``: bits of a coordinate's sum on the way, 4 to 16 [8].
    - ``block``: the logarithm to base 2 of the coordinates that are transformed together, 10 to 20 [13].
    - ``tables``: instead of ``bits``, several tables for ``adapt`` to choose from, such as ``{"bits": 2, "lane": 4}``; the first is the usual one.
    - ``seed``: the seed of this rank's rounding, with ``over="process-group"`` that of all ranks.
    - ``threads``: threads that compute, the caller's among them [this rank's share of the host's cores, less one].
    - ``feedback``: whether what compression loses is added to the next step's gradients [with ``adapt``, and where packets or ranks may be missing].
    - ``warmup``: so many first steps are averaged without compression.
    - ``min_size``: parameters of fewer coordinates are not compressed.
    - ``adapt``: chooses while training whether and how each tensor is compressed: a :class:`thc.torch.Adapt`.
    """

    method: str = "default"
    bits: int | None = None
    lane: int | None = None
    block: int | None = None
    tables: Sequence[Mapping[str, Any]] = ()
    seed: int | None = None
    threads: int | None = None
    feedback: bool | None = None
    warmup: int = 0
    min_size: int = 0
    adapt: Adapt | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
                raise ConfigError(f"{name} is {value!r}: give a whole number {f'from {least} to {most}' if most else f'of at least {least}'}")
        if (fixed := _native.method_values(self.method)) is not None:
            allowed = {"bits": (None, fixed[0]), "block": (None, fixed[3]), "tables": ((),), "feedback": (None, True), "adapt": (None,)}
            for name, values in allowed.items():
                if (value := getattr(self, name)) not in values:
                    raise ConfigError(f"{name} is {value!r}, and method is {self.method!r}, which fixes it: leave one of them out")
        if self.bits is not None and self.tables:
            raise ConfigError("bits and tables are given: give one of them, tables have bits of their own")
        if self.adapt is not None and not isinstance(self.adapt, Adapt):
            raise ConfigError(f"adapt is {self.adapt!r}: give a thc.torch.Adapt")

    def server_keys(self) -> dict[str, Any]:
        """The fields of the codec that are given, as a server takes them."""
        first, *further = self.tables or [{}]
        keys = {name: value for name in ("bits", "lane", "block") if (value := getattr(self, name)) is not None} | {**first}
        tables = [",".join(f"{key}={value}" for key, value in table.items()) for table in further]
        return keys | ({"tables": tables} if tables else {})

    def only(self, what: str, *names: str) -> Compression:
        """Refuses the fields besides ``method``, those of the codec and these, for what knows none of them."""
        wrong = sorted(self.given().keys() - {"method", "bits", "lane", "block", "tables", "seed", "threads", *names})
        if wrong:
            raise ConfigError(f"{', '.join(wrong)}: {what} knows no such option: leave it out")
        return self


@dataclass(frozen=True, kw_only=True, repr=False)
class Options(Compression):
    """What an engine works with: a model's compression, and what else is decided for it."""

    exclude: Sequence[str] = ()
    fallback: bool = True
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device not in ("auto", "cpu", *KERNELS):
            raise ConfigError(f"device is {self.device!r}: write 'auto', 'cpu' or 'triton'")

    @classmethod
    def of(cls, compression: Compression, group: BaseGroup, *, fallback: bool = True, feedback: bool | None = None, **others: Any) -> Options:
        """Options for a group. Without ``feedback`` its default is to have it with ``adapt``, which chooses fewer bits, and in jobs that may lose packets or
        do not wait for all ranks: with 4 bits and nothing missing, training is better without (docs/measuring.md)."""
        found = {each.name: getattr(compression, each.name) for each in fields(Compression)}
        if isinstance(group, LoneGroup):
            # There is nothing that could be lost or chosen.
            found |= {"method": "default", "feedback": False, "adapt": None}
        elif compression.method not in ("default", group.method):
            raise ConfigError(f"method is {compression.method!r}, and the group has {group.method!r}: give the group the same method")
        else:
            # The keys that the group's method fixes are checked like those of the compression's own.
            found["method"] = group.method
        if found["feedback"] is None:
            needed = compression.adapt is not None or not tells(group) or group.method != "default"
            found["feedback"] = needed if feedback is None or group.method != "default" else feedback
        has_server = not isinstance(group, LoneGroup) and not group.sums_in_lanes
        return cls(**found, fallback=fallback and has_server, **others)
