"""The options of this package's functions, for whoever checks or completes programs: each is the keywords of a function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from thc.job_options import JobOptions
    from thc.torch.adapt.options import Adapt

__all__ = ["GroupOptions", "HookOptions", "JoinOptions", "LaneOptions", "LocalOptions", "WrapOptions"]


class GroupOptions(TypedDict, total=False):
    """Options of every :class:`thc.Group`, explained there."""

    bind: str | None
    join_timeout: float | str | None
    timeout: float | str | None
    patience: float | str | None
    workers: int | None
    min_rto: float | str | None
    seed: int | None
    threads: int | None
    recv_buffer: int | None
    send_buffer: int | None
    inject: str | None
    inject_seed: int | None
    io: str | None
    dpdk: Mapping[str, Any] | None
    controller_ca: str | os.PathLike[str] | None
    controller_cert: str | os.PathLike[str] | None
    controller_key: str | os.PathLike[str] | None


class LocalOptions(TypedDict, total=False):
    """Options of :meth:`thc.Group.local` alone, explained there: who gives one wants servers of the ranks' own."""

    address: str | None
    port: int | None
    cookie: int | str | None
    server: JobOptions | dict[str, Any] | None
    colocated: bool | None


class LaneOptions(TypedDict, total=False):
    """Options of :class:`thc.torch.CollectiveGroup` alone, explained there: for ``over="process-group"``."""

    lane: int
    bits: int | None
    tables: Sequence[dict[str, Any]] | None
    block: int


class JoinOptions(GroupOptions, LocalOptions, LaneOptions, total=False):
    """Options of whatever joins a group by itself."""

    over: Literal["server", "process-group"]


class HookOptions(TypedDict, total=False):
    """Options of :func:`thc.torch.hook`, explained there."""

    warmup: int
    min_size: int
    exclude: Sequence[str]
    uncompressed: str
    feedback: bool | None
    nonfinite: str
    fallback: bool | None
    adapt: Adapt | Mapping[str, Any] | bool | None
    device: str
    check_accuracy: int | None
    only_if_faster: bool | int


class WrapOptions(HookOptions, JoinOptions, total=False):
    """Options of :func:`thc.torch.wrap`, explained there."""

    rails: bool | Literal["auto"]
    check_replicas: int | None
