"""FSDP2 whose replicas are averaged through THC, on four ranks: two replicas of two shards."""

from __future__ import annotations

import os
import threading
from typing import Any
from unittest.mock import patch

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import RANK, SIZE, error_of, is_compressed, refused, same_everywhere


def fsdp() -> Any:
    """What FSDP2 consists of, if this torch has it."""
    try:
        from torch.distributed.fsdp import FSDPModule, fully_shard
    except ImportError:
        return None
    return fully_shard if hasattr(FSDPModule, "set_all_reduce_hook") else None


NOT_RUN = "" if fsdp() else "not run: this torch has no FSDP2 with hooks of one's own (2.7 or newer has)"


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


def error(model: torch.nn.Module) -> float:
    """Of a model's gradients, as a mean over all ranks."""
    return error_of([p.grad.full_tensor().reshape(-1) for p in model.parameters()], [g.reshape(-1) for g in exact()])


def sharded(model: Any, over: Any, **policy: Any) -> Any:
    """The model, each of its layers sharded over a mesh."""
    for layer in (model[0], model[2], model):
        fsdp()(layer, mesh=over, **policy)
    return model


def replicated(model: torch.nn.Module, both: Any, **options: Any) -> Any:
    """What averages a sharded model over its replicas."""
    join = {} if options.keys() & {"group", "over"} else {"join": thc.Join(timeout=20, join_timeout=20)}
    made = thc.torch.replicate(model, both.get_group("replicate"), **{"compression": thc.torch.Compression(feedback=True), **join, **options})
    rig._made.append(made.group)
    return made


def sharded_model(**options: Any) -> tuple[torch.nn.Module, Any]:
    both = mesh()
    model = sharded(network(), both["shard"])
    return model, replicated(model, both, **options)


def check_the_mean_over_replicas_and_shards() -> None:
    model, made = sharded_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(inputs(RANK)).square().mean().backward()
    assert is_compressed(error(model))
    assert made.group.workers == SIZE // 2 and made.group.stats().calls == 4, "two modules, and what ends the step"
    # All ranks have the same bits, also after a step.
    optimizer.step()
    assert same_everywhere([p.full_tensor() for p in model.parameters()])


def check_replicas_need_no_server() -> None:
    """The process group of the replicas adds up sums in lanes, of each pair of them its own."""
    model, made = sharded_model(over="process-group")
    assert isinstance(made.group, thc.torch.CollectiveGroup) and made.group.workers == SIZE // 2
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(inputs(RANK)).square().mean().backward()
    assert 1e-7 < error(model) < 2e-3
    optimizer.step()
    assert same_everywhere([p.full_tensor() for p in model.parameters()])


def check_not_finite_on_one_replica() -> None:
    model, made = sharded_model()
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
    assert is_compressed(error(model))


def check_mistakes_are_told() -> None:
    both = mesh()
    for wrong, says in ((network(), "thc.torch.wrap"), (fsdp()(network(), mesh=both), 'mesh["shard"]')):
        with refused(thc.ConfigError, says):
            thc.torch.replicate(wrong, both.get_group("replicate"))
    with refused(TypeError, "thc.torch.replicate"):
        thc.torch.wrap(fsdp()(network(), mesh=both["shard"]))


class Choosing(torch.nn.Module):
    """Uses some of its layers, as a mixture of experts does; all of them are one module to FSDP."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(95, 301) for _ in range(3))

    def forward(self, x: torch.Tensor, chosen: list[int]) -> torch.Tensor:
        return torch.stack([self.layers[number](x).square().mean() for number in chosen]).sum()


def choosing_model() -> tuple[Any, Any]:
    model, both = Choosing(), mesh()
    fsdp()(model, mesh=both["shard"])
    made = replicated(model, both)
    return model, made


def exact_of(chosen: list[int]) -> dict[str, torch.Tensor]:
    """The mean over all ranks of the gradients of a backward pass."""
    sums: dict[str, torch.Tensor] = {}
    for rank in range(SIZE):
        model = Choosing()
        model(inputs(rank)[:, :95], chosen).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                sums[name] = sums.get(name, 0) + p.grad.double() / SIZE
    return sums


def full_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.full_tensor() for name, p in model.named_parameters() if p.grad is not None}


def is_close(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> bool:
    assert found.keys() == exact.keys(), (found.keys(), exact.keys())
    return is_compressed(error_of([g.reshape(-1) for g in found.values()], [exact[name].reshape(-1) for name in found]))


def check_parameters_without_gradients() -> None:
    """Layers of equal size take turns: what compression has lost of one's gradient is never added to that of another."""
    model, made = choosing_model()
    mine = inputs(RANK)[:, :95]
    lost: dict[str, float] = {}
    for chosen in ([0, 1, 2], [0], [1], [0, 2], [2], [1], [0, 1, 2], [1]):
        model.zero_grad()
        before = made.state_dict()["feedback"]
        model(mine, chosen).backward()
        assert is_close(full_tensors(model), exact_of(chosen)), chosen
        kept = made.state_dict()["feedback"]
        for name, residual in kept.items():
            used = int(name.split(".")[1]) in chosen
            assert used or torch.equal(residual, before[name]), (name, chosen)
            lost[name] = float(residual.norm())
    assert len(lost) == 6 and all(value > 0 for value in lost.values()), lost
    # The same layer again and again: what is lost of one gradient is made up for by the next ones.
    summed, steps = None, 12
    for _ in range(steps):
        model.zero_grad()
        model(mine, [1]).backward()
        found = torch.cat([g.reshape(-1) for g in full_tensors(model).values()]).double()
        summed = found if summed is None else summed + found
    exact = torch.cat([g.reshape(-1) for g in exact_of([1]).values()])
    once, often = error_of([found], [exact]), error_of([summed / steps], [exact])
    assert often < once / 10, (once, often)


