"""Whether all ranks were given the same options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from thc.errors import ConfigError
from thc.torch.ranks.gathering import gather_objects

__all__ = ["OF_A_RANK", "compare_options"]

OF_A_RANK = frozenset(
    "address bind cookie controller_ca controller_cert controller_key device dpdk inject inject_seed io join_timeout min_rto patience "
    "port recv_buffer seed send_buffer threads timeout".split()
)
"""Options in which ranks may differ."""


def _text(value: Any) -> str:
    """An option as it is compared."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_text(each)}' for key, each in sorted(value.items()))}}}"
    return repr(value)


def compare_options(options: Mapping[str, Any], process_group: Any, failed: Exception | None = None) -> None:
    """Raises :exc:`~thc.ConfigError` on all ranks if one has other options than rank 0, or if this one has ``failed`` to understand its own.
    A collective, to be made before any that depends on an option."""
    mine = {name: _text(value) for name, value in sorted(options.items()) if name not in OF_A_RANK}
    digest = hashlib.sha256(repr(mine).encode()).hexdigest()
    told = gather_objects((digest, None if failed is None else str(failed)), process_group)
    if failed is not None:
        raise failed
    for rank, (_, why) in enumerate(told):
        if why is not None:
            raise ConfigError(f"rank {rank} has options that it does not understand: {why}")
    other = next((rank for rank, (theirs, _) in enumerate(told) if theirs != told[0][0]), None)
    if other is None:
        return
    every = gather_objects(mine, process_group)
    first, theirs = every[0], every[other]
    differ = [name for name in sorted(first.keys() | theirs.keys()) if first.get(name) != theirs.get(name)]
    said = [f"{name} is {first.get(name)} on rank 0 and {theirs.get(name)} on rank {other}" for name in differ]
    raise ConfigError(f"{'; '.join(said)}: give all ranks the same")
