"""Starts the processes of trainings, hands on what rank 0 says, and leaves none behind."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crew import Server, end, find_server, free_port

RANK = Path(__file__).with_name("rank.py")


def carry_out(runs: list[dict[str, Any]], workers: int, folder: Path, until: float, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """All runs, one after the other in the same processes; those of THC in processes with a server."""
    for with_server in (False, True):
        part = [run for run in runs if (run["family"] == "THC") == with_server]
        if not part:
            continue
        if not with_server:
            yield from _crew(part, workers, folder, until, {}, say)
            continue
        program = find_server()
        if program is None:
            say("not run: THC: thc-ps not found (cargo build --release -p thc-ps, or THC_PS_PROGRAM=PATH)")
            continue
        with tempfile.TemporaryDirectory() as place:
            cookie = secrets.randbits(32)
            server = Server(program, workers, f"127.0.0.1:{free_port()}", [], cookie, Path(place))
            try:
                given = {"ps": server.address, "job": 3, "cookie": cookie}
                yield from _crew(part, workers, folder, until, {"BENCH_GROUP": json.dumps(given)}, say)
            finally:
                end(server.process)


def _crew(runs: list[dict[str, Any]], workers: int, folder: Path, until: float, variables: dict[str, str],
          say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(workers),
                                "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **variables}
    ranks = []
    for rank in range(workers):
        with (folder / f"rank-{rank}.log").open("w") as log:
            ranks.append(subprocess.Popen([sys.executable, str(RANK), json.dumps(runs)], env=environment | {"RANK": str(rank)},
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, stderr=log, text=True))
    done = 0
    try:
        assert ranks[0].stdout is not None
        for line in ranks[0].stdout:
            done += 1
            yield json.loads(line)
            if time.monotonic() > until:
                break
    finally:
        for process in ranks:
            if done == len(runs):
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass
            end(process)
    if done < len(runs):
        last = (folder / "rank-0.log").read_text().strip().splitlines()
        why = "time is up" if time.monotonic() > until else last[-1] if last else "rank 0 ended"
        say(f"not run: {len(runs) - done} trainings: {why}")