def check_replicas_that_use_different_layers_hear_of_it() -> None:
    """Gradients of equal length would be averaged as if they were one parameter's."""
    for chosen in ([0], [1]), ([0, 1], [1, 2]), ([0, 1, 2], [1]):
        model, both = Choosing(), mesh()
        fsdp()(model, mesh=both["shard"])
        replicated(model, both, compression=thc.torch.Compression())
        with refused(thc.MismatchError, "different"):
            model(inputs(RANK)[:, :95], chosen[both.get_local_rank("replicate")]).backward()
        assert not any(float(p.grad._local_tensor.abs().max()) for p in model.parameters() if p.grad is not None), "no gradient but zeros"


def check_a_checkpoint_has_error_feedback() -> None:
    model, made = choosing_model()
    mine = inputs(RANK)[:, :95]
    model(mine, [0, 1]).backward()
    saved = made.state_dict()
    assert set(saved["feedback"]) == {f"layers.{number}.{part}" for number in (0, 1) for part in ("weight", "bias")}
    again, second = choosing_model()
    second.load_state_dict(saved)
    loaded = second.state_dict()["feedback"]
    assert all(bool(kept.any()) and torch.equal(kept, loaded[name]) for name, kept in saved["feedback"].items())
    again(mine, [0, 1, 2]).backward()
    assert is_close(full_tensors(again), exact_of([0, 1, 2]))


def check_gradients_are_accumulated() -> None:
    """Each backward pass adds its mean, whatever parameters it uses; FSDP may add gradients up before."""
    model, made = choosing_model()
    mine = inputs(RANK)[:, :95]
    for last in ([0, 1, 2], [0], [1, 2]):
        model.zero_grad()
        calls = made.group.stats().calls
        model.set_requires_gradient_sync(False)
        model(mine, [0, 1, 2]).backward()
        assert made.group.stats().calls == calls, "nothing is sent"
        model.set_requires_gradient_sync(True)
        model(mine, [0, 1]).backward()
        model(mine, last).backward()
        exact: dict[str, torch.Tensor] = {}
        for chosen in ([0, 1, 2], [0, 1], last):
            for name, g in exact_of(chosen).items():
                exact[name] = exact.get(name, 0) + g
        assert is_close(full_tensors(model), exact), last
        assert same_everywhere(list(full_tensors(model).values())), last


