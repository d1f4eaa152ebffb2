"""Sharded models on GPUs, whose replicas are averaged through THC (HSDP). `gpu.py` runs it."""

from __future__ import annotations

import rig
import thc.torch
import torch
from checks_gpu import DEVICE, delay
from checks_replicate import OLD, fsdp
from rig import RANK, SIZE, error_of


def check_sharded_models() -> str | None:
    if fsdp() is None:
        return OLD
    from torch.distributed.device_mesh import init_device_mesh

    shards = 2 if SIZE % 2 == 0 and SIZE > 2 else 1
    both = init_device_mesh(DEVICE.type, (SIZE // shards, shards), mesh_dim_names=("replicate", "shard"))

    def network() -> torch.nn.Sequential:
        torch.manual_seed(4)
        return torch.nn.Sequential(torch.nn.Linear(96, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(DEVICE)

    def inputs(rank: int) -> torch.Tensor:
        return torch.randn(32, 96, generator=torch.Generator().manual_seed(70 + rank)).to(DEVICE)

    means = []
    for rank in range(SIZE):
        whole = network()
        whole(inputs(rank)).square().mean().backward()
        means.append([p.grad.double().cpu() for p in whole.parameters()])
    exact = [torch.stack(column).mean(0) for column in zip(*means)]
    model = network()
    for layer in (model[0], model[2]):
        fsdp()(layer, mesh=both["shard"])
    fsdp()(model, mesh=both["shard"])
    made = thc.torch.replicate(model, both.get_group("replicate"), compression=thc.torch.Compression(feedback=True), join=thc.Join(timeout=20, join_timeout=20))
    rig._made.append(made.group)
    for _ in range(2):
        model.zero_grad()
        delay()
        model(inputs(RANK)).square().mean().backward()
        found = [p.grad.full_tensor().cpu() for p in model.parameters()]
        assert 1e-3 < error_of([g.reshape(-1) for g in found], [g.reshape(-1) for g in exact]) < 0.1
    made.group.close()
    return None
