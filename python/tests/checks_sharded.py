"""FSDP2 whose reduce-scatters are sums in lanes."""

from __future__ import annotations

from typing import Any

import rig
import thc
import thc.torch
import torch
from checks_replicate import fsdp, inputs, network
from rig import RANK, SIZE, error_of

OLD = "not run: this torch has no FSDP2 with a reduce-scatter of one's own (2.15 has)"


def has() -> bool:
    """Whether FSDP2 takes a reduce-scatter."""
    if fsdp() is None:
        return False
    from torch.distributed.fsdp import FSDPModule

    return hasattr(FSDPModule, "set_custom_reduce_scatter")


def model_of(mesh: Any = None) -> torch.nn.Module:
    """Each layer by itself, and what is left."""
    model = network()
    options = {} if mesh is None else {"mesh": mesh}
    for layer in (model[0], model[2]):
        fsdp()(layer, **options)
    fsdp()(model, **options)
    return model


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    """The whole ones, of what each rank has a part of."""
    return [p.grad.full_tensor() for p in model.parameters()]  # type: ignore[union-attr]


def exact(step: int = 0) -> list[torch.Tensor]:
    means = []
    for rank in range(SIZE):
        model = network()
        model(inputs(rank + 10 * step)).square().mean().backward()
        means.append([p.grad.double() for p in model.parameters()])  # type: ignore[union-attr]
    return [torch.stack(column).mean(0) for column in zip(*means)]


def check_gradients_are_those_of_fsdp_but_for_what_lanes_lose() -> str | None:
    if not has():
        return OLD
    for options, most in (({}, 0.01), ({"lane": 16}, 2e-4), ({"lane": 6}, 0.2)):
        model = thc.torch.wrap_sharded(model_of(), compression=thc.torch.Compression(seed=3, **options))
        model(inputs(RANK)).square().mean().backward()
        found = gradients(model)
        error = error_of([f.reshape(-1) for f in found], [e.reshape(-1) for e in exact()])
        assert 1e-7 < error < most, (options, error)
    return None


def check_training_comes_to_the_same_loss() -> str | None:
    if not has():
        return OLD
    losses = []
    for compressed in (False, True):
        model = model_of()
        if compressed:
            thc.torch.wrap_sharded(model)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for step in range(30):
            optimizer.zero_grad()
            loss = model(inputs(RANK + 4 * (step % 3))).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(sum(rig.everywhere(float(loss.detach()))) / SIZE)
    assert abs(losses[1] - losses[0]) < 0.02 * losses[0], losses
    return None


def check_feedback_returns_what_is_lost() -> str | None:
    if not has():
        return OLD
    sums = {}
    want = [e.reshape(-1) for e in exact()]
    for feedback in (False, True):
        model = thc.torch.wrap_sharded(model_of(), compression=thc.torch.Compression(seed=5, lane=6, feedback=feedback))
        total = [torch.zeros(e.numel(), dtype=torch.float64) for e in want]
        for _ in range(12):
            model.zero_grad()
            model(inputs(RANK)).square().mean().backward()
            for all_so_far, gradient in zip(total, gradients(model)):
                all_so_far += gradient.reshape(-1)
        sums[feedback] = error_of([t / 12 for t in total], want)
    assert sums[True] < 0.5 * sums[False], sums
    return None


def check_what_is_not_finite_is_nan_on_all_ranks() -> str | None:
    if not has():
        return OLD
    model = thc.torch.wrap_sharded(model_of())
    data = inputs(RANK)
    if RANK == SIZE - 1:
        data[0, 0] = float("inf")
    model(data).square().mean().backward()
    assert all(bool(torch.isnan(g).any()) for g in gradients(model))
    model.zero_grad()
    model(inputs(RANK)).square().mean().backward()
    assert error_of([f.reshape(-1) for f in gradients(model)], [e.reshape(-1) for e in exact()]) < 0.01
    return None


def check_what_is_not_sharded_is_refused() -> str | None:
    try:
        thc.torch.wrap_sharded(network())
        raise AssertionError("there is nothing to reduce and scatter")
    except TypeError as error:
        assert "fully_shard" in str(error)
    if not has():
        return OLD
    try:
        thc.torch.wrap_sharded(model_of(), compression=thc.torch.Compression(warmup=8))
        raise AssertionError("an option that it does not know")
    except thc.ConfigError as error:
        assert "warmup: wrap_sharded" in str(error)
    return None
