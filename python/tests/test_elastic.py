"""torchrun whose ranks are killed, and one that is added: `--nnodes MIN:MAX --max-restarts`, with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from crew import free_port
from patience import HANG
from servers import COOKIE, program

needs("torch")

HERE = Path(__file__).resolve().parent


class Agents:
    """torchrun's agents, a node each, and what their ranks have told."""

    def __init__(self, folder: Path, steps: int, **variables: str) -> None:
        self.folder, self.steps, self.agents = folder, steps, {}
        self.rendezvous = f"127.0.0.1:{free_port()}"
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **variables}

    def start(self, node: int) -> None:
        log = open(self.folder / f"agent-{node}", "w")
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:3", "--nproc_per_node", "1", "--max_restarts", "5",
            "--rdzv_backend", "c10d", "--rdzv_endpoint", self.rendezvous, "--rdzv_id", "elastic", "--monitor_interval", "0.2",
            "--rdzv_conf", f"is_host={int(node == 0)},last_call_timeout=3,timeout=300,join_timeout=300,close_timeout=3",
            str(HERE / "elastic_rank.py"), str(self.folder), str(self.steps),
        ]  # fmt: skip
        self.agents[node] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def reports(self) -> list[dict[str, Any]]:
        path = self.folder / "told"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_until(self, what: str, so: Callable[[list[dict[str, Any]]], bool], seconds: float = HANG) -> list[dict[str, Any]]:
        end = time.monotonic() + seconds
        while not so(told := self.reports()):
            logs = "".join(f"\n--- {node} ---\n{(self.folder / f'agent-{node}').read_text()[-2000:]}" for node in self.agents)
            assert time.monotonic() < end, f"{what}: {told[-5:]}{logs}"
            time.sleep(0.1)
        return told

    def kill(self, node: int) -> None:
        """An agent, and after it what it has started: each rank has a process group of its own."""
        every = [self.agents[node].pid]
        for pid in every:
            every += [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
        for pid in every:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.agents[node].wait()

    def close(self) -> None:
        for node, agent in self.agents.items():
            if agent.poll() is None:
                self.kill(node)


def select(told: list[dict[str, Any]], key: str, ranks: int | None = None) -> list[dict[str, Any]]:
    return [line for line in told if key in line and (ranks is None or line.get("ranks") == ranks)]


@pytest.mark.parametrize("server", ["its own", "thc-ps"])
def test_a_rank_is_killed_and_another_added(server: str, tmp_path: Path) -> None:
    """A server of the ranks' own has as many workers as there are ranks; a thc-ps has two, which are there again."""
    ps, variables = None, {}
    if server == "thc-ps":
        port = free_port()
        flags = ["--job", "1", "--cookie", str(COOKIE), "--workers", "2", "--listen", f"127.0.0.1:{port}"]
        ps = subprocess.Popen([str(program()), *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ps.stdout.readline()
        variables = {"THC_PS": f"127.0.0.1:{port}", "THC_COOKIE": str(COOKIE)}
    agents = Agents(tmp_path, 100_000, **variables)
    try:
        agents.start(0)
        agents.start(1)
        told = agents.wait_until("two ranks", lambda told: len(select(told, "began", 2)) == 2 and len(select(told, "step")) > 20)
        # A rank is killed: its agent starts another, and all ranks begin anew.
        victim = next(line["pid"] for line in select(told, "began", 2) if line["rank"] == 1)
        os.kill(victim, signal.SIGKILL)
        seen = len(told)
        told = agents.wait_until("two again", lambda told: len(select(told[seen:], "began", 2)) == 2 and len(select(told[seen:], "step")) > 20)
        assert min(line["began"] for line in select(told[seen:], "began")) > 0
        if ps is None:
            # A node is added.
            seen = len(told)
            agents.start(2)
            told = agents.wait_until("three", lambda told: len(select(told[seen:], "began", 3)) == 3 and len(select(told[seen:], "step")) > 20)
            # A node is gone for good, with its agent.
            seen = len(told)
            agents.kill(2)
            told = agents.wait_until("two at last", lambda told: len(select(told[seen:], "began", 2)) >= 2 and len(select(told[seen:], "step")) > 20)
        assert all(line["workers"] == line["ranks"] for line in select(told, "began"))
        began = select(told, "began")
        # How long from the start of the ranks' program to the first step: the session does not wait for time-outs of the dead, 60 s, however
        # busy the machine is.
        steps = select(told, "step")
        first = [min(step["at"] for step in steps if step["pid"] == line["pid"]) - line["at"] for line in began if any(step["pid"] == line["pid"] for step in steps)]
        assert max(first) < 45, first
    finally:
        agents.close()