def check_tensor_parallelism() -> None:
    """A mesh of three dimensions: two replicas of a module that two ranks compute together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    all_three = init_device_mesh("cpu", (SIZE // 2, 1, 2), mesh_dim_names=("replicate", "shard", "tensor"))
    replica = all_three.get_local_rank("replicate")
    model = network()
    if replica:  # what other replicas begin with does not matter
        with torch.no_grad():
            model[0].bias.add_(1.0)
    parallelize_module(model, all_three["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fsdp()(model, mesh=all_three["shard"])
    made = replicated(model, all_three)
    model(inputs(replica)).square().mean().backward()
    found = [p.grad.full_tensor() for p in model.parameters()]
    means = []
    for number in range(SIZE // 2):
        plain = network()
        plain(inputs(number)).square().mean().backward()
        means.append([p.grad.double() for p in plain.parameters()])
    exact = [torch.stack(column).mean(0).reshape(-1) for column in zip(*means)]
    assert is_compressed(error_of([g.reshape(-1) for g in found], exact))


def check_replicas_begin_alike() -> None:
    both = mesh()
    model = network()
    model.register_buffer("seen", torch.full((3,), float(RANK)))
    if both.get_local_rank("replicate"):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(3.0)
    fsdp()(model, mesh=both["shard"])
    made = replicated(model, both)
    for p, own in zip(model.parameters(), network().parameters()):
        assert torch.equal(p.full_tensor(), own)
    assert model.seen.tolist() == [float(both.get_local_rank("shard"))] * 3
    with torch.device("meta"):
        empty = network()
    fsdp()(empty, mesh=both["shard"])
    with refused(thc.ConfigError, "to_empty"):
        thc.torch.replicate(empty, both.get_group("replicate"))


def check_the_backward_pass_goes_on_meanwhile() -> None:
    """No call begins before the backward pass has come to the inputs, and it comes there without."""
    model, made = sharded_model()
    came, began = threading.Event(), []
    allreduce = made.group.allreduce

    def waits(array: Any, **options: Any) -> None:
        began.append(came.wait(60))
        allreduce(array, **options)

    undo = rig.intercept(made.group, waits)
    mine = inputs(RANK).requires_grad_()
    mine.register_hook(lambda _: came.set())
    model(mine).square().mean().backward()
    undo()
    assert began and all(began)
    assert is_compressed(error(model))


def check_a_lost_server() -> None:
    """Gradients go through the process group, exactly, until the replicas resume."""
    model, made = sharded_model()

    def error_of_step() -> float:
        model.zero_grad()
        model(inputs(RANK)).square().mean().backward()
        return error(model)

    assert is_compressed(error_of_step()) and not made.fallback_active
    undo = rig.loses(made.group, 2)
    error_of_step()
    assert made.fallback_active and error_of_step() < 1e-10
    undo()
    assert made.resume() and not made.fallback_active
    assert 1e-7 < error_of_step() < 0.2


def check_gradients_that_are_taken_at_once() -> None:
    """By a hook on accumulated gradients, as optimizers in the backward pass have it: the mean is there when it is called."""
    model, made = sharded_model()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: None)
    with refused(thc.ConfigError, "as soon as it is accumulated"):
        model(inputs(RANK)).square().mean().backward()


def check_gradients_that_fsdp_divides_after_its_hook() -> None:
    """They travel when the backward pass is over: FSDP would divide a mean that is added before."""
    model, made = sharded_model()
    for shard in made._shards:
        shard.adds_later = lambda dtype: False  # type: ignore[method-assign]
    model(inputs(RANK)).square().mean().backward()
    assert is_compressed(error(model)) and made.group.stats().calls == 4


def check_a_backward_pass_that_breaks_off() -> None:
    """The next one is as if it had not been."""
    model, made = sharded_model()
    mine = inputs(RANK).requires_grad_()

    def breaks(_: torch.Tensor) -> None:
        raise ValueError("as it should")

    handle = mine.register_hook(breaks)
    try:
        model(mine).square().mean().backward()
    except ValueError:
        pass
    handle.remove()
    again, second = sharded_model(group=made.group)
    again(inputs(RANK)).square().mean().backward()
    assert is_compressed(error(again)) and not second.skipped


def check_the_loss_is_that_of_native_hsdp() -> None:
    """With AdamW, in f32 and with gradients reduced in bf16."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    generator = torch.Generator().manual_seed(9)
    teacher = torch.randn(96, 64, generator=generator)
    for policy in ({}, {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}):
        ends = []
        for native in (True, False):
            both = mesh()
            model = sharded(network(), both if native else both["shard"], **policy)
            if not native:
                replicated(model, both, compression=thc.torch.Compression())
            optimizer, last = torch.optim.AdamW(model.parameters(), 1e-3), []
            for step in range(60):
                x = torch.randn(32, 96, generator=torch.Generator().manual_seed(100 * step + RANK))
                optimizer.zero_grad()
                loss = (model(x) - (x @ teacher).tanh()).square().mean()
                loss.backward()
                optimizer.step()
                last.append(loss.item())
            mean = torch.tensor(last[-10:]).mean()
            dist.all_reduce(mean)
            ends.append(mean.item() / SIZE)
        assert abs(ends[1] / ends[0] - 1) < 0.02, (policy, ends)


def check_the_server_of_the_environment() -> None:
    """Each shard has the next job of the server that THC_PS names, and a second model of the same shards the same ones."""
    address, server = rig.server_of_all(*[{"workers": SIZE // 2}] * 2)
    with patch.dict(os.environ, {"THC_PS": address, "THC_COOKIE": str(rig.COOKIE)}):
        both, groups = mesh(), []
        for _ in range(2):
            model = network()
            fsdp()(model, mesh=both["shard"])
            made = replicated(model, both)
            model(inputs(RANK)).square().mean().backward()
            assert is_compressed(error(model))
            groups.append(made.group)
        assert groups[0] is groups[1] and groups[0].ps == address
        assert groups[0].job_number == 1 + both.get_local_rank("shard")
        groups[0].close()
    dist.barrier()


def check_islands_of_fsdp_meet_in_an_outer_loop() -> None:
    """Each rank exchanges its shard with the rank that has the same one in the other island."""
    over = mesh()
    model = sharded(network(), over["shard"])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    options = rig.sort_options(process_group=over.get_group("replicate"), every=4, parts=2, delay=1, timeout=20, join_timeout=20)
    loop = thc.torch.outer(model, optimizer, **options)
    rig._made.append(loop.group)
    losses = []
    for _ in range(32):
        loss = (model(inputs(RANK)) - 1.0).square().mean()
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
        loop.step()
        optimizer.zero_grad()
    loop.agree()
    assert losses[-1] < 0.5 * losses[0], losses
    for p in model.parameters():
        every = [torch.empty_like(p._local_tensor) for _ in range(2)]
        dist.all_gather(every, p._local_tensor.detach(), group=over.get_group("replicate"))
        assert torch.equal(*every)
