"""One rank of a crew: does the checks of a module in order, and writes a line about each."""

import importlib
import json
import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from crew import names
from patience import HANG


def main(module: str, path: str) -> None:
    torch.set_num_threads(1)
    backend = os.environ.get("THC_TEST_BACKEND", "gloo")
    if backend == "thc":
        importlib.import_module("thc.torch")  # tells torch of it
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend, timeout=timedelta(seconds=float(os.environ.get("THC_TEST_TIMEOUT", HANG))))
    checks = importlib.import_module(module)
    rig = importlib.import_module("rig")
    not_run = getattr(checks, "NOT_RUN", "")
    """Why none of its checks can be run here."""
    with open(path, "w") as report:
        for name in names(module):
            dist.barrier()
            problem = ""
            try:
                problem = not_run or getattr(checks, name)() or ""
            except BaseException:
                problem = traceback.format_exc()
            print(json.dumps([name, time.time(), problem]), file=report, flush=True)
            if problem and not problem.startswith("not run: "):
                # The others wait for this rank in some collective: they shall see it gone.
                os._exit(1)
            getattr(checks, "close", rig.close)()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
