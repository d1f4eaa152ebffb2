"""Checks that need several processes with PyTorch and gloo. Starting those takes seconds, so a crew is started once
and does all the checks of a module, one after the other; pytest shows each as a test of its own."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from namespaces import Network
from patience import HANG

HERE = Path(__file__).resolve().parent


ALONE = {"checks_device"}
"""Modules that set what a library reads while it is imported, here Triton: their ranks are programs of their own."""


def names(module: str) -> list[str]:
    """The checks of a module, in order, without importing it."""
    tree = ast.parse((HERE / f"{module}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Report:
    """What a crew's ranks said: for each check and rank, when it ended and what went wrong."""

    workers: int
    ended: dict[tuple[str, int], tuple[float, str]]
    logs: list[str]
    asked: set[str] = field(default_factory=set)
    """The checks that tests have looked up."""

    def verify(self, check: str) -> None:
        """Fails, with the reason, unless all ranks passed the check."""
        outcomes = {rank: self.ended[check, rank] for rank in range(self.workers) if (check, rank) in self.ended}
        failed = sorted((when, rank, text) for rank, (when, text) in outcomes.items() if text)
        if failed:
            # The others fail soon after the first because it is gone.
            _, rank, text = failed[0]
            raise AssertionError(f"rank {rank} of {self.workers}: {text}")
        missing = sorted(set(range(self.workers)) - set(outcomes))
        logs = "".join(f"\n--- rank {rank} ---\n{self.logs[rank][-1500:]}" for rank in missing)
        assert not missing, f"ranks {missing} did not come to the end of this check{logs}"

    def skip_reason(self, check: str) -> str | None:
        """Why the check was not run, if it was not."""
        _, text = self.ended.get((check, 0), (0.0, ""))
        return text if text.startswith("not run: ") else None


class Crews:
    """The reports of crews, each of which is started once, and anew when a check is looked up again: pytest repeats one that failed. Twice anew is
    enough for a busy machine: what fails then, fails."""

    MOST = 3

    def __init__(self) -> None:
        self._reports: dict[Hashable, Report] = {}
        self._starts: dict[Hashable, int] = {}

    def report(self, crew: Hashable, check: str, start: Callable[[], Report]) -> Report:
        """The report of a crew, for one of its checks."""
        report = self._reports.get(crew)
        starts = self._starts.get(crew, 0)
        if report is None or (check in report.asked and starts < self.MOST):
            report = self._reports[crew] = start()
            self._starts[crew] = starts + 1
        report.asked.add(check)
        return report


class Program(subprocess.Popen[bytes]):
    """A rank as a program of its own, with the methods of a process of ``multiprocessing``."""

    def is_alive(self) -> bool:
        return self.poll() is None

    def join(self) -> None:
        self.wait()


def start(module: str, report: str, log: str, environment: dict[str, str], prefix: Sequence[str]) -> Program | multiprocessing.Process:
    """Starts a rank. It is forked from a process that has imported PyTorch, which takes longer than most checks do; a rank on another host is a
    program of its own, and so is each of :data:`ALONE`, and each where there are GPUs, which no process may touch that then forks."""
    if prefix or module in ALONE or Path("/dev/nvidiactl").exists():
        with open(log, "w") as file:
            return Program([*prefix, sys.executable, str(HERE / "rank.py"), module, report], env=environment, stdout=file, stderr=subprocess.STDOUT)
    process = _forks().Process(target=fork_check, args=(module, report, log, environment), daemon=True)
    process.start()
    return process


def fork_check(module: str, report: str, log: str, environment: dict[str, str]) -> None:
    """What a forked rank does."""
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    importlib.import_module("rank").main(module, report)


@functools.cache
def _forks() -> Any:
    """A context of `multiprocessing` whose processes find PyTorch imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "torch", "torch.distributed", "torch._dynamo"])
    # Libraries read these when they are loaded; and no thread of theirs may run in a process that forks.
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    before = {name: os.environ.get(name) for name in single}
    os.environ.update(single)
    forkserver.ensure_running()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return context


def run(
    module: str,
    workers: int,
    hang: float = HANG,
    network: Network | None = None,
    hosts: Sequence[int] | None = None,
    **variables: str,
) -> Report:
    """Starts ranks with the environment of torchrun, lets them do all checks of a module, and collects reports. With a network,
    rank r runs on its host r, or on ``hosts[r]``. They are ended when
    for ``hang`` seconds none has come to the end of a check."""
    on = range(workers) if hosts is None else hosts
    environment = {key: value for key, value in os.environ.items() if not key.startswith("THC_") or "PROGRAM" in key}
    environment |= {
        "MASTER_ADDR": network.worker(0) if network else "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers if hosts is None else workers // len(set(hosts))),
        "TORCHELASTIC_RUN_ID": "tests",
        "GLOO_SOCKET_IFNAME": "eth0" if network else "lo",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    with tempfile.TemporaryDirectory(prefix="thc-crew-") as folder:
        ranks = []
        for rank in range(workers):
            place = {"RANK": str(rank), "LOCAL_RANK": str(sum(each == on[rank] for each in on[:rank]))}
            prefix = network.prefix(f"w{on[rank]}") if network else ()
            ranks.append(start(module, f"{folder}/report-{rank}", f"{folder}/log-{rank}", environment | place, prefix))
        reports = [Path(f"{folder}/report-{rank}") for rank in range(workers)]
        told, since = 0, time.monotonic()
        while any(each.is_alive() for each in ranks) and time.monotonic() - since < hang:
            time.sleep(0.05)
            length = sum(report.stat().st_size for report in reports if report.exists())
            if length != told:
                told, since = length, time.monotonic()
        for each in ranks:
            each.kill()
            each.join()
        ended = {}
        for rank in range(workers):
            report = reports[rank]
            for line in report.read_text().splitlines() if report.exists() else []:
                check, when, text = json.loads(line)
                ended[check, rank] = (when, text)
        return Report(workers, ended, [Path(f"{folder}/log-{rank}").read_text() for rank in range(workers)])
