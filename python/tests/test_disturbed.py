"""The short form of `python/bench/run disturbed`: ranks are killed and added, and the aggregator falls over, on links that lose packets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs
from patience import HANG
from servers import REPOSITORY, program

needs("torch")


def test_a_training_run_that_is_disturbed_has_the_same_bits_on_all_ranks(tmp_path: Path) -> None:
    # matplotlib may be missing: then there is no picture.
    words = ["disturbed", "--minutes", "0.5", "--every", "6", "--falls", "1", "--away", "2", "--out", str(tmp_path)]
    environment = os.environ | {"THC_PS_PROGRAM": str(program())}
    done = subprocess.run([sys.executable, str(REPOSITORY / "python" / "bench"), *words], env=environment, text=True,
                          capture_output=True, timeout=HANG)  # fmt: skip
    if "not run: " in done.stdout:
        pytest.skip(done.stdout[done.stdout.index("not run: ") :].splitlines()[0])
    logs = "".join(f"\n--- {log.name} ---\n{log.read_text()[-1500:]}" for log in sorted((tmp_path / "logs").glob("*.log")))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:] + logs
    run = json.loads((tmp_path / "results.json").read_text())["disturbed"]
    happened = [event["what"] for event in run["events"]]
    assert {"a rank is killed", "a rank is added", "the aggregator is killed"} <= set(happened), happened
    assert run["compared"] > 20 and not run["differ"] and not run["missing"], run
    assert run["checks"] > 2 and run["sessions"] > 2, run
