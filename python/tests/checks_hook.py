"""The hook in DistributedDataParallel, on any number of ranks."""

from __future__ import annotations

import io
import os
import pickle
from typing import Any
from unittest.mock import patch

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import (
    RANK,
    SIZE,
    SIZES,
    Weights,
    backward,
    ddp,
    error_of,
    expect_error,
    everywhere,
    exact_mean,
    gradients,
    is_compressed,
    refused,
    same_everywhere,
    server_of_all,
    wrap_model,
)
from servers import COOKIE
from thc.torch.joining import enter


def check_average() -> None:
    model, hook = wrap_model()
    for step in range(3):
        means = backward(model, gradients(step))
        assert same_everywhere(means)
        if step == 0:  # later ones have the feedback in them
            error = error_of(means, exact_mean(step))
            assert is_compressed(error), error
    stats = hook.group.stats()
    assert hook.steps == 3 and not hook.skipped and hook.error is None
    # 0.55 bytes up and 1.05 down per coordinate, a ring's 8·(n − 1)/n each way.
    assert stats.bytes < 3 * sum(SIZES) * 1.8
    assert stats.saved_bytes(SIZE) > 0


def check_one_group_for_several_models() -> None:
    one, hook = wrap_model(Weights((50_000,)))
    two, other = wrap_model(Weights((70_000, 10)), group=hook.group)
    three, third = wrap_model(Weights((50_000,)))  # in a group of its own
    assert other.group is hook.group and third.group is not hook.group
    for step in range(3):
        for model, sizes in ((one, (50_000,)), (two, (70_000, 10)), (three, (50_000,))):
            means = backward(model, gradients(step, sizes=sizes))
            assert same_everywhere(means)
            if step == 0:
                assert is_compressed(error_of(means, exact_mean(step, sizes)))
    assert hook.steps == other.steps == third.steps == 3
    assert len(hook.group.save_feedback()) == 2
    # In one backward pass, too, as long as autograd runs them in one order on all ranks, as DDP needs it.
    model_inputs = [gradients(3, sizes=sizes) for sizes in ((50_000,), (70_000, 10))]
    for model in (one, two):
        model.zero_grad(set_to_none=True)
    (one(model_inputs[0]) + two(model_inputs[1])).backward()
    for model, sizes in ((one, (50_000,)), (two, (70_000, 10))):
        means = [p.grad for p in model.parameters()]
        assert same_everywhere(means) and error_of(means, exact_mean(3, sizes)) < 0.1
    assert hook.steps == other.steps == 4


def check_half_precision() -> None:
    model, _ = wrap_model(Weights(dtype=torch.float16))
    means = backward(model, gradients(1, dtype=torch.float16))
    assert means[0].dtype == torch.float16 and same_everywhere(means)
    assert is_compressed(error_of(means, exact_mean(1, dtype=torch.float16)))


def check_double_goes_through_the_process_group() -> None:
    model, hook = wrap_model(Weights((40_000,), dtype=torch.float64))
    means = backward(model, gradients(1, sizes=(40_000,), dtype=torch.float64))
    assert error_of(means, exact_mean(1, (40_000,), torch.float64)) < 1e-25
    assert hook.group.stats().coordinates <= 100  # the packet at the end of a step


