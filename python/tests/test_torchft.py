"""torchft's own manager and lighthouse over `thc.torchft`: a replica is killed, another comes, and training goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import needs, newest_has
from patience import HANG

newest_has("torchft")
needs("torch", "torchft")


class Replica:
    def __init__(self, name: str, lighthouse: str, folder: Path) -> None:
        self._report, self._log = folder / name, folder / f"log-{name}"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("torchft_replica.py")), name, lighthouse, str(folder)],
                stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def lines(self) -> list[list[str]]:
        text = self._report.read_text() if self._report.exists() else ""
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def steps(self) -> list[tuple[int, int, float, int]]:
        return [(int(step), int(members), float(loss), int(calls)) for step, members, loss, calls in (line for line in self.lines() if line[0] != "end")]

    def wait(self, until: Callable[[Replica], bool]) -> None:
        began, seen = time.monotonic(), 0
        while not until(self):
            if len(self.lines()) > seen:
                began, seen = time.monotonic(), len(self.lines())
            assert self.process.poll() is None and time.monotonic() - began < HANG, self._log.read_text()[-3000:]
            time.sleep(0.05)


def test_a_replica_is_killed_and_another_comes(tmp_path: Path) -> None:
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=500, heartbeat_timeout_ms=1000)
    address = f"http://127.0.0.1:{lighthouse.address().rsplit(':', 1)[1]}"
    replicas = [Replica(name, address, tmp_path) for name in ("first", "second")]
    first, second = replicas

    def together(replica: Replica) -> bool:
        return sum(members == 2 and calls > 0 for _, members, _, calls in replica.steps()) >= 3

    try:
        first.wait(together)
        second.wait(together)
        (tmp_path / "kill-second").touch()
        second.process.wait(HANG)
        steps = len(first.steps())
        first.wait(lambda replica: sum(members == 1 for _, members, _, _ in replica.steps()[steps:]) >= 3)
        third = Replica("third", address, tmp_path)
        replicas.append(third)
        third.wait(together)
        (tmp_path / "end.part").write_text(str(first.steps()[-1][0] + 20))
        (tmp_path / "end.part").rename(tmp_path / "end")
        for replica in (first, third):
            replica.wait(lambda each: bool(each.lines()) and each.lines()[-1][0] == "end")
        assert first.lines()[-1] == third.lines()[-1], "replicas are equal, bit for bit"
        numbers = [step for step, *_ in first.steps()]
        assert numbers == sorted(numbers) and numbers[-1] >= 20
        losses = [loss for _, _, loss, _ in first.steps()]
        assert sum(losses[-5:]) < sum(losses[:5])
    finally:
        (tmp_path / "over").touch()
        for replica in replicas:
            replica.process.kill()
            replica.process.wait(HANG)
        lighthouse.shutdown()


def test_without_torchft_it_says_what_to_install() -> None:
    said = subprocess.run([sys.executable, "-c", "import sys; sys.modules['torchft'] = None; import thc.torchft"], capture_output=True, text=True)
    assert "ConfigError" in said.stderr and "pip install torchft" in said.stderr, said.stderr


@pytest.mark.parametrize("wrong", [3, 17])
def test_options_are_checked(wrong: int) -> None:
    import thc
    import thc.torch
    from thc.torchft import ProcessGroupTHC

    with pytest.raises(thc.ConfigError, match="lane"):
        ProcessGroupTHC(options=thc.torch.backend.Options(thc.torch.Compression(lane=wrong)))
