"""What members of a group tell each other through it, and how one catches up with the others."""

from __future__ import annotations

import pytest
import thc
import thc.torch
import torch
from rig import RANK, SIZE, wrap_model, Weights
from thc.torch.replicas.members import tell


def _group() -> thc.Group:
    _, hook = wrap_model(Weights((10,)))
    return hook.group


def check_numbers_arrive_as_they_are() -> None:
    numbers = [0, 1, (1 << 64) - 1 - RANK, 0xFFFF_0000_FFFF_0001]
    told = tell(_group(), numbers)
    assert told == {rank: [0, 1, (1 << 64) - 1 - rank, 0xFFFF_0000_FFFF_0001] for rank in range(SIZE)}


def check_all_get_the_state_of_who_has_done_most() -> None:
    group = _group()
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(7, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 3)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (1 + RANK))
    model(torch.randn(8, 7).double()).square().mean().backward()
    for _ in range(RANK + 1):
        optimizer.step()
    with pytest.raises(thc.ReplicasError):
        thc.torch.check_replicas(model, group=group)
    assert thc.torch.catch_up(group, model, optimizer, steps=10 * RANK) == 10 * (SIZE - 1)
    thc.torch.check_replicas(model, group=group)
    assert optimizer.param_groups[0]["lr"] == 0.01 * SIZE
    moments = torch.cat([state["exp_avg_sq"].reshape(-1) for state in optimizer.state.values()])
    assert tell(group, moments.view(torch.int64)[:5].abs().tolist())[0] == moments.view(torch.int64)[:5].abs().tolist()


def check_what_is_no_tensor_number_or_text_is_named() -> None:
    class Odd(torch.nn.Linear):
        def state_dict(self, *arguments: object, **more: object) -> dict[str, object]:  # type: ignore[override]
            return {"odd": object()}

    with pytest.raises(thc.ConfigError, match="has a object: catch_up sends tensors, numbers and text"):
        thc.torch.catch_up(_group(), Odd(2, 2))
