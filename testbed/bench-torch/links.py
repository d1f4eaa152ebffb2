"""Shaped links: one network namespace per training process, all joined by a bridge.

    worker 0 ──veth──┐
    worker 1 ──veth──┤ bridge ("the switch") ──veth── parameter server
    …                ┘

Both ends of a worker's veth pair have a `tc tbf`, so a link carries its rate in each direction at the same
time. The server's port stands for the aggregation in the switch, which has a full-rate port for every worker, and
is not shaped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

# With the process's id behind it, what testbed/netns begins names with too: either removes what a killed process has left.
PREFIX = "thc"
SUBNET = "10.76.0"
# A GSO packet is up to 64 KiB and must fit the bucket, or the kernel cuts it up before shaping.
BURST = {"default": "256kb", "fast": "1mb"}
# What a port of a small switch buffers; packets beyond are dropped.
QUEUE = "2mb"


class NotPossible(Exception):
    """Namespaces cannot be made here; says why."""


class Failed(Exception):
    """A part did not work; says what."""


def why_not() -> str | None:
    """What is missing for namespaces, if anything."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"{program} not found (Debian: apt-get install iproute2)"
    name = f"{PREFIX}-{os.getpid()}-try"
    done = _run("ip", "netns", "add", name, check=False)
    if done.returncode != 0:
        return f"ip netns add failed: {done.stderr.strip()}"
    shaped = _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1gbit",
                  "burst", "256kb", "limit", "2mb", check=False)
    _run("ip", "netns", "del", name, check=False)
    if shaped.returncode != 0:
        return f"tc tbf is not available: {shaped.stderr.strip()}"
    return None


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise NotPossible(f"{command[0]} not found (Debian: apt-get install iproute2)")
    done = subprocess.run(command, text=True, capture_output=True, timeout=600)
    if check and done.returncode != 0:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.strip()}")
    return done


def _remove_stale() -> None:
    """Removes namespaces of runs whose process is gone."""
    listing = _run("ip", "netns", "list", check=False).stdout
    for name, pid in re.findall(rf"^({PREFIX}-(\d+)-\S+)", listing, re.MULTILINE):
        if not Path(f"/proc/{pid}").exists():
            _run("ip", "netns", "del", name, check=False)


class Network:
    """Namespaces for `workers` processes and a server; a context manager that removes them again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._base = f"{PREFIX}-{os.getpid()}"
        self._made: list[str] = []

    def __enter__(self) -> "Network":
        try:
            _remove_stale()
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._made):
            _run("ip", "netns", "del", name, check=False)
        self._made.clear()

    def _namespace(self, role: str) -> str:
        name = f"{self._base}-{role}"
        _run("ip", "netns", "add", name)
        self._made.append(name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def _build(self) -> None:
        switch = self._namespace("switch")
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for port in [*map(str, range(self.workers)), "ps"]:
            role = port if port == "ps" else f"w{port}"
            name = self._namespace(role)
            _run("ip", "-n", switch, "link", "add", f"port{port}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "-n", switch, "link", "set", f"port{port}", "master", "br0", "up")
            address = self.server if port == "ps" else self.worker(int(port))
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")

    @property
    def server(self) -> str:
        """The server's address."""
        return f"{SUBNET}.254"

    def worker(self, number: int) -> str:
        """A worker's address."""
        return f"{SUBNET}.{number + 1}"

    def prefix(self, role: str) -> list[str]:
        """What to put before a command that shall run at `role`: w0, w1, …, ps."""
        return ["ip", "netns", "exec", f"{self._base}-{role}"]

    def shape(self, gigabits: float | None) -> None:
        """Sets the rate of all workers' links; None: as fast as it goes."""
        ends = [(f"{self._base}-w{i}", "eth0") for i in range(self.workers)]
        ends += [(f"{self._base}-switch", f"port{i}") for i in range(self.workers)]
        for namespace, device in ends:
            _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root", check=False)
            if gigabits is not None:
                burst = BURST["fast" if gigabits > 5 else "default"]
                _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf",
                     "rate", f"{round(gigabits * 1000)}mbit", "burst", burst, "limit", QUEUE)
