"""Names that attributes had in the previous version."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["OldName"]


class OldName:
    """An attribute's old name: it warns, and gives the attribute that has the new name."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: object, owner: type) -> Any:
        warnings.warn(f"{owner.__name__}.{self._old} is deprecated: use {self._new}", DeprecationWarning, stacklevel=2)
        return getattr(owner if instance is None else instance, self._new)
