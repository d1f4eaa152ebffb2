"""Training through the backend "thc" without any hook of ours: DDP, FSDP2, and HSDP whose replicas it averages."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from checks_backend import options
from checks_replicate import fsdp, inputs, network
from rig import RANK, SIZE, everywhere, same_everywhere

STEPS = 30


def train(model: torch.nn.Module, steps: int = STEPS) -> float:
    """The mean of the ranks' losses at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(inputs(RANK + SIZE * (step % 3))).square().mean()
        loss.backward()
        optimizer.step()
    return sum(everywhere(float(loss.detach()))) / SIZE


def group(**given: Any) -> Any:
    return dist.new_group(backend="thc", pg_options=options(**{"min_size": 1000, "everywhere": 0, **given}))


def check_ddp_without_a_hook() -> None:
    """Replicas stay alike, and the loss is that of exact means within noise; also in narrow lanes, and in bf16."""
    from torch.nn.parallel import DistributedDataParallel

    exact = train(DistributedDataParallel(network(), process_group=dist.new_group(backend="gloo")))
    for given in ({}, {"lane": 6}):
        on = group(**given)
        model = DistributedDataParallel(network(), process_group=on)
        loss = train(model)
        assert same_everywhere(list(model.parameters())) and on.stats().calls >= STEPS
        assert abs(loss - exact) < 0.02 * exact, (given, loss, exact)
        dist.destroy_process_group(on)
    on = group()
    model = DistributedDataParallel(network(torch.bfloat16), process_group=on)
    model(inputs(RANK).bfloat16()).square().mean().backward()
    assert same_everywhere([p.grad for p in model.parameters()]) and on.stats().calls == 1
    # NaN of one rank is everybody's.
    model.zero_grad()
    bad = inputs(RANK).bfloat16()
    if RANK == 0:
        bad[0, 0] = float("nan")
    model(bad).square().mean().backward()
    assert all(bool(p.grad.isnan().all()) for p in model.parameters())


def check_native_hsdp() -> None:
    """Two replicas of shards: what FSDP2 itself averages over replicas is compressed."""
    if SIZE != 4:
        return None
    from torch.distributed.device_mesh import init_device_mesh

    overrides = [
        {"shard": "gloo", "replicate": "gloo"},
        {"shard": "gloo", "replicate": "thc"},
        {"shard": "gloo", "replicate": ("thc", options(min_size=1000, lane=12, everywhere=0))},
    ]
    losses = []
    for override in overrides:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"), backend_override=dict(override))
        model = network()
        for layer in (model[0], model[2], model):
            fsdp()(layer, mesh=mesh)
        losses.append(train(model))
        on = mesh.get_group("replicate")
        if override["replicate"] == "gloo":
            continue
        assert dist.get_backend(on) == "thc" and dist.get_backend(mesh.get_group("shard")) == "gloo"
        # By default, parts of 24,832 and 16,416 coordinates are too small.
        assert (on.stats() is None) if override["replicate"] == "thc" else (on.stats().calls == 2 * STEPS), on.stats()
        whole = [p.full_tensor() for p in model.parameters()]
        assert same_everywhere(whole)
    assert losses[1] == losses[0] and losses[2] != losses[0] and abs(losses[2] - losses[0]) < 0.02 * losses[0], losses
