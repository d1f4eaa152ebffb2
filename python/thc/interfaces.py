"""The network interface that NCCL or gloo is told to use, which is then this library's, too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thc.errors import ConfigError

VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""The variables that name interfaces, the first one that is set counts."""

SIOCGIFADDR = 0x8915


def _address(interface: str, ipv6: bool = False) -> str | None:
    """The address of an interface, if it has one: of IPv4, or of IPv6 for other hosts than those on its link."""
    if ipv6:
        return next((address for name, address in _ipv6_addresses() if name == interface), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def _ipv6_addresses() -> Iterator[tuple[str, str]]:
    """Interfaces and their addresses of IPv6, those that need no interface to be named with them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, name = line.split()
            # Global ones and the host's own.
            if scope in ("00", "10"):
                yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def is_loopback(address: str) -> bool:
    """Whether no packet to or from an address leaves the host."""
    bare = address.strip("[]")
    return bare.startswith("127.") or bare in ("::1", "localhost")


def _is_ipv6(ps: str) -> bool:
    """Whether packets to a parameter server at ``host:port`` are of IPv6."""
    host = ps.rpartition(":")[0]
    if host.startswith("["):
        return True
    try:
        return all(found[0] == socket.AF_INET6 for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM))
    except OSError:
        # That there is no such host is said when it is joined.
        return False


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


def chosen_address(usual: str | None = None, ipv6: bool | None = None) -> str | None:
    """The address of the interface that :data:`VARIABLES` choose, of several the ``usual`` one or the first; nothing where none of them is
    set. It is one of IPv6 if that is asked for, or if nothing is and the interface has no other. Raises :exc:`~thc.ConfigError` if the interface is not there or has no such address."""
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
        families = (False, True) if ipv6 is None else (ipv6,)
        # A link's IPv4 address comes first, as where names have both.
        addresses = next((some for family in families if (some := [each for name in found if (each := _address(name, family)) is not None])), [])
        if not addresses:
            kind = {True: "IPv6", False: "IPv4", None: "usable"}[ipv6]
            raise ConfigError(
                f"{variable} is {text!r}, and {', '.join(found)} has no {kind} address: name another interface, or set THC_ADDRESS to this host's address"
            )
        return usual if usual in addresses else addresses[0]
    return None


def bind_option(ps: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The option ``bind`` of a group whose server is at ``ps``: the chosen interface's address, where nothing else is said. Past the kernel
    there is no such interface, and from the loopback one no packet leaves the host."""
    if options.get("bind") is not None or options.get("io") == "dpdk" or os.environ.get("THC_ADDRESS") or is_loopback(ps.rpartition(":")[0]):
        return {}
    if not any(os.environ.get(variable, "").strip() for variable in VARIABLES):
        return {}
    address = chosen_address(ipv6=False if ps.startswith(("thc://", "thcs://")) else _is_ipv6(ps))
    if address is None or is_loopback(address):
        return {}
    return {"bind": f"[{address}]:0" if ":" in address else f"{address}:0"}
