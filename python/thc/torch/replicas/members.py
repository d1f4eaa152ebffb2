"""Replicas of a job whose members come and go: who comes gets what the others have, through the group itself.

There is no process group among such members. What must arrive as it is travels RAW, in halves of 16 bits that are whole numbers: their
mean over n workers of whom one alone puts them in, times n, is exact. A call may be done again with fewer members than it was begun
with, so places in it are those of seats, and n is found in the call itself: in a mark that its sender alone puts in.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from thc.errors import ConfigError
from thc.group import Group

__all__ = ["catch_up", "pack_state", "tell", "unpack_state"]

SEATS = 64
WORDS = 4
"""Halves of a number."""
CHUNK = 1 << 21
"""Halves that travel in one call."""


def tell(group: Group, numbers: list[int]) -> dict[int, list[int]]:
    """What each member tells, by seat: so many numbers from 0 to 2^64 - 1, as many on all. Who is gone meanwhile is left out."""
    size = 1 + WORDS * len(numbers)
    call = np.zeros(SEATS * size, np.float32)
    first = group.seat * size
    call[first] = 1
    call[first + 1 : first + size] = np.array(numbers, np.uint64).view(np.uint16)
    group.allreduce(call, "raw")
    told = {}
    for seat in range(SEATS):
        theirs = _exact(call[seat * size : (seat + 1) * size])
        if theirs is not None:
            told[seat] = [int(number) for number in theirs.view(np.uint64)]
    return told


def _exact(mean: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16] | None:
    """The halves that one worker has put in behind its mark, from the mean; None if nobody has."""
    if mean[0] <= 0:
        return None
    halves: npt.NDArray[np.uint16] = np.rint(mean[1:] * np.rint(1 / mean[0])).astype(np.uint16)
    return halves


def _send(group: Group, source: int, data: bytes, length: int) -> bytes | None:
    """The bytes of one seat on all members; None, on all, if it is gone."""
    halves = np.zeros((length + 1) // 2, np.uint16)
    mine = group.seat == source
    if mine:
        halves.view(np.uint8)[:length] = np.frombuffer(data, np.uint8)
    for first in range(0, len(halves), CHUNK):
        part = halves[first : first + CHUNK]
        call = np.zeros(1 + len(part), np.float32)
        if mine:
            call[0] = 1
            call[1:] = part
        group.allreduce(call, "raw")
        found = _exact(call)
        if found is None:
            return None
        part[:] = found
    return halves.tobytes()[:length]


def catch_up(group: Group, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, *, steps: int = 0) -> int:
    """Gives all members of ``group`` what the one has that has done most ``steps``, bit for bit: the model's parameters and buffers, and the
    optimizer's state. Returns how many steps that were.

    All members call it at the same place: after joining, after :meth:`~thc.Group.rejoin`, and where :meth:`~thc.Group.boundary` tells of
    newcomers; a newcomer calls it after joining, with no steps. It costs 4 times the bytes of the state each way.
    """
    while True:
        data = _state(model, optimizer)
        told = tell(group, [steps, len(data)])
        source = min(told, key=lambda seat: (-told[seat][0], seat))
        most, length = told[source]
        found = _send(group, source, data, length)
        if found is None:
            continue
        # The one whose state it is has it already, and its optimizer need not be made anew.
        if group.seat != source:
            parts = unpack_state(found)
            model.load_state_dict(parts["model"])
            if optimizer is not None and parts["optimizer"] is not None:
                optimizer.load_state_dict(parts["optimizer"])
        return most


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> bytes:
    return pack_state({"model": dict(model.state_dict()), "optimizer": optimizer.state_dict() if optimizer else None})


def pack_state(state: Any) -> bytes:
    """What a state is made of as JSON, and the bytes of its tensors behind that; nothing that could be a program, as pickles are."""
    tensors: list[bytes] = []

    def taken_apart(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
            tensors.append(data)
            return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape), len(data)]}
        if isinstance(value, dict):
            return {"dict": [[key, taken_apart(each)] for key, each in value.items()]}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [taken_apart(each) for each in value]}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"is": value}
        raise ConfigError(f"the state of model or optimizer has a {type(value).__name__}: catch_up sends tensors, numbers and text")

    head = json.dumps(taken_apart(state)).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *tensors])


def unpack_state(data: bytes) -> Any:
    at = 8 + int.from_bytes(data[:8], "little")

    def put_together(part: dict[str, Any]) -> Any:
        nonlocal at
        ((kind, value),) = part.items()
        if kind == "tensor":
            name, shape, length = value
            dtype = getattr(torch, name)
            raw = bytearray(data[at : at + length])
            at += length
            return torch.frombuffer(raw, dtype=dtype).reshape(shape) if length else torch.empty(shape, dtype=dtype)
        if kind == "dict":
            return {key: put_together(each) for key, each in value}
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(put_together(each) for each in value)
        return value

    return put_together(json.loads(data[8:at]))
