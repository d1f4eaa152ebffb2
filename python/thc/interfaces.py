"""The network interface that NCCL or gloo is told to use, which is then this library's, too."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from collections.abc import Mapping
from typing import Any

from thc.errors import ConfigError

__all__ = ["VARIABLES", "bind_option", "chosen_address"]

VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""The variables that name interfaces, the first one that is set counts."""

SIOCGIFADDR = 0x8915


def _address(interface: str) -> str | None:
    """The IPv4 address of an interface, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def _match_interfaces(variable: str, text: str, names: list[str]) -> list[str]:
    """The interfaces that a variable means. NCCL takes prefixes, whole names behind ``=``, and with ``^`` in front all others; gloo takes
    whole names."""
    exact, excludes = variable == "GLOO_SOCKET_IFNAME", False
    if not exact:
        excludes = text.startswith("^")
        text = text.removeprefix("^")
        exact = text.startswith("=")
        text = text.removeprefix("=")
    wanted = [each.strip() for each in text.split(",") if each.strip()]

    def matches(name: str, pattern: str) -> bool:
        return name == pattern if exact else name.startswith(pattern)

    if excludes:
        return [name for name in names if name != "lo" and not any(matches(name, pattern) for pattern in wanted)]
    # In the order in which they are given: NCCL and gloo prefer the first.
    return [name for pattern in wanted for name in names if matches(name, pattern)]


def chosen_address(usual: str | None = None) -> str | None:
    """The IPv4 address of the interface that :data:`VARIABLES` choose, of several the ``usual`` one or the first; nothing where none of them is
    set. Raises :exc:`~thc.ConfigError` if the interface is not there or has no such address."""
    for variable in VARIABLES:
        text = os.environ.get(variable, "").strip()
        if not text:
            continue
        names = [name for _, name in socket.if_nameindex()]
        found = _match_interfaces(variable, text, names)
        if not found:
            raise ConfigError(
                f"{variable} is {text!r}, and this host has no such interface: it has {', '.join(sorted(names)) or 'none'}; "
                "correct it, or set THC_ADDRESS to this host's address"
            )
        addresses = [each for each in map(_address, found) if each is not None]
        if not addresses:
            raise ConfigError(
                f"{variable} is {text!r}, and {', '.join(found)} has no IPv4 address: name another interface, or set THC_ADDRESS to this host's address"
            )
        return usual if usual in addresses else addresses[0]
    return None


def bind_option(ps: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The option ``bind`` of a group whose server is at ``ps``: the chosen interface's address, where nothing else is said. Past the kernel
    there is no such interface, and from the loopback one no packet leaves the host."""
    if options.get("bind") is not None or options.get("io") == "dpdk" or os.environ.get("THC_ADDRESS") or ps.startswith(("127.", "localhost:")):
        return {}
    address = chosen_address()
    return {} if address is None or address.startswith("127.") else {"bind": f"{address}:0"}
