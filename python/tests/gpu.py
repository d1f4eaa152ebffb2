"""Checks all that a GPU can check, and says for each check what came of it. `python/tests/run --gpu` runs it.

On several GPUs each process has its own, over NCCL, and they are done again over gloo; on one GPU two share it, over gloo, and one has it for itself, over NCCL. With `--dry` the same
goes over the CPU, which shows that the checks run, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from crew import names, run
from servers import program

HERE = Path(__file__).resolve().parent
NOTHING = "not run: no CUDA device"


def plan(gpus: int) -> list[tuple[str, int, str]]:
    """Module, processes, backend."""
    if gpus == 0:
        return [("checks_gpu", 2, "gloo"), ("checks_gpu_rails", 4, "gloo")]
    if gpus == 1:
        # NCCL gives a GPU to one rank only.
        return [("checks_gpu", 2, "gloo"), ("checks_gpu", 1, "nccl")]
    rails = [("checks_gpu_rails", 4, "nccl")] if gpus >= 4 else []
    return [("checks_gpu", 2, "nccl"), ("checks_gpu", 2, "gloo"), *rails]


def bits() -> str:
    """The codec's bits against those of the host, and training by NCCL alone: what went wrong, or why nothing was run."""
    if importlib.util.find_spec("pytest") is None:
        return "not run: the codec's bits against the host's: Python has no pytest"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(HERE.parent / "pyproject.toml"), "--rootdir", str(HERE.parent)]
    done = subprocess.run([*command, str(HERE / "test_device.py")], capture_output=True, text=True, timeout=1800)
    return "" if done.returncode == 0 else done.stdout[-6000:] + done.stderr[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python/tests/run --gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="run on the CPU, which shows only that the checks run")
    arguments = parser.parse_args()
    gpus = 0 if arguments.dry or not torch.cuda.is_available() else torch.cuda.device_count()
    if not gpus and not arguments.dry:
        return report_end([NOTHING], 0)
    if program() is None:
        print("thc-ps is not built: cargo build -p thc-ps, or name it by THC_PS_PROGRAM")
        return 1
    kernels = "Triton" if importlib.util.find_spec("triton") else "no Triton: the tests' plain operations of torch compress"
    where = f"{gpus} x {torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}" if gpus else "dry, on the CPU"
    print(f"{where}; torch {torch.__version__}; {kernels}", flush=True)
    failed, not_run = 0, []
    if gpus:
        began = time.monotonic()
        problem = bits()
        if problem.startswith("not run: "):
            not_run.append(problem)
        failed += say("the codec's bits against the host's (test_device.py)", problem, time.monotonic() - began)
    hidden = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
    for module, workers, backend in plan(gpus):
        began = time.monotonic()
        report = run(module, workers, hang=1500, THC_TEST_BACKEND=backend, THC_TEST_TIMEOUT="300", **hidden)
        print(f"{module}, {workers} processes over {backend}: {time.monotonic() - began:.0f} s")
        for check in names(module):
            why = report.skip_reason(check)
            if why is not None:
                not_run.append(why)
            else:
                try:
                    report.verify(check)
                    why = ""
                except AssertionError as error:
                    why = str(error)
            failed += say(f"  {check.removeprefix('check_').replace('_', ' ')}", why)
    return report_end(not_run, failed)


def say(what: str, problem: str, seconds: float | None = None) -> int:
    """How many checks have failed: one or none."""
    took = "" if seconds is None else f" ({seconds:.0f} s)"
    if problem.startswith("not run: "):
        print(f"{what}: {problem}{took}", flush=True)
        return 0
    print(f"{what}: {'FAILED' + took + chr(10) + problem if problem else 'ok' + took}", flush=True)
    return int(bool(problem))


def report_end(not_run: list[str], failed: int) -> int:
    """The end: what could not be run is listed, where `make test` lists it, too."""
    for reason in not_run:
        print(reason)
    if not_run and (listed := os.environ.get("THC_NOT_RUN")):
        with open(listed, "a") as file:
            file.writelines(f"{reason}\n" for reason in not_run)
    if failed:
        print(f"{failed} FAILED")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
