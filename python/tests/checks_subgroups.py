"""Ranks in two halves: two models which know nothing of each other, and islands that meet in an outer loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import thc.torch
import torch
import torch.distributed as dist
from checks_outer import loop_of, same_parameters, train, train_by_definition
from rig import RANK, SIZE, Weights, _made, backward, ddp, error_of, gradients, is_compressed, refused, same_everywhere
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

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


def muon(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """What trains inside an island: Muon, or AdamW where this torch has no Muon."""
    make: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, "Muon", torch.optim.AdamW)
    return make(parameters, lr=0.01)


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 256, bias=False), torch.nn.ReLU(), torch.nn.Linear(256, 8, bias=False))


def check_islands_of_ddp_meet_in_an_outer_loop() -> None:
    """Exactly what the definition says of two islands of two ranks."""
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("islands", "ranks"))
    islands, ranks = mesh.get_group("islands"), mesh.get_group("ranks")

    model, reference = DistributedDataParallel(network(), process_group=ranks), network()
    loop = loop_of(model, muon(model.parameters()), process_group=islands, every=4, delay=0, mode="raw")
    train(model, loop, 0, 12)

    def average() -> None:
        for p in reference.parameters():
            dist.all_reduce(p.grad, group=ranks)
            p.grad /= SIZE // 2

    train_by_definition(reference, muon(reference.parameters()), islands, average)
    assert same_parameters(model, reference) and same_everywhere(list(model.parameters())) and loop.rounds == 3
    # Each rank of an island sends its half of the parameters in every fourth step.
    coordinates, parameters = loop.group.stats().coordinates, sum(p.numel() for p in model.parameters())
    assert coordinates < 1.05 * parameters / 2 * 3, (coordinates, parameters)
    with refused(thc.ConfigError, "islands"):
        loop_of(DistributedDataParallel(network()), muon(model.parameters()), every=4)
