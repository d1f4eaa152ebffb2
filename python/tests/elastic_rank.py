"""What each rank of `test_elastic.py` does, started by torchrun: it trains from its last checkpoint on, and ranks are killed."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import thc.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])


def tell(**what: object) -> None:
    with open(FOLDER / "told", "a") as file:
        file.write(json.dumps({"at": time.monotonic(), "pid": os.getpid(), "rank": dist.get_rank(), **what}) + "\n")


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
    checkpoint, first = FOLDER / "checkpoint", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        first = saved["step"]
    # DistributedDataParallel copies the parameters of rank 0 to a newcomer.
    # Without `patience` ranks wait for one that is gone as long as the process group does, half an hour.
    ddp = thc.torch.wrap(DistributedDataParallel(model), check_replicas=5, join=thc.Join(timeout=20, patience=20, join_timeout=30))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    tell(began=first, ranks=dist.get_world_size(), workers=thc.torch.hook_of(ddp).group.workers)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for step in range(first, STEPS):
        x = torch.randn(32, 40, generator=generator)
        loss = (ddp(x) - x[:, :3].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            # The first rank of an earlier round may still be at it.
            own = FOLDER / f"next-{os.getpid()}"
            torch.save({"model": model.state_dict(), "step": step + 1}, own)
            os.replace(own, checkpoint)
        tell(step=step, loss=loss.item())
        time.sleep(0.05)
    thc.torch.check_replicas(ddp)
    tell(ended=True, ranks=dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()


main()
