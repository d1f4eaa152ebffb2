"""One replica that torchft's manager runs: `torchft_replica.py NAME LIGHTHOUSE FOLDER`. Writes a line for each step into FOLDER/NAME, and ends at the
step that FOLDER/end names; FOLDER/kill-NAME has it die within a backward pass, while others wait for its gradients."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer

from thc.torch.replicas import digest
from thc.torchft import ProcessGroupTHC


def main() -> None:
    name, lighthouse, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(hash(name) % 1000)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    network = nn.Sequential(nn.Linear(64, 1200), nn.ReLU(), nn.Linear(1200, 10))

    def die_if_told(gradient: torch.Tensor) -> None:
        if (folder / f"kill-{name}").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    # Of the gradients that backward computes last.
    network[0].weight.register_hook(die_if_told)

    def state() -> dict[str, Any]:
        return {"model": network.state_dict(), "optimizer": optimizer.state_dict()}

    def load(found: dict[str, Any]) -> None:
        network.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])

    group = ProcessGroupTHC(timeout=timedelta(seconds=30))
    manager = Manager(
        pg=group, load_state_dict=load, state_dict=state, min_replica_size=1, replica_id=name, store_addr="127.0.0.1", store_port=store.port,
        rank=0, world_size=1, lighthouse_addr=lighthouse, hostname="127.0.0.1", timeout=timedelta(seconds=30), quorum_timeout=timedelta(seconds=120),
    )  # fmt: skip
    # Buckets of at most about 100 kB and one tensor larger than that.
    model = DistributedDataParallel(manager, network, bucket_cap_mb=0.1)
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    labels = torch.nn.functional.one_hot(torch.arange(64) % 10, 10).float()
    with (folder / name).open("w") as report:
        while not ((folder / "end").exists() and manager.current_step() >= int((folder / "end").read_text() or 1 << 30)):
            kinds = torch.randint(10, (32,))
            inputs = torch.randn(32, 64) * 0.3 + labels.T[kinds]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), kinds)
            loss.backward()
            optimizer.step()
            stats = group.stats()
            print(manager.current_step(), manager.num_participants(), loss.item(), 0 if stats is None else stats.calls, file=report, flush=True)
            time.sleep(0.02)
        print("end", manager.current_step(), *(digest(p) for p in network.parameters()), file=report, flush=True)
    # The others may still want to end the step that this one has.
    while not (folder / "over").exists():
        time.sleep(0.05)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
