"""Replicas that are compared bit for bit while training."""

from __future__ import annotations

import pytest
import thc
import thc.torch
import torch
from rig import RANK, SIZE, Weights, backward, gradients, wrap_model
from thc.torch.replicas import CHUNK, digest


def check_digests() -> None:
    torch.manual_seed(3)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        x = torch.randn(CHUNK + 77).to(dtype)
        same = digest(x)
        assert digest(x.clone()) == same and digest(x.reshape(1, -1)) == same
        for at in (0, CHUNK - 1, CHUNK, CHUNK + 76):
            other = x.clone()
            other[at] = -other[at]
            assert digest(other) != same, (dtype, at)
        assert digest(x.roll(1)) != same
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    assert digest(torch.empty(0)) == 0 and digest(torch.tensor(True)) != digest(torch.tensor(False))


def check_equal_replicas_train_on_and_different_ones_are_named() -> None:
    model, _ = wrap_model(Weights((5_000, 300)), check_replicas=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        backward(model, gradients(step, sizes=(5_000, 300)))
        optimizer.step()
    if RANK == SIZE - 1:
        with torch.no_grad():
            next(p for name, p in model.named_parameters() if p.numel() == 300)[7] += 1e-3
    backward(model, gradients(5, sizes=(5_000, 300)))  # the fifth step is not compared
    optimizer.step()
    with pytest.raises(thc.ReplicasError) as caught:
        model(gradients(6, sizes=(5_000, 300)))
    assert caught.value.names and caught.value.ranks
    if SIZE > 2:
        assert caught.value.ranks == [SIZE - 1]
        text = f"the parameters of rank {SIZE - 1} differ from those of the others in {caught.value.names[0]} after step 6: "
        assert str(caught.value).startswith(text), caught.value
    # They are not compared while nothing is trained, and once they are equal again all goes on.
    model.eval()
    model(gradients(6, sizes=(5_000, 300)))
    model.train()
    for p in model.parameters():
        torch.distributed.broadcast(p.detach(), 0)
    thc.torch.check_replicas(model)
    backward(model, gradients(6, sizes=(5_000, 300)))
