"""Which releases of torch this package works with. What imports this module is refused by an older one."""

from __future__ import annotations

import re

from thc.errors import ConfigError

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("thc.torch needs PyTorch, which is not installed: pip install 'torch>=2.4'", name="torch") from error

OLDEST = (2, 4)


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version of torch."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return OLDEST if numbers is None else (int(numbers[1]), int(numbers[2]))


def check_release(version: str) -> None:
    """Raises if that is the version of a torch that is too old."""
    if release_of(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"thc.torch needs torch {oldest} or newer, and this is torch {version}: pip install 'torch>={oldest}'")


check_release(torch.__version__)
