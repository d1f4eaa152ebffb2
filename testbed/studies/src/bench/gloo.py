"""A process of `thc bench allreduce --against gloo`: told what to do line by line, it answers in lines of JSON."""

import datetime
import json
import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"{sys.executable} has no torch: {error} (name a Python that has it by THC_PYTHON)")

part = json.loads(sys.stdin.readline())
os.environ.update({key: str(value) for key, value in part["environment"].items()})
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
original = (torch.rand(part["coordinates"]) * 2 - 1).to(getattr(torch, part["dtype"]))
data = original.clone()
print("{}", flush=True)
for line in sys.stdin:
    if line.strip() == "fill":
        data.copy_(original)
        print("{}", flush=True)
        continue
    if line.strip() == "cpu":
        print(json.dumps({"cpu": time.process_time()}), flush=True)
        continue
    began = time.monotonic_ns()
    for _ in range(part["calls"]):
        dist.all_reduce(data)
    ended = time.monotonic_ns()
    print(json.dumps({"began": began, "ended": ended}), flush=True)
