"""A state of a model or an optimizer as bytes, to be sent to other ranks."""

from __future__ import annotations

import json
from typing import Any

import torch

from thc.errors import ConfigError

__all__ = ["pack_state", "unpack_state"]


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
        raise ConfigError(f"the state of model or optimizer has a {type(value).__name__}: keep_up sends tensors, numbers and text")

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
