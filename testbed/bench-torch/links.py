"""Shaped links: one network namespace per training process, all joined by a bridge.

    worker 0 ──veth──┐
    worker 1 ──veth──┤ bridge ("the switch") ──veth── parameter server
    …                ┘

Both ends of a worker's veth pair have a `tc tbf`, so a link carries its rate in each direction at the same
time. The server's port stands for the aggregation in the switch, which has a full-rate port for every worker, and
is not shaped unless asked for.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

# With the process's id behind it, what testbed/netns begins names with too: either removes what a killed process has left.
PREFIX = "thc"
SUBNET = "10.76.0"
PROBE_PORT = 5201
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

    def run(self, words: list[str], limit: float, ranks: int = 1) -> None:
        """Runs a command of this program as so many ranks on each worker's host, with what torchrun tells ranks, until all have ended."""
        world = self.workers * ranks
        environment = os.environ | {
            "MASTER_ADDR": self.worker(0), "MASTER_PORT": "29500", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(ranks),
            "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": secrets.token_hex(4),
        }  # fmt: skip
        processes = []
        try:
            for rank in range(world):
                host, local = divmod(rank, ranks)
                command = [*self.prefix(f"w{host}"), sys.executable, str(Path(__file__).parent), *words]
                processes.append(subprocess.Popen(command, env=environment | {"RANK": str(rank), "LOCAL_RANK": str(local)}))
            until = time.monotonic() + limit
            for rank, process in enumerate(processes):
                if process.wait(max(1.0, until - time.monotonic())):
                    raise Failed(f"rank {rank} failed")
        except subprocess.TimeoutExpired:
            raise Failed(f"not over after {limit:.0f} s") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def shape(self, gigabits: float | None, server: float | None = None) -> None:
        """Sets the rate of all workers' links, and of the server's port; None: as fast as it goes."""
        ends = [(f"{self._base}-w{i}", "eth0", gigabits) for i in range(self.workers)]
        ends += [(f"{self._base}-switch", f"port{i}", gigabits) for i in range(self.workers)]
        ends += [(f"{self._base}-ps", "eth0", server), (f"{self._base}-switch", "portps", server)]
        for namespace, device, rate in ends:
            _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root", check=False)
            if rate is not None:
                burst = BURST["fast" if rate > 5 else "default"]
                _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf",
                     "rate", f"{round(rate * 1000)}mbit", "burst", burst, "limit", QUEUE)

    def lose(self, share: float) -> None:
        """Drops this share of all packets on their way from the bridge to each host, so in each direction, by chance: by netem where the
        kernel has it, else by a classifier. Rates of links set by `shape` are gone then."""
        ports = [*map(str, range(self.workers)), "ps"]
        for port in ports:
            # One packet at a time: else up to 64 would be lost together.
            role = port if port == "ps" else f"w{port}"
            _run("ip", "-n", f"{self._base}-{role}", "link", "set", "dev", "eth0", "gso_max_segs", "1")
            on = ["tc", "-n", f"{self._base}-switch", "qdisc"]
            device = f"port{port}"
            _run(*on, "del", "dev", device, "root", check=False)
            if _run(*on, "add", "dev", device, "root", "netem", "loss", f"{100 * share:g}%", check=False).returncode == 0:
                continue
            # 4: load, here a random word (SKF_AD_RANDOM); 53: go on behind the next if it is at least that; 6: return whether it matches.
            below = min(round(share * 2**32), 2**32 - 1)
            program = f"4,32 0 0 {2**32 - 0x1000 + 56},53 1 0 {below},6 0 0 {2**32 - 1},6 0 0 0"
            _run(*on, "add", "dev", device, "root", "handle", "1:", "htb", "default", "1")
            for number in ("1:1", "1:2"):
                _run("tc", "-n", f"{self._base}-switch", "class", "add", "dev", device, "parent", "1:", "classid", number,
                     "htb", "rate", "100gbit", "quantum", "60000")
            _run(*on, "add", "dev", device, "parent", "1:2", "pfifo", "limit", "0")
            _run("tc", "-n", f"{self._base}-switch", "filter", "add", "dev", device, "parent", "1:", "bpf", "bytecode", program, "flowid", "1:2")

    def measure(self, seconds: float = 0.5) -> dict[str, float]:
        """What a TCP stream achieves, in Gb/s of payload: between two workers and from a worker to the server."""
        ways = {"w0→w1": ("w0", "w1", self.worker(1)), "w1→w0": ("w1", "w0", self.worker(0)),
                "w0→ps": ("w0", "ps", self.server)}
        return {name: self._stream(*way, seconds) for name, way in ways.items()}

    def _stream(self, source: str, sink: str, address: str, seconds: float) -> float:
        probe = [sys.executable, str(Path(__file__).with_name("probe.py"))]
        listener = subprocess.Popen([*self.prefix(sink), *probe, "receive", address, str(PROBE_PORT)],
                                    stdout=subprocess.PIPE, text=True)
        try:
            assert listener.stdout is not None
            listener.stdout.readline()
            subprocess.run([*self.prefix(source), *probe, "send", address, str(PROBE_PORT), str(seconds)],
                           check=True, timeout=seconds + 20)
            result = float(listener.communicate(timeout=20)[0])
        finally:
            if listener.poll() is None:
                listener.kill()
                listener.wait()
        time.sleep(0.05)
        return result
