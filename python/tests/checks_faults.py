"""Models and options that DDP takes and that a hook once got wrong."""

from __future__ import annotations

import copy
import io
import os
import pickle
import shutil
import tempfile
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import thc
import thc.rendezvous
import thc.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from rig import COMPRESSED, RANK, SIZE, Messages, ddp, error_of, everywhere, loses, same_everywhere, wrap_model, sort_options, refused
from thc.torch.engine.bucket import is_finite
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

CHANNELS_LAST = torch.channels_last


def _exact_gradient(model: torch.nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    """The mean over ranks of a loss's gradients, without DDP."""
    found = [g.contiguous().clone() for g in torch.autograd.grad(loss, list(model.parameters()))]
    for g in found:
        dist.all_reduce(g)
        g /= SIZE
    return found


def check_a_lost_server_and_channels_last() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(16, 64, 3), torch.nn.Conv2d(64, 8, (1, 3))).to(memory_format=CHANNELS_LAST)
    model, hook = wrap_model(net)
    torch.manual_seed(RANK)
    for step in range(4):
        if step == 2:
            loses(hook.group, 1)
        x = torch.randn(2, 16, 12, 12).to(memory_format=CHANNELS_LAST)
        exact = _exact_gradient(net, net(x).square().sum())
        model.zero_grad()
        model(x).square().sum().backward()
        error = error_of([p.grad.contiguous().reshape(-1) for p in net.parameters()], [g.reshape(-1) for g in exact])
        assert hook.fallback_active == (step >= 2)
        assert error < 1e-9 if step >= 2 else error < COMPRESSED[1], (step, error)


def check_state_of_another_memory_format() -> None:
    def made(memory_format: Any) -> tuple[Any, Any]:
        torch.manual_seed(0)
        return wrap_model(torch.nn.Conv2d(16, 64, 3, bias=False).to(memory_format=memory_format))

    last, hook = made(CHANNELS_LAST)
    torch.manual_seed(RANK)
    x = torch.randn(2, 16, 12, 12)
    last(x).square().sum().backward()
    saved = hook.state_dict()
    (kept,) = saved["feedback"].values()
    assert kept.any()
    plain, other = made(torch.contiguous_format)
    other.load_state_dict(saved)
    plain(x).square().sum().backward()
    fresh, _ = made(torch.contiguous_format)
    fresh(x).square().sum().backward()
    # What is of no use is left out, and not added to other coordinates.
    near = error_of([plain.module.weight.grad.reshape(-1)], [fresh.module.weight.grad.reshape(-1)])
    assert near < 0.02, near
    again, same = made(CHANNELS_LAST)
    same.load_state_dict(saved)
    again(x).square().sum().backward()
    assert same.state_dict()["feedback"].keys() == saved["feedback"].keys()


