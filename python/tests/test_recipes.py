"""What packaging/ has for clusters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clusters import PACKAGING, scripts, tool
from conftest import needs
from patience import HANG


def test_kubernetes_takes_the_manifest() -> None:
    """By the schema of the newest release, no unknown fields. The chart has its own tests."""
    needs("kubernetes_validate")
    program = Path(sys.executable).parent / "kubernetes-validate"
    manifest = PACKAGING / "kubernetes" / "train.yaml"
    done = subprocess.run([program, "--strict", manifest], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and "passed" in done.stdout + done.stderr, done.stdout + done.stderr


def test_shellcheck_has_nothing_to_say() -> None:
    found = list(scripts())
    assert PACKAGING / "debian" / "build" in found and len(found) > 15, found
    command = [tool("shellcheck"), "--external-sources", "--source-path=SCRIPTDIR", *found]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_has_nothing_to_say() -> None:
    command = [tool("hadolint"), PACKAGING / "container" / "Containerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_slurms_script_says_what_it_takes() -> None:
    done = subprocess.run(["bash", PACKAGING / "slurm" / "train.sbatch"], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2 and done.stderr.startswith("usage: sbatch --nodes N")


def test_slurms_script_starts_a_torchrun_on_each_node(tmp_path: Path) -> None:
    """With stand-ins for Slurm's programs that show what they are asked."""
    for name, says in (("scontrol", "printf 'node7\\nnode9\\n'"), ("srun", 'shift; SLURM_NODEID=1 exec "$@"'), ("python3", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7,9]", "SLURM_NNODES": "2"}
    done = subprocess.run(
        ["bash", PACKAGING / "slurm" / "train.sbatch", "train.py", "--its", "own arguments"],
        capture_output=True, text=True, timeout=HANG, env=variables | {"SLURM_GPUS_ON_NODE": "8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == (
        "-m torch.distributed.run --nnodes 2 --node_rank 1 --nproc_per_node 8 --master_addr node7 --master_port 20041 "
        "train.py --its own arguments"
    ).split()
