"""What the package and its compiled library report on stderr."""

from __future__ import annotations

import logging
import os
import sys

from thc import _native
from thc.errors import ConfigError

LEVELS = {"off": logging.CRITICAL + 1, "error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG, "trace": logging.DEBUG}
_logger = logging.getLogger("thc")


def log(level: str = "info") -> None:
    """Reports on stderr from a level on: ``"off"``, ``"error"``, ``"warn"``, ``"info"``, ``"debug"`` or ``"trace"``. Sets the level
    of Python's logger ``thc`` and of the compiled library. The variable ``THC_LOG`` sets it from the start; without it the level is ``"warn"``."""
    if level not in LEVELS:
        raise ConfigError(f"the log's level is {level!r}: write one of {', '.join(LEVELS)}")
    _apply(level)
    if not _native.set_log(level):
        _logger.warning("another extension of this process reports for the compiled library, whose level stays as it is")


def _apply(level: str) -> None:
    _logger.setLevel(LEVELS[level])
    if not _logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        _logger.addHandler(handler)


def announce(text: str) -> None:
    """Reports a line that users want to see without asking: to the logger if it takes INFO, else to stderr unless a level has been set."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info(text)
    elif _logger.level == logging.NOTSET:
        print(f"thc: {text}", file=sys.stderr, flush=True)


# A filter of the library's own, such as "thc_worker=debug", is no level of Python's.
if (_wanted := os.environ.get("THC_LOG", "").lower()) in LEVELS:
    _apply(_wanted)
