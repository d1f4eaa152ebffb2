"""Settings from environment variables: ours, and those that torchrun sets."""

from __future__ import annotations

import difflib
import functools
import json
import logging
import os
from typing import Any

from thc import _native
from thc.cores import threads_by_count
from thc.errors import ConfigError

_NUMBERS = "job worker seed threads recv_buffer send_buffer inject_seed".split()
_TIMES = "join_timeout timeout patience min_rto".split()
_TEXTS = "ps cookie method bind inject io controller_ca controller_cert controller_key".split()
_OTHERS = "config dpdk address port log".split()


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}: it must be a whole number") from None


def _section(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f'{name} is {text!r}: write it like {{"devices": ["0000:3b:00.0"], "address": "10.0.0.2/24"}}')
    return found


def is_configured() -> bool:
    """Whether the environment names a parameter server."""
    return "THC_PS" in os.environ or "THC_CONFIG" in os.environ


def keys() -> dict[str, Any]:
    """The keys that ``THC_CONFIG`` and the variables after option names give."""
    path = os.environ.get("THC_CONFIG")
    return (json.loads(_native.read_config(path)) if path else {}) | variables()


def variables() -> dict[str, Any]:
    """The keys that the variables after option names give."""
    _warn_of_misspelt()
    found: dict[str, Any] = {}
    for key in (*_NUMBERS, *_TIMES, *_TEXTS):
        name = f"THC_{key.upper()}"
        text = os.environ.get(name)
        if text is None:
            continue
        if key in _NUMBERS:
            found[key] = _integer(name, text)
        elif key in _TIMES and text.replace(".", "", 1).isdigit():
            found[key] = float(text)
        else:
            found[key] = text
    if text := os.environ.get("THC_DPDK"):
        found["dpdk"] = _section("THC_DPDK", text)
    return found


@functools.cache
def _warn_of_misspelt() -> None:
    """Names each variable that nothing reads and that is similar to one that is read, once."""
    known = [f"THC_{key.upper()}" for key in (*_NUMBERS, *_TIMES, *_TEXTS, *_OTHERS)]
    for name in os.environ:
        if name.startswith("THC_") and name not in known and (similar := difflib.get_close_matches(name, known, 1, 0.85)):
            logging.getLogger("thc").warning("nothing reads the variable %s; %s is similar", name, similar[0])


def fill_worker(found: dict[str, Any], ps: str) -> None:
    """Without a worker's number, it is torchrun's rank; a controller gives one to those that have none."""
    if "worker" not in found and not (ps.startswith(("thc://", "thcs://")) and "RANK" not in os.environ):
        if "RANK" not in os.environ:
            raise ConfigError("worker is missing: give this worker's number, or set THC_WORKER or RANK")
        found["worker"] = _integer("RANK", os.environ["RANK"])


def number(name: str, given: int | None, default: int) -> int:
    """What was given, or the variable, or the default."""
    if given is not None:
        return given
    return _integer(name, os.environ[name]) if name in os.environ else default


def world_size() -> int | None:
    """How many ranks torchrun has started, if it did."""
    return _integer("WORLD_SIZE", os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ else None


def threads() -> int | None:
    """Threads that compute by default, the caller's among them: ``THC_THREADS``; or, where torchrun has started several ranks on this host
    (``LOCAL_WORLD_SIZE``), their part of its cores, unless each is bound to cores of its own. Nothing if there is one alone, which takes the
    library's default."""
    if "THC_THREADS" in os.environ:
        return _integer("THC_THREADS", os.environ["THC_THREADS"])
    return threads_by_count(number("LOCAL_WORLD_SIZE", None, 1))
