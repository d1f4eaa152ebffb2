"""Real ``thc-ps`` and ``thc-controller`` processes for tests."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import thc
from patience import HANG

REPOSITORY = Path(__file__).resolve().parents[2]
COOKIE = 0x5EED_C0DE


def joining(**options: Any) -> dict[str, Any]:
    """Options of a group: those that are fields of :class:`thc.Join` in one, the others as they are."""
    fields = {each.name for each in dataclasses.fields(thc.Join)} & options.keys()
    join = {"join": thc.Join(**{name: options.pop(name) for name in fields})} if fields else {}
    return {**options, **join}


def program(name: str = "thc-ps") -> Path | None:
    """A program: what ``THC_PS_PROGRAM`` and the like names, or the newest build."""
    if named := os.environ.get(f"{name.upper().replace('-', '_')}_PROGRAM"):
        return Path(named)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    builds = [target / profile / name for profile in ("debug", "release")]
    found = [path for path in builds if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


class Process:
    """A program that runs until it is killed, or until the process that started it ends, however that ends."""

    def __init__(self, name: str, configuration: str, *arguments: str, host: Sequence[str] = ()) -> None:
        binary = program(name)
        assert binary is not None, f"{name} is not built: cargo build -p {name}"
        self.name = name
        self.folder = tempfile.TemporaryDirectory(prefix="thc-test-")
        config = Path(self.folder.name) / f"{name}.toml"
        config.write_text(configuration)
        command = [str(binary), *arguments, "--config", str(config)]
        if setpriv := shutil.which("setpriv"):
            # A rank may be killed by a signal that lets it do nothing more; the kernel ends its children then.
            command = [setpriv, "--pdeathsig", "KILL", *command]
        # What comes before a command so that it runs on another host.
        command = [*host, *command]
        self._log = Path(self.folder.name) / "log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, bufsize=0)
        self.said = ""

    def hear(self, pattern: str) -> str:
        """Waits until it has said something, and returns the first group of the pattern."""
        assert self.process.stdout is not None
        pipe, until = self.process.stdout.fileno(), time.monotonic() + HANG
        while not (found := re.search(pattern, self.said, re.MULTILINE)):
            # Not select: with many process groups a rank has more than 1,024 files open.
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            ready = poll.poll(1000 * max(0.0, until - time.monotonic()))
            part = os.read(pipe, 4096) if ready else b""
            if not part:
                self.kill()
                raise AssertionError(f"{self.name} did not start: {self._log.read_text()}")
            self.said += part.decode()
        return found[1]

    def kill(self) -> None:
        """Ends it at once, as if its host had died."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(HANG)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.folder.cleanup()


def _toml(value: Any) -> str:
    """As a configuration has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


started: list[ParameterServer] = []
"""The servers of this process."""


class ParameterServer(Process):
    """A running thc-ps with jobs 1, 2, …, each given by keys as in thc-ps' configuration; without any, for a controller.
    With `dpdk`, the keys of that section, it runs past the kernel."""

    def __init__(
        self,
        *jobs: dict[str, Any],
        listen: str = "127.0.0.1:0",
        dpdk: dict[str, Any] | None = None,
        host: Sequence[str] = (),
    ) -> None:
        text = [f'listen = "{listen}"']
        if dpdk is not None:
            # Text, numbers, flags and lists of them look the same in JSON and TOML.
            text += ['io = "dpdk"', "[dpdk]", *(f"{key} = {json.dumps(value)}" for key, value in dpdk.items())]
        if not jobs:
            text += ["[p4runtime]", 'listen = "127.0.0.1:0"']
        for number, job in enumerate(jobs, 1):
            text.append("[[job]]")
            keys: dict[str, Any] = {"job": number, "cookie": hex(COOKIE), "workers": 2, **job}
            text += [f"{key} = {_toml(value)}" for key, value in keys.items()]
        super().__init__("thc-ps", "\n".join(text) + "\n", host=host)
        self.address = self.hear(r"^ready (\S+)\n")
        started.append(self)


class Controller(Process):
    """A running thc-controller of one thc-ps, with jobs by name, each given by keys as in its configuration."""

    def __init__(self, server: ParameterServer, **jobs: dict[str, Any]) -> None:
        p4runtime = server.hear(r"^p4runtime (\S+)\n")
        ip, _, port = server.address.rpartition(":")
        ip = ip.strip("[]")
        text = ["[[target]]", 'name = "ps"', f'address = "{p4runtime}"', f'ip = "{ip}"', f"udp_port = {port}"]
        for name, job in jobs.items():
            keys: dict[str, Any] = {"name": name, "workers": 2, "data_slots": 64, **job}
            text += ["[[job]]"]
            text += [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
        super().__init__("thc-controller", "\n".join(text) + "\n", "run", "--state", "none", "--listen", "127.0.0.1:0")
        self.address = self.hear(r"^ready (\S+)\n")

    def url(self, job: str) -> str:
        return f"thc://{self.address}/{job}"
