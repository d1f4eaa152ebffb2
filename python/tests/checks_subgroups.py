"""Two models, each on half of the ranks, which know nothing of each other."""

from __future__ import annotations

import thc.torch
import torch
import torch.distributed as dist
from rig import RANK, SIZE, Weights, _made, backward, ddp, error_of, gradients, is_compressed

SIZES = (40_000, 90_000)


def check_each_half_averages_its_own() -> None:
    halves = [list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))]
    groups = [dist.new_group(half) for half in halves]
    mine = int(RANK >= SIZE // 2)
    model = thc.torch.wrap(ddp(Weights(SIZES), process_group=groups[mine]), compression=thc.torch.Compression(feedback=True), join=thc.Join(timeout=3, join_timeout=20))
    hook = thc.torch.hook_of(model)
    _made.append(hook.group)
    assert hook.group.workers == SIZE // 2
    for step in range(3):
        if RANK == 0 and step == 1:
            hook.group.close()  # as good as a lost server
        means = backward(model, gradients(step, sizes=SIZES))
        # The user's own collectives in that group do not meet the hook's.
        total = torch.tensor([float(RANK)])
        dist.all_reduce(total, group=groups[mine])
        assert float(total) == sum(halves[mine])
        every = [gradients(step, rank, SIZES) for rank in halves[mine]]
        exact = [torch.stack([g.double() for g in column]).mean(0) for column in zip(*every)]
        if step == 0:
            assert is_compressed(error_of(means, exact))
        elif mine == 0:
            assert hook.fallback_active and error_of(means, exact) < 1e-12
        else:
            assert not hook.fallback_active and error_of(means, exact) < 0.1
