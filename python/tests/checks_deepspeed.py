"""DeepSpeed's ZeRO over the backend "thc", on the CPU: gradients travel compressed, ranks stay alike, and the loss falls."""

from __future__ import annotations


import torch
import torch.distributed as dist
from rig import RANK, same_everywhere


def network() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10))


def train(stage: int) -> tuple[list[float], int]:
    """Losses, and how many all-reduces were compressed."""
    import deepspeed

    model = network()
    before = calls()
    config = {
        "train_micro_batch_size_per_gpu": 32,
        "zero_optimization": {"stage": stage, "reduce_scatter": False, "overlap_comm": False},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.4), config=config, dist_init_required=False)
    generator = torch.Generator().manual_seed(RANK)
    losses = []
    for _ in range(25):
        kinds = torch.randint(10, (32,), generator=generator)
        x = torch.randn(32, 64, generator=generator) + 2 * torch.eye(10, 64)[kinds]
        loss = torch.nn.functional.cross_entropy(engine(x), kinds)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert same_everywhere([p.detach() for p in model.parameters()])
    return losses, calls() - before


def calls() -> int:
    """Of all groups: DeepSpeed averages in one of its own."""
    stats = [group.stats() for group in dist.distributed_c10d._world.pg_map if hasattr(group, "stats")]
    return sum(int(each.calls) for each in stats if each is not None)


def check_zero_1_and_2() -> str | None:
    try:
        import deepspeed  # noqa: F401
    except ImportError:
        return "not run: Python has no deepspeed (pip install deepspeed)"
    for stage in (1, 2):
        losses, compressed = train(stage)
        assert compressed >= 25, (stage, compressed)
        mean = torch.tensor([sum(losses[:3]), sum(losses[-3:])])
        dist.all_reduce(mean)
        assert mean[1] < 0.7 * mean[0], (stage, losses)
    return None