class Sparse(torch.nn.Module):
    """Rows of a table, whose gradients are sparse, and weights, whose gradients are not."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(50, 8, sparse=True, dtype=dtype)
        self.weights = Weights((20_000,))
        torch.nn.init.ones_(self.rows.weight)

    def forward(self, at: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor:
        return (self.rows(at).sum() * (1 + RANK)).float() + self.weights(inputs)


def check_sparse_gradients_go_through_the_process_group() -> None:
    """As without a hook: each rank has rows of its own, and one in common."""
    exact = torch.zeros(50, 8)
    exact[:SIZE] = torch.arange(1.0, 1 + SIZE)[:, None] / SIZE
    exact[7] = sum(range(1, 1 + SIZE)) / SIZE
    for options in ({}, {"adapt": {}}, {"fallback": False}):
        model, hook = wrap_model(Sparse(), **options)
        for step in range(2):
            model.zero_grad(set_to_none=True)
            model(torch.tensor([RANK, 7]), gradients(step, sizes=(20_000,))).backward()
            rows, weights = model.module.rows.weight.grad, model.module.weights.weights[0].grad
            assert rows.is_sparse and torch.allclose(rows.to_dense(), exact), (options, step)
            assert same_everywhere([weights]) and error_of([weights], exact_mean(step, (20_000,))) < 0.1, options
        assert hook.steps == 2


def check_warmup() -> None:
    model, _ = wrap_model(warmup=2)
    for step in range(2):
        assert error_of(backward(model, gradients(step)), exact_mean(step)) < 1e-12
    assert is_compressed(error_of(backward(model, gradients(2)), exact_mean(2)))


def check_opting_out() -> None:
    sizes = (3_000, 200_000, 100, 90_000)
    cases: list[tuple[dict[str, Any], list[bool]]] = [
        ({"min_size": 50_000}, [True, False, True, False]),
        ({"exclude": "*.3"}, [False, False, False, True]),
        ({"exclude": ["weights.1", "weights.3"]}, [False, True, False, True]),
        ({"exclude": ["*"]}, [True] * 4),
    ]
    for options, exact in cases:
        model, _ = wrap_model(Weights(sizes), feedback=False, **options)
        means, wanted = backward(model, gradients(0, sizes=sizes)), exact_mean(0, sizes)
        for mean, target, kept in zip(means, wanted, exact):
            error = error_of([mean], [target])
            # Excluded ones among compressed ones leave the error of small neighbours open.
            assert error < 1e-12 if kept else 1e-4 < error < 0.2, (options, error, kept)


def residuals(hook: thc.torch.Hook) -> list[torch.Tensor]:
    """Mean error feedback over all ranks, by parameter."""
    saved = hook.state_dict()["feedback"]
    found = []
    for index in range(len(SIZES)):
        mine = saved.get(f"weights.{index}", torch.zeros(SIZES[index])).clone()
        dist.all_reduce(mine)
        found.append(mine / SIZE)
    return found


class Books:
    """Sums of exact means and of what came instead; the difference must be the mean error feedback, always."""

    def __init__(self) -> None:
        self.exact = [torch.zeros(size, dtype=torch.float64) for size in SIZES]
        self.found = [torch.zeros(size, dtype=torch.float64) for size in SIZES]

    def step(self, model: torch.nn.Module, number: int, order: list[int] | None = None) -> None:
        for total, mean in zip(self.found, backward(model, gradients(number), order)):
            total += mean
        for total, mean in zip(self.exact, exact_mean(number)):
            total += mean

    def balance(self, hook: thc.torch.Hook) -> None:
        kept = residuals(hook)
        missing = [e - f for e, f in zip(self.exact, self.found)]
        assert max(float(m.abs().max()) for m in missing) > 0.05, "nothing was lost: was it compressed?"
        for index, (lost, have) in enumerate(zip(missing, kept)):
            worst = float((lost - have).abs().max())
            assert worst < 1e-3, f"parameter {index}: {worst}"


def check_error_feedback_survives_rebuilt_buckets() -> None:
    model, hook = wrap_model()
    books = Books()
    # Gradients come in another order than DDP expects, so that it makes other buckets after the first step.
    for step in range(4):
        books.step(model, step, [2, 0, 3, 1])
        books.balance(hook)
    layouts = {tuple(segment.name for segment in layout.segments) for layout in hook._buckets.layouts.values()}
    assert len(layouts) > len(SIZES) - 1, "DDP has not rebuilt its buckets, so this shows nothing"


def check_checkpoint() -> None:
    books = Books()
    model, hook = wrap_model()
    for step in range(3):
        books.step(model, step)
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    file.seek(0)
    # Another run with other buckets.
    again, resumed = wrap_model(ddp_options={"bucket_cap_mb": 25}, warmup=2)
    resumed.load_state_dict(torch.load(file))
    assert resumed.steps == 3
    assert all(torch.equal(a, b) for a, b in zip(residuals(resumed), residuals(hook)))
    for step in range(3, 6):
        books.step(again, step)
    books.balance(resumed)
    resumed.reset_feedback()
    assert resumed.state_dict()["feedback"] == {}


def check_nonfinite_gradients_skip_the_step_on_all_ranks() -> None:
    for bad, where in ((float("nan"), 0), (float("inf"), SIZE - 1)):
        model, hook = wrap_model()
        optimizer = hook.guard(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
        books = Books()
        books.step(model, 0)
        optimizer.step()
        before = [p.detach().clone() for p in model.parameters()]
        mine = gradients(1)
        if RANK == where:
            mine[2][100] = bad
        means = backward(model, mine)
        assert everywhere(hook.skipped) == [True] * SIZE
        assert everywhere(bool(means[2].isnan().all())) == [True] * SIZE, "as without a hook, NaN is to be seen"
        optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        books.step(model, 2)
        assert everywhere(hook.skipped) == [False] * SIZE
        optimizer.step()
        assert not torch.equal(before[0], next(model.parameters())) and same_everywhere(list(model.parameters()))
        # Parameters whose bucket had no NaN were reduced at step 1, too.
        kept, missing = residuals(hook), [e - f for e, f in zip(books.exact, books.found)]
        assert float((missing[2] - kept[2]).abs().max()) < 1e-3


def check_accumulation_and_no_sync() -> None:
    model, hook = wrap_model()
    model.zero_grad(set_to_none=True)
    with model.no_sync():
        for step in range(2):
            model(gradients(step)).backward()
    assert hook.steps == 0, "no_sync sends nothing"
    model(gradients(2)).backward()
    assert hook.steps == 1
    means = [p.grad for p in model.parameters()]
    exact = [sum(each) for each in zip(*[exact_mean(step) for step in range(3)])]
    assert same_everywhere(means) and is_compressed(error_of(means, exact))


class Branches(torch.nn.Module):
    """Uses one of two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Parameter(torch.ones(20_000))
        self.right = torch.nn.Parameter(torch.ones(20_000))

    def forward(self, left: bool, inputs: torch.Tensor) -> torch.Tensor:
        return ((self.left if left else self.right) * inputs).sum()


