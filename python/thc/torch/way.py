"""What carries norms and sums: a parameter server, or the process group of the ranks themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from thc.errors import ConfigError
from thc.base_group import BaseGroup
from thc.torch.collective import CollectiveGroup
from thc.torch.ranks.lone import LoneGroup
from thc.torch.option_types import LaneOptions
from thc.torch.adapt.tables import lanes_for

__all__ = ["collective", "falls_back", "take_way"]

_LANE_OPTIONS = LaneOptions.__annotations__.keys()

_COMPUTING = frozenset(("seed", "threads"))
"""Options of every group."""


def take_way(options: dict[str, Any]) -> str:
    """Takes ``over`` out of the options: ``"server"``, the default, or ``"process-group"``."""
    way: str = options.pop("over", "server")
    if way not in ("server", "process-group"):
        raise ConfigError(f'over is {way!r}: write "server" or "process-group"')
    given = sorted(_LANE_OPTIONS & options.keys())
    if way == "server" and given:
        raise ConfigError(f'{", ".join(given)}: these are options of over="process-group"; a server has its own, server={{...}}')
    return way


def collective(process_group: Any, group: BaseGroup | None, options: Mapping[str, Any], adapts: bool) -> CollectiveGroup:
    """The group whose sums a process group adds up, by options of groups. With ``adapts`` it has further lanes to choose from."""
    others = sorted(options.keys() - _LANE_OPTIONS - _COMPUTING)
    if group is not None or others:
        raise ConfigError(f'{", ".join(others) or "group"}: over="process-group" has no parameter server and nothing to join: leave it out')
    if adapts:
        options = {"tables": [{}, *lanes_for(dist.get_world_size(process_group), options.get("lane", 8))], **options}
    return CollectiveGroup(process_group, **options)


def falls_back(group: BaseGroup, fallback: bool | None) -> bool:
    """Whether training shall go on through the process group when the server is lost: by default where there is one."""
    if isinstance(group, LoneGroup):
        return False
    if fallback and group.sums_in_lanes:
        raise ConfigError('fallback: over="process-group" has no server that could be lost: leave it out')
    return not group.sums_in_lanes if fallback is None else fallback
