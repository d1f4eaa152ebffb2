"""How workers join a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from thc.errors import ConfigError
from thc.job_options import JobOptions

OWN_SERVER = ("server", "address", "port", "colocated")
"""Fields of a server that the workers run themselves."""


class OptionSet:
    """Options as a dataclass, of which most have their defaults."""

    def given(self) -> dict[str, Any]:
        """The fields that do not have their defaults."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}  # type: ignore[arg-type] # of a dataclass

    def __repr__(self) -> str:
        # As in a signature that help shows. A secret is in no message.
        given = (f"{name}={'…' if name == 'cookie' else repr(value)}" for name, value in self.given().items())
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Join(OptionSet):
    """How workers join a job, and how its packets travel. Times are seconds, or text such as ``"200ms"``; a field that is ``None`` is left to
    the environment (``THC_`` and the field's name in capitals), and then has the value in brackets.

    - ``ps``: the parameter server as ``"host:port"``, or a controller's job as ``"thc://controller:port/job"`` [the workers run a server].
    - ``job``: the job's number [1].
    - ``cookie``: the job's secret [of the workers' own server: random].
    - ``server``: options of :class:`thc.Server` for a server that the workers run themselves, such as ``{"quorum": 7}``.
    - ``address``: this host's address as the other hosts see it, for that server.
    - ``port``: the UDP port of that server [any free port]; the k-th of several jobs has the k-th port from there.
    - ``colocated``: whether each host runs a share of that server, or the first worker all of it [shares, where there are several hosts and no quorum].
    - ``rails``: whether the k-th ranks of all hosts have the k-th job to themselves, behind a sum inside each host ["auto": on GPUs with NCCL].
    - ``join_timeout``: how long to wait for the other workers [60 s].
    - ``timeout``: how long an all-reduce may stand still [60 s].
    - ``patience``: how long it may stand still while the server answers and other workers are late [``timeout``; in ``thc.torch`` that of the process group].
    - ``min_rto``: the shortest time before a packet is sent again [20 ms].
    - ``bind``: the address and port to send from, such as ``"10.0.0.2:0"``.
    - ``recv_buffer``: bytes of the socket's buffer for what comes.
    - ``send_buffer``: bytes of the socket's buffer for what goes.
    - ``io``: ``"dpdk"`` sends past the kernel, if the package was built with DPDK.
    - ``dpdk``: the keys of the section ``[dpdk]``, such as ``{"devices": ["0000:3b:00.1"], "address": "10.0.0.2/24"}``.
    - ``controller_ca``: the PEM file of a controller's authority, for ``thcs://``.
    - ``controller_cert``: the PEM file of this worker's certificate, for ``thcs://``.
    - ``controller_key``: the PEM file of this worker's key, for ``thcs://``.
    - ``inject``: faults for tests, such as ``"loss=0.01"``.
    - ``inject_seed``: the seed of these faults.
    """

    ps: str | None = None
    job: int | None = None
    cookie: int | str | None = None
    server: JobOptions | dict[str, Any] | None = None
    address: str | None = None
    port: int | None = None
    colocated: bool | None = None
    rails: bool | Literal["auto"] = "auto"
    join_timeout: float | str | None = None
    timeout: float | str | None = None
    patience: float | str | None = None
    min_rto: float | str | None = None
    bind: str | None = None
    recv_buffer: int | None = None
    send_buffer: int | None = None
    io: str | None = None
    dpdk: Mapping[str, Any] | None = None
    controller_ca: str | os.PathLike[str] | None = None
    controller_cert: str | os.PathLike[str] | None = None
    controller_key: str | os.PathLike[str] | None = None
    inject: str | None = None
    inject_seed: int | None = None

    def __post_init__(self) -> None:
        if self.rails not in (True, False, "auto"):
            raise ConfigError(f'rails is {self.rails!r}: write True, False or "auto"')
        own = self.own_server()
        if self.ps is not None and own:
            raise ConfigError(f"{', '.join(own)}: these are options of a server that the workers run themselves, and ps names another one: leave them out")

    def own_server(self) -> list[str]:
        """The fields of :data:`OWN_SERVER` that are given: then the workers run a server themselves, whatever the environment names."""
        return [name for name in OWN_SERVER if getattr(self, name) is not None]

    def filled(self, told: Mapping[str, Any]) -> Join:
        """The same, with what is told for fields that are ``None``."""
        return replace(self, **{each.name: told[each.name] for each in fields(self) if each.name in told and getattr(self, each.name) is None})
