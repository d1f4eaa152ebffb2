"""The processes of one part of the benchmark: a parameter server and n training processes, in namespaces or on
loopback. Everything is bounded in time, and nothing is left behind."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from links import Failed, Network

REPOSITORY = Path(__file__).resolve().parents[2]


def find_server() -> Path | None:
    """thc-ps as packages have it, or that on the PATH."""
    named = os.environ.get("THC_PS_PROGRAM")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    on_path = shutil.which("thc-ps")
    candidates = [Path(p) for p in (named, target / "dist" / "thc-ps", on_path) if p]
    return next((path for path in candidates if path.is_file()), None)


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[Any], patience: float = 3.0) -> None:
    """Ends a process, kindly first."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tables(workers: int) -> str:
    """Those of a job whose hooks choose."""
    if find_spec("thc") is None or find_spec("torch") is None:
        return ""
    from thc.torch.parts.tables import tables_for

    return ", ".join("{ " + table.replace("=", " = ") + " }" for table in tables_for(workers))


class Server:
    """thc-ps with a job for each method that has one; job 3 has the tables of hooks that choose."""

    def __init__(self, program: Path, workers: int, address: str, prefix: list[str], cookie: int, folder: Path):
        jobs = "".join(
            f'[[job]]\njob = {job}\ncookie = "{cookie:#x}"\nworkers = {workers}\n'
            + (f"tables = [{_tables(workers)}]\n" if job == 3 else "")
            for job in (1, 3, 4))
        name = f"thc-ps-{address.rpartition(':')[2]}"
        config = folder / f"{name}.toml"
        config.write_text(f'listen = "{address}"\n{jobs}')
        self.address = address
        with (folder / f"{name}.log").open("w") as log:
            self.process = subprocess.Popen([*prefix, str(program), "--config", str(config)],
                                            stdout=subprocess.PIPE, stderr=log, bufsize=0)
        if not self._ready(time.monotonic() + 10):
            end(self.process)
            raise Failed(f"thc-ps did not start: {(folder / f'{name}.log').read_text().strip()[-300:]}")

    def _ready(self, until: float) -> bool:
        assert self.process.stdout is not None
        said, pipe = b"", self.process.stdout.fileno()
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(pipe, 4096)
            said += part
            if b"ready " in said:
                return True
            if not part:
                return False
        return False


class Crew:
    """Training processes that wait for commands, and their server; a context manager that ends them."""

    def __init__(self, workers: int, program: Path | None, folder: Path, network: Network | None = None) -> None:
        self.workers, self.network = workers, network
        self._program, self._folder = program, folder
        self._server: Server | None = None
        self._trainers: list[subprocess.Popen[bytes]] = []
        self.parameters: dict[str, int] = {}

    def __enter__(self) -> "Crew":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        network, cookie = self.network, secrets.randbits(32)
        if self._program is not None:
            address = f"{network.server}:9000" if network else f"127.0.0.1:{free_port()}"
            prefix = network.prefix("ps") if network else []
            self._server = Server(self._program, self.workers, address, prefix, cookie, self._folder)
        settings = {"server": self._server.address if self._server else None, "cookie": cookie}
        environment = os.environ | {
            "MASTER_ADDR": network.worker(0) if network else "127.0.0.1",
            "MASTER_PORT": str(29500 if network else free_port()),
            "GLOO_SOCKET_IFNAME": "eth0" if network else "lo",
            "WORLD_SIZE": str(self.workers), "LOCAL_WORLD_SIZE": str(self.workers),
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
        }
        for rank in range(self.workers):
            prefix = network.prefix(f"w{rank}") if network else []
            with (self._folder / f"trainer-{rank}.log").open("w") as log:
                self._trainers.append(subprocess.Popen(
                    [*prefix, sys.executable, str(Path(__file__).with_name("trainer.py")), json.dumps(settings)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
                    env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        self.parameters = self._answers(90)[0]["parameters"]

    def ask(self, timeout: float, **command: Any) -> list[dict[str, Any]]:
        """Gives all trainers a command and returns their answers, by rank."""
        line = (json.dumps(command) + "\n").encode()
        for trainer in self._trainers:
            assert trainer.stdin is not None
            try:
                trainer.stdin.write(line)
            except OSError as error:
                raise Failed(f"a training process has ended: {self._last_words()}") from error
        return self._answers(timeout)

    def _answers(self, timeout: float) -> list[dict[str, Any]]:
        until = time.monotonic() + timeout
        received = {trainer.stdout.fileno(): b"" for trainer in self._trainers if trainer.stdout}
        order = list(received)
        while waiting := [fd for fd, text in received.items() if not text.endswith(b"\n")]:
            ready, _, _ = select.select(waiting, [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise Failed(f"no answer within {timeout:.0f} s")
            for fd in ready:
                part = os.read(fd, 1 << 20)
                if not part:
                    raise Failed(f"a training process has ended: {self._last_words()}")
                received[fd] += part
        answers = [json.loads(received[fd]) for fd in order]
        for rank, answer in enumerate(answers):
            if "error" in answer:
                raise Failed(f"rank {rank}: {answer['error']}")
        return answers

    def _last_words(self) -> str:
        words = []
        for log in sorted(self._folder.glob("trainer-*.log")):
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                words.append(f"{log.stem}: {lines[-1]}")
        return "; ".join(words) or "without a word"

    def __exit__(self, *_: object) -> None:
        for trainer in self._trainers:
            if trainer.stdin is not None:
                trainer.stdin.close()
        until = time.monotonic() + 3
        for trainer in self._trainers:
            try:
                trainer.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                end(trainer, 0.5)
        if self._server is not None:
            end(self._server.process)
