"""What the groups of this process have done, for Prometheus."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from thc import _native
from thc.environment import number as number_of
from thc.errors import ConfigError
from thc.base_group import BaseGroup, open_groups
from thc.stats import Stats, Training

TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Read = Callable[[Stats, Training], float]
Family = tuple[str, str, str, Read]
"""Name, kind, meaning, and how its value is read."""


def _reader(field: str) -> Read:
    return lambda stats, _: getattr(stats, field)


# What a group counts has the names and texts of the library.
_FAMILIES: list[Family] = [
    *((f"thc_group_{name}", kind, what, _reader(field)) for field, name, kind, what in _native.group_metrics()),
    ("thc_training_steps", "counter", "steps that were measured", lambda _, training: training.steps),
    ("thc_training_computing_seconds", "counter", "steps without waiting", lambda stats, _: stats.computing),
    ("thc_training_waited_seconds", "counter", "waiting for gradients", lambda stats, _: stats.waited),
]


def text() -> str:
    """All open groups, as OpenMetrics."""
    groups = [(group, group.stats()) for group in open_groups()]
    return "".join(_lines(groups))


def _lines(groups: list[tuple[BaseGroup, Stats]]) -> Iterator[str]:
    for name, kind, what, read in _FAMILIES:
        yield f"# TYPE {name} {kind}\n# HELP {name} {what}\n"
        for group, stats in groups:
            # All digits: a rate is a difference of two large numbers.
            value = repr(float(read(stats, group.training))).replace("inf", "+Inf").replace("nan", "NaN")
            yield f'{name}{"_total" if kind == "counter" else ""}{{thc_job="{group.job_number}",worker="{group.worker}"}} {value}\n'
    yield "# EOF\n"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path.partition("?")[0] == "/metrics"
        body = text().encode() if known else b"there is only /metrics\n"
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", TYPE if known else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: training's output is no place for it."""


class _OverIpv6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class Metrics:
    """Answers Prometheus; made by :func:`serve_metrics`."""

    def __init__(self, host: str, port: int) -> None:
        kind = _OverIpv6 if ":" in host else ThreadingHTTPServer
        self._server = kind((host, port), _Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="thc-metrics", daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        host, port = self._server.server_address[:2]
        text = host if isinstance(host, str) else host.decode()
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"

    def close(self) -> None:
        """Answers no more."""
        self._server.shutdown()
        self._server.server_close()


def serve_metrics(address: str) -> Metrics:
    """Has this process answer Prometheus at ``http://ADDRESS/metrics``, such as ``"127.0.0.1:9702"``, on a thread, for all its groups: what
    they sent, and how training's steps hide it. The ranks of a host take neighbouring ports: that one, and the next for each further ``LOCAL_RANK``; port
    0 is any free one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"address is {address!r}: write host:port, like 127.0.0.1:9702")
    try:
        number = int(port) + (number_of("LOCAL_RANK", None, 0) if int(port) else 0)
        return Metrics(host.strip("[]"), number)
    except OSError as error:
        raise ConfigError(f"cannot answer Prometheus at {address}: {error.strerror or error}") from error
