"""Whether all ranks were given the same options."""

from __future__ import annotations

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
    """Raises :exc:`~thc.ConfigError` on all ranks if one has another option than rank 0, or if this one has ``failed`` to understand its own.
    A collective, to be made before any that depends on an option."""
    mine = {name: _text(value) for name, value in options.items() if name not in OF_A_RANK}
    told = gather_objects((mine, None if failed is None else str(failed)), process_group)
    if failed is not None:
        raise failed
    wrong = next((rank for rank, (_, why) in enumerate(told) if why is not None), None)
    if wrong is not None:
        raise ConfigError(f"rank {wrong} has options that it does not understand: {told[wrong][1]}")
    every = [each for each, _ in told]
    for rank, theirs in enumerate(every):
        for name in sorted(every[0].keys() | theirs.keys()):
            first, other = every[0].get(name), theirs.get(name)
            if first != other:
                said = [f"{'not given' if value is None else value} on rank {at}" for at, value in ((0, first), (rank, other))]
                raise ConfigError(f"{name} is {said[0]} and {said[1]}: give all ranks the same")
