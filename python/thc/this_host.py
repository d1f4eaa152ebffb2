"""Which processes are on one host."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["this_host"]


def this_host() -> str:
    """What processes have in common that can share memory and reach each other by a name: kernel and network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"
