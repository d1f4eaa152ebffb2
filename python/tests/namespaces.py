"""Hosts for tests: network namespaces, each with one interface, on a bridge. Nothing else of this machine is touched."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from patience import HANG

_networks = itertools.count()


class NotPossible(Exception):
    """There can be no namespaces here: says why."""


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise NotPossible(f"{command[0]} not found (Debian: apt-get install iproute2)")
    done = subprocess.run(command, text=True, capture_output=True, timeout=HANG)
    if done.returncode != 0:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """So many hosts, each with the interface `eth0` and two addresses: the kernel's and one that it does not know of,
    in another network, for who goes past it. A context manager that removes them again."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
        # Of this form they go with the networks that a killed test has left, see demo/netns.
        self._base = f"thc-{os.getpid()}-py{next(_networks)}"
        self._made: list[str] = []

    def kernel(self, number: int) -> str:
        """The address that the kernel of a host has."""
        return f"10.76.0.{number + 1}"

    def beyond(self, number: int) -> str:
        """The address that is left for a program on a host."""
        return f"10.75.0.{number + 1}"

    def host(self, number: int) -> list[str]:
        """What comes before a command so that it runs on a host, as the same process."""
        return ["ip", "netns", "exec", f"{self._base}-{number}"]

    def _namespace(self, what: object) -> str:
        name = f"{self._base}-{what}"
        _run("ip", "netns", "add", name)
        self._made.append(name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def __enter__(self) -> Network:
        try:
            bridge = self._namespace("bridge")
            _run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", bridge, "link", "set", "br0", "up")
            for number in range(self.hosts):
                name, port = self._namespace(number), f"port{number}"
                _run("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
                _run("ip", "-n", bridge, "link", "set", port, "master", "br0", "up")
                _run("ip", "-n", name, "address", "add", f"{self.kernel(number)}/24", "dev", "eth0")
                _run("ip", "-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=HANG)
        self._made.clear()
