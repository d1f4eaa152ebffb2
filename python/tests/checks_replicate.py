"""FSDP2 whose replicas are averaged through THC, on four ranks: two replicas of two shards."""

from __future__ import annotations

from typing import Any

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import RANK, SIZE, close, compressed, error_of  # noqa: F401 - the rank calls close at the end

OLD = "not run: this torch has no FSDP2 with hooks of one's own (2.7 or newer has)"


def fsdp() -> Any:
    """What FSDP2 consists of, if this torch has it."""
    try:
        from torch.distributed.fsdp import FSDPModule, fully_shard
    except (ImportError, ValueError):  # torch 1.13 on Python 3.11: a dataclass of its own is refused
        return None
    return fully_shard if hasattr(FSDPModule, "set_all_reduce_hook") else None


def network(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(96, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(dtype)


def mesh() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("replicate", "shard"))


def inputs(rank: int) -> torch.Tensor:
    return torch.randn(32, 96, generator=torch.Generator().manual_seed(70 + rank))


def exact() -> list[torch.Tensor]:
    """The mean of all ranks' gradients, computed here."""
    means = []
    for rank in range(SIZE):
        model = network()
        model(inputs(rank)).square().mean().backward()
        means.append([p.grad.double() for p in model.parameters()])
    return [torch.stack(column).mean(0) for column in zip(*means)]


def sharded() -> tuple[torch.nn.Module, Any]:
    model, both = network(), mesh()
    for layer in (model[0], model[2]):
        fsdp()(layer, mesh=both["shard"])
    fsdp()(model, mesh=both["shard"])
    made = thc.torch.replicate(model, both.get_group("replicate"), timeout=20, join_timeout=20)
    rig._made.append(made.group)
    return model, made


def check_the_mean_over_replicas_and_shards() -> str | None:
    if fsdp() is None:
        return OLD
    model, made = sharded()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(inputs(RANK)).square().mean().backward()
    whole = [p.grad.full_tensor() for p in model.parameters()]
    assert compressed(error_of([g.reshape(-1) for g in whole], [g.reshape(-1) for g in exact()]))
    assert made.group.workers == SIZE // 2 and made.group.stats().calls == 2
    # All ranks have the same bits, also after a step.
    optimizer.step()
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, [p.full_tensor().sum().item() for p in model.parameters()])
    assert all(each == every[0] for each in every)
    return None


def check_not_finite_on_one_replica() -> str | None:
    if fsdp() is None:
        return OLD
    model, made = sharded()
    mine = inputs(RANK)
    if RANK == 0:
        mine[0] = float("inf")
    model(mine).square().mean().backward()
    assert all(bool(torch.isnan(p.grad.full_tensor()).any()) for p in model.parameters())
    assert made.skipped
    made.skipped = False
    model.zero_grad()
    model(inputs(RANK)).square().mean().backward()
    assert not made.skipped
    whole = [p.grad.full_tensor().reshape(-1) for p in model.parameters()]
    assert compressed(error_of(whole, [g.reshape(-1) for g in exact()]))
    return None


def check_mistakes_are_told() -> str | None:
    if fsdp() is None:
        return OLD
    both = mesh()
    for wrong, says in ((network(), "thc.torch.wrap"), (fsdp()(network(), mesh=both), 'mesh["shard"]')):
        try:
            thc.torch.replicate(wrong, both.get_group("replicate"))
        except thc.ConfigError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{says}: was not refused")
    try:
        thc.torch.wrap(fsdp()(network(), mesh=both["shard"]))
    except TypeError as error:
        assert "thc.torch.replicate" in str(error), error
    else:
        raise AssertionError("wrap took a sharded model")
    return None
