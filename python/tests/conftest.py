"""What tests have in common. What cannot run here is skipped with ``not run: why``, and listed at the end."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crew import Crews
from patience import HANG
from servers import ParameterServer, program


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reasons = {report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])}
    reasons = {reason for reason in reasons if reason.startswith("not run: ")}
    for reason in sorted(reasons):
        terminalreporter.write_line(reason)
    # `make test` lists them at its end, with those of other parts.
    if reasons and (listed := os.environ.get("THC_NOT_RUN")):
        with open(listed, "a") as file:
            file.writelines(f"{reason}\n" for reason in sorted(reasons))


RELEASE = os.environ.get("THC_TEST_TORCH") or None
"""Which PyTorch this is, where `python/tests/run` runs tests with two: the "newest" or the "oldest"."""


def newest_has(what: str) -> None:
    """Leaves to the tests with the newest PyTorch what the oldest does not have."""
    if RELEASE == "oldest":
        pytest.skip(f"elsewhere: {what} with the newest PyTorch", allow_module_level=True)


def needs(*modules: str) -> None:
    """Skips what cannot run without these."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            package = {"sklearn": "scikit-learn"}.get(module, module.replace("_", "-"))
            pytest.skip(f"not run: Python has no {module} (pip install {package})", allow_module_level=True)


def needs_ipv6() -> None:
    """Skips what cannot run where IPv6 is switched off."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"not run: this host has no IPv6: {error}")


@pytest.fixture(scope="session", autouse=True)
def server_is_built() -> None:
    assert program() is not None, "thc-ps is not built: cargo build -p thc-ps"


@pytest.fixture(scope="module")
def jobs() -> Iterator[ParameterServer]:
    """One server for tests that need a job of their own: 2 workers each, reliable, jobs 1 to 40."""
    with ParameterServer(*[{"norm_slots": 8, "data_slots": 64}] * 40) as server:
        yield server


@pytest.fixture(scope="module")
def crews() -> Crews:
    """What the crews of a module's tests have reported."""
    return Crews()


def outcomes(*works: Callable[[], Any], timeout: float = HANG) -> list[Any]:
    """Does works at the same time, on a thread each, and returns what they return or raise."""
    found: list[Any] = [TimeoutError("did not end")] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            found[index] = work()
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    return found


def run_together(*works: Callable[[], Any], timeout: float = HANG) -> list[Any]:
    """The same, for works that must not fail."""
    found = outcomes(*works, timeout=timeout)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def run_ranks(script: str, *arguments: str, ranks: int = 2, **variables: str) -> list[tuple[str, str]]:
    """Runs a script as every rank, with what torchrun would set and these variables; before the arguments comes the rank. None may fail. What each says."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("THC_") or "PROGRAM" in key}
    environment |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": "test", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), *arguments], env=environment | variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    said = [each.communicate(timeout=HANG) for each in started]
    assert [each.returncode for each in started] == [0] * ranks, said
    return said
