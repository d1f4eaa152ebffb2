"""Real ``thc-ps`` processes for tests."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
COOKIE = 0x5EED_C0DE


def program() -> Path | None:
    """thc-ps: what ``THC_PS_PROGRAM`` names, or the newest build."""
    if named := os.environ.get("THC_PS_PROGRAM"):
        return Path(named)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    builds = [target / profile / "thc-ps" for profile in ("debug", "release")]
    found = [path for path in builds if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


class ParameterServer:
    """A running thc-ps with jobs 1, 2, …, each given by keys as in thc-ps' configuration."""

    def __init__(self, *jobs: dict[str, Any], listen: str = "127.0.0.1:0") -> None:
        binary = program()
        assert binary is not None, "thc-ps is not built: cargo build -p thc-ps"
        self.folder = tempfile.TemporaryDirectory(prefix="thc-test-")
        text = [f'listen = "{listen}"']
        for number, job in enumerate(jobs, 1):
            text.append("[[job]]")
            keys: dict[str, Any] = {"job": number, "cookie": hex(COOKIE), "workers": 2, **job}
            text += [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
        config = Path(self.folder.name) / "thc-ps.toml"
        config.write_text("\n".join(text) + "\n")
        self._log = Path(self.folder.name) / "log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [str(binary), "--config", str(config)], stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        self.address = self._ready()

    def _ready(self) -> str:
        assert self.process.stdout is not None
        said, pipe, until = b"", self.process.stdout.fileno(), time.monotonic() + 20
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(pipe, 4096)
            said += part
            if found := re.search(rb"^ready (\S+)\n", said, re.MULTILINE):
                return found[1].decode()
            if not part:
                break
        self.kill()
        raise AssertionError(f"thc-ps did not start: {self._log.read_text()}")

    def kill(self) -> None:
        """Ends it at once, as if its host had died."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> ParameterServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.folder.cleanup()