class _Empty(torch.nn.Module):
    """With parameters of no coordinates, one of them the only one of its type."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.none = torch.nn.Parameter(torch.randn(5000)), torch.nn.Parameter(torch.empty(0))
        self.narrow, self.layer = torch.nn.Parameter(torch.empty(0, dtype=torch.float16)), torch.nn.Linear(10, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.a * x).sum() + self.none.sum() + self.narrow.sum().float() + self.layer(x[:10]).sum()


def check_parameters_of_no_coordinates() -> None:
    for options in ({}, {"feedback": None}, {"over": "process-group"}):
        model, hook = wrap_model(_Empty(), **options)
        for step in range(3):
            model.zero_grad()
            model(torch.full((5000,), 1.0 + RANK)).backward()
            assert torch.allclose(model.module.a.grad.mean(), torch.tensor((1.0 + SIZE) / 2), rtol=1e-2)
            assert model.module.none.grad is not None and model.module.none.grad.numel() == 0
        assert hook.state_dict()["steps"] == 3


def check_sums_that_overflow_are_finite_numbers() -> None:
    assert is_finite(torch.ones(70_000, dtype=torch.float16)) and is_finite(torch.full((1000,), 3e38))
    assert is_finite(torch.full((10,), 1e300, dtype=torch.float64)) and is_finite(torch.zeros(0))
    for wrong in (float("inf"), float("nan")):
        assert not is_finite(torch.tensor([1.0, wrong], dtype=torch.float16)) and not is_finite(torch.tensor([1.0, wrong]))


def check_comparing_replicas_in_join() -> None:
    model, hook = wrap_model(torch.nn.Linear(30, 30), check_replicas=2)
    with model.join():
        for _ in range(3 + 2 * RANK):
            model(torch.randn(4, 30)).sum().backward()
    assert max(everywhere(hook.begun)) >= 3
    thc.torch.check_replicas(model)


def check_process_groups_are_made_once() -> None:
    process_group = dist.new_group()
    made = len(dist.distributed_c10d._world.pg_map)
    counts, files = [], []
    for _ in range(4):
        model, hook = wrap_model(torch.nn.Linear(30, 30), {"process_group": process_group})
        sums, _ = wrap_model(torch.nn.Linear(30, 30), {"process_group": process_group}, over="process-group")
        for each in (model, sums):
            each(torch.randn(4, 30)).sum().backward()
        assert same_everywhere([p.grad for p in model.parameters()])
        hook.close()
        thc.torch.hook_of(sums).close()
        counts.append(len(dist.distributed_c10d._world.pg_map))
        files.append(len(os.listdir("/proc/self/fd")))
    assert made < counts[0] == counts[-1], (made, counts)
    # The first models open what all have in common.
    assert max(files[2:]) <= files[1] + 2, files
    # A model that is closed averages nothing more, not even with what another uses now.
    with refused(thc.ClosedError):
        model(torch.randn(4, 30)).sum().backward()


def check_process_groups_after_a_loss_are_not_used_again() -> None:
    spoilt: list[Any] = []
    for _ in range(3):
        model, hook = wrap_model(torch.nn.Linear(30, 30))
        assert not any(mine is other for mine in hook.peers.own.groups for other in spoilt)
        loses(hook.group, 1)
        model(torch.randn(4, 30)).sum().backward()
        assert hook.fallback_active
        spoilt += hook.peers.own.groups
        hook.close()


def check_time_outs_are_those_of_the_process_group() -> None:
    cpu, hours = torch.device("cpu"), timedelta(hours=5)
    process_group = dist.new_group(timeout=hours)
    group = thc.torch.CollectiveGroup(process_group)
    _, hook = wrap_model(ddp_options={"process_group": process_group})
    for each in (*group._own.groups, *hook.peers.own.groups):
        assert abs(each._get_backend(cpu).options._timeout - hours) < timedelta(seconds=1)


def check_options_that_differ_between_ranks() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"warmup": RANK}, "warmup is 0 on rank 0 and 1 on rank 1: give all ranks the same"),
        ({"exclude": ["bias"] if RANK else []}, "exclude is () on rank 0 and ('bias') on rank 1"),
        ({"fallback": False} if RANK else {}, "fallback is True on rank 0 and False on rank 1"),
        ({"over": "process-group"} if RANK else {}, "over is 'server' on rank 0 and 'process-group' on rank 1"),
        ({"server": {"lane": 8 + RANK}}, "server is {lane: 8} on rank 0 and {lane: 9} on rank 1"),
        ({"warmup": RANK, "min_size": RANK}, "min_size is 0 on rank 0 and 1 on rank 1; warmup is 0 on rank 0 and 1 on rank 1"),
    ]
    for options, text in cases:
        with refused(thc.ConfigError, text):
            thc.torch.wrap(ddp(torch.nn.Linear(30, 30)), **sort_options(**options))
    with patch.dict(os.environ, {"THC_PS": "127.0.0.1:9"} if RANK == 1 else {}), refused(thc.ConfigError, "THC_PS", "False on rank 0 and True on rank 1"):
        thc.torch.wrap(ddp(torch.nn.Linear(30, 30)))
    # A rank that does not understand its own options does not leave the others waiting.
    with refused(thc.ConfigError, "device is 'bad'"):
        thc.torch.wrap(ddp(torch.nn.Linear(30, 30)), device="bad" if RANK == 1 else "cpu")


def check_wrong_options_start_nothing() -> None:
    servers: list[Any] = []
    server, before = thc.rendezvous.Server, thc.rendezvous.Server.__init__

    def counted(self: Any, *args: Any, **options: Any) -> None:
        servers.append(self)
        before(self, *args, **options)

    server.__init__ = counted  # type: ignore[method-assign]
    try:
        model = ddp(torch.nn.Linear(30, 30))
        wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"device": "cuda0"}, thc.ConfigError, "device is 'cuda0'"),
            ({"warmupp": 3}, TypeError, "warmupp"),
            ({"exclude": ["head.weight"]}, thc.ConfigError, "exclude has 'head.weight', and no parameter of the model matches"),
            ({"check_replicas": 0}, thc.ConfigError, "check_replicas is 0"),
        ]
        for options, kind, text in wrong:
            with refused(kind, text):
                thc.torch.wrap(model, **sort_options(**options))
        other = ddp(torch.nn.Linear(30, 30))
        other.register_comm_hook(None, bf16_compress_hook)
        wrapped, _ = wrap_model(torch.nn.Linear(30, 30))
        servers.clear()
        for taken, text in ((other, "has a communication hook already"), (wrapped, "is wrapped already")):
            with refused(thc.ConfigError, text):
                thc.torch.wrap(taken)
        assert not servers and len(wrapped._comm_hooks) == 1
    finally:
        server.__init__ = before  # type: ignore[method-assign]


def check_a_wrapped_model_is_pickled_without_its_hook() -> None:
    model, hook = wrap_model(torch.nn.Linear(30, 30), check_replicas=2)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (torch.load(file, weights_only=False), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(copied.module.weight, model.module.weight)
        again, other = thc.torch.wrap(copied, join=thc.Join(timeout=20)), thc.torch.hook_of(copied)
        for _ in range(3):
            again(torch.randn(4, 30)).sum().backward()
        assert same_everywhere([again.module.weight.grad]) and other is not hook and other.steps == 3 and hook.steps == 0
        other.close()


def check_names_are_those_of_the_model_inside() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(30, 30), checkpoint_wrapper(torch.nn.Linear(30, 30)))
    # PyTorch 2.4 cannot divide a graph with a checkpointed module into DDP's buckets.
    torch._dynamo.config.optimize_ddp = False
    outside = torch.compile(ddp(copy.deepcopy(net)), backend="eager")
    assert thc.torch.wrap(outside, exclude=["1.weight"], compression=thc.torch.Compression(feedback=True), join=thc.Join(timeout=20)) is outside
    inside, hook = wrap_model(torch.compile(net, backend="eager"), exclude=["1.weight"])
    assert hook is not thc.torch.hook_of(outside)
    states = []
    for model in (outside, inside):
        torch.manual_seed(RANK)
        x = torch.randn(4, 30)
        alone = torch.autograd.grad(model(x).square().sum(), list(model.parameters()), allow_unused=True)
        model(x).square().sum().backward()
        exact = alone[2].clone()
        dist.all_reduce(exact)
        assert error_of([list(model.parameters())[2].grad.reshape(-1)], [exact.reshape(-1) / SIZE]) < 1e-9
        states.append(thc.torch.hook_of(model).state_dict())
    assert set(states[0]["feedback"]) == set(states[1]["feedback"]) == {"0.weight", "0.bias", "1.bias"}
    other, hook = wrap_model(torch.nn.Sequential(torch.nn.Linear(30, 30)))
    with Messages() as messages:
        hook.load_state_dict(states[0])
    assert any("1.bias" in line and "does not have" in line for line in messages.lines), messages.lines
    other(torch.randn(4, 30)).sum().backward()
    assert set(hook.state_dict()["feedback"]) == {"0.weight", "0.bias"}
    with refused(TypeError, "DistributedDataParallel(model)"):
        thc.torch.wrap(torch.nn.Linear(3, 3))  # type: ignore[arg-type]


def check_a_state_that_some_ranks_load() -> None:
    """Ranks say so before their first calls, whose form would follow from the step."""
    model, hook = wrap_model(torch.nn.Linear(300, 300))
    for _ in range(4):
        model(torch.randn(4, 300)).sum().backward()
    for options in ({"warmup": 3}, {}, {"adapt": {}}):
        again, other = wrap_model(torch.nn.Linear(300, 300), feedback=None, **options)
        if RANK == 0:
            other.load_state_dict({**hook.state_dict(), "feedback": {}})
        with refused(thc.ConfigError, f"different steps, modulo 65536: 4 on rank 0, {', '.join(f'0 on rank {rank}' for rank in range(1, SIZE))}"):
            again(torch.randn(4, 300)).sum().backward()


def check_the_end_of_a_backward_pass_by_hand() -> str | None:
    model, _ = wrap_model(torch.nn.Linear(30, 30))
    if not hasattr(model, "require_manual_backward_finalization"):
        return "not run: this torch has no require_manual_backward_finalization"
    model.require_manual_backward_finalization = True
    with refused(thc.ConfigError, "require_manual_backward_finalization"):
        model(torch.randn(4, 30)).sum().backward()
    return None


def check_distributed_checkpoints_give_each_rank_its_own() -> None:
    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        return wrap_model(torch.nn.Linear(300, 300))

    def step(model: Any, number: int) -> None:
        model(torch.randn(8, 300, generator=torch.Generator().manual_seed(9 * number + RANK))).sum().backward()

    box = [tempfile.mkdtemp(prefix="thc-dcp-") if RANK == 0 else None]
    dist.broadcast_object_list(box)
    folder = str(box[0])
    model, hook = made()
    for number in range(5):
        step(model, number)
    mine = copy.deepcopy(hook.state_dict())
    assert mine["feedback"]["weight"].any()
    dcp.save({"thc": thc.torch.Checkpoint(model)}, checkpoint_id=f"{folder}/whole")
    for begun in (0, 1):
        other, loaded = made()
        for number in range(begun):
            step(other, number)
        dcp.load({"thc": thc.torch.Checkpoint(other)}, checkpoint_id=f"{folder}/whole")
        state = loaded.state_dict()
        assert state["steps"] == 5 and all(torch.equal(state["feedback"][name], kept) for name, kept in mine["feedback"].items())
        step(other, 5)
        assert loaded.steps == 6 and not loaded.fallback_active
        # What another number of ranks has saved is left out.
        thc.torch.Checkpoint(other).load_state_dict({"ranks": SIZE + 1, "states": {}})
        assert loaded.steps == 6
    # One of all ranks' equal names is kept there: that is refused when it is read.
    dcp.save({"thc": hook}, checkpoint_id=f"{folder}/hook")
    other, loaded = made()
    step(other, 0)
    try:
        dcp.load({"thc": loaded}, checkpoint_id=f"{folder}/hook")
        failed = False
    except Exception as error:
        failed = True
        assert "thc.torch.Checkpoint(model)" in str(error), error
    assert sum(everywhere(failed)) == SIZE - 1
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(folder)
