"""THC's partial aggregation (section 6 of the paper): in each step some ranks, drawn at random, are late, and the mean is that of the others.

The ranks are members of a real job, each with its own engine, and a real server adds up over the loopback interface; only that all of it is in one process.
"""

from __future__ import annotations

import concurrent.futures
import random
from typing import Any

import torch

import thc

COOKIE = 0x1A7E
SLOTS = 4096
"""A model's packets fit them, so that who is late still gets the mean of the others."""


class Late:
    """So many of the ranks are late in each step: the others have their mean before these send anything. What was not in a mean is
    dropped, as in the paper's simulation."""

    def __init__(self, model: torch.nn.Module, ranks: int, seed: int, *, late: int) -> None:
        length = sum(p.numel() for p in model.parameters())
        if length > SLOTS * 1024:
            raise SystemExit(f"bench accuracy: the model has {length} parameters, and late ranks are simulated for {SLOTS * 1024} at most")
        self._server = thc.Server(ranks, COOKIE, quorum=ranks - late, data_slots=SLOTS, seed=1000 + seed, shards=1)
        self._pool = concurrent.futures.ThreadPoolExecutor(ranks)
        self._late, self._random = late, random.Random(seed)

        def join(rank: int) -> thc.Group:
            return thc.Group(self._server.address, 1, rank, COOKIE, threads=1, seed=rank + 1)

        self._groups = list(self._pool.map(join, range(ranks)))

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        late = set(self._random.sample(range(len(gradients)), self._late))
        timely = [rank for rank in range(len(gradients)) if rank not in late]

        def average(rank: int) -> Any:
            return self._groups[rank].allreduce(gradients[rank].numpy())

        list(self._pool.map(average, timely))
        list(self._pool.map(average, sorted(late)))
        if any(not torch.equal(gradients[rank], gradients[timely[0]]) for rank in range(len(gradients))):
            raise RuntimeError("ranks have different means")
        return gradients[timely[0]]

    def close(self) -> None:
        """All ranks leave the job."""
        list(self._pool.map(thc.Group.close, self._groups))
        self._pool.shutdown()
        self._server.close()