def check_unused_parameters() -> None:
    model, _ = wrap_model(Branches(), {"find_unused_parameters": True})
    for step, left in enumerate((True, False, True)):
        model.zero_grad(set_to_none=True)
        (mine,) = gradients(step, sizes=(20_000,))
        model(left, mine).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert same_everywhere(grads)
        used = model.module.left if left else model.module.right
        if step == 0:
            assert is_compressed(error_of([used.grad], exact_mean(step, (20_000,))))


def check_a_state_that_was_pickled_connects_with_the_first_bucket() -> None:
    state = thc.torch.State(compression=thc.torch.Compression(warmup=1, feedback=True), join=thc.Join(timeout=20, join_timeout=20))
    model, told = ddp(Weights((5_000, 70_000))), pickle.loads(pickle.dumps(state))
    model.register_comm_hook(told, thc.torch.thc_hook)
    assert told.hook is None and not thc.torch.is_wrapped(model)
    for step in range(2):
        means = backward(model, gradients(step, sizes=(5_000, 70_000)))
        error = error_of(means, exact_mean(step, (5_000, 70_000)))
        assert is_compressed(error) if step else error < 1e-12
    assert told.hook is not None and told.connect() is told.hook and state.hook is None
    # It knows no model, so parameters have numbers.
    assert set(told.hook.state_dict()["feedback"]) == {"p0", "p1"}
    rig._made.append(told.hook.group)


def check_a_state_that_cannot_connect_says_so_from_backward() -> None:
    model = ddp(Weights())
    model.register_comm_hook(thc.torch.State(model, compression=thc.torch.Compression(warmup=RANK)), thc.torch.thc_hook)
    for step in range(2):
        with refused(thc.ConfigError, "warmup is 0 on rank 0 and 1 on rank 1"):
            backward(model, gradients(step))
        assert all(bool(weight.grad.isnan().all()) for weight in model.parameters())


def check_the_job_of_the_environment() -> None:
    address, server = server_of_all()
    given = {"THC_PS": address, "THC_COOKIE": hex(COOKIE), "THC_TIMEOUT": "20"}
    with patch.dict(os.environ, given):
        one, hook = wrap_model(Weights((30_000,)))
        two, other = wrap_model(Weights((40_000,)))
        assert hook.group is other.group and hook.group.ps == address and hook.group.worker == RANK
        for step in range(2):
            assert same_everywhere(backward(one, gradients(step, sizes=(30_000,))))
            assert same_everywhere(backward(two, gradients(step, sizes=(40_000,))))
        hook.group.close()
        _, third = wrap_model(Weights((10_000,)))
        assert third.group is not hook.group, "a closed group is not used again"
        third.group.close()


def check_mistakes_are_told() -> None:
    _, hook = wrap_model(Weights((100,)))

    expect_error(thc.ConfigError, "warmup", lambda: rig.connected(hook.group, warmup=-1))
    expect_error(thc.ConfigError, "exclude", lambda: rig.connected(hook.group, exclude=["*.bias"]))
    expect_error(thc.ConfigError, "no THC hook", lambda: thc.torch.hook_of(Weights((10,))))
    expect_error(thc.ConfigError, "timeout", lambda: thc.torch.wrap(ddp(Weights((10,))), group=hook.group, join=thc.Join(timeout=3)))
    expect_error(thc.ConfigError, "join is a dict", lambda: thc.torch.wrap(ddp(Weights((10,))), join={"timeout": 3}))
    expect_error(thc.ConfigError, "every", lambda: thc.torch.sync_parameters(Weights((10,)), 0))
    spread = torch.nn.ModuleList([Weights((10,)), Weights((10,)).to("meta")])
    expect_error(thc.ConfigError, "2 devices (cpu, meta)", lambda: rig.connected(hook.group, spread))
    leaves_out = ddp(Weights((10,)))
    leaves_out.skip_all_reduce_unused_params = True
    expect_error(thc.ConfigError, "skip_all_reduce_unused_params", lambda: rig.connected(hook.group, leaves_out))
    with thc.Server(1, 9) as server, thc.Group(server.address, 1, 0, 9) as alone:
        expect_error(thc.ConfigError, f"{SIZE} ranks", lambda: enter(None, alone, "server", thc.torch.Compression(), thc.Join()))


def check_steps_tell_how_long_they_wait() -> None:
    model, hook = wrap_model()
    for step in range(6):
        backward(model, gradients(step))
    training, stats = hook.group.training, hook.group.stats()
    assert training.steps == 5, "the first step has no beginning"
    assert stats.computing > 0 and stats.waited > 0
