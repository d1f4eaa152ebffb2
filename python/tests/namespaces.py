"""Hosts for tests: the network namespaces of benchmarks. What they share of a name with tests stays the tests'."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "testbed" / "bench-torch"))

from links import Network, NotPossible  # noqa: E402

__all__ = ["Network", "NotPossible"]
