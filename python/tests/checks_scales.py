"""Coordinates that are compressed by their scales: what errors come to, and that all ranks have the same scales whatever happens."""

from __future__ import annotations

import io
import logging
from typing import Any

import plain  # noqa: F401 - device="torch"
import rig
import thc
import thc.torch
import torch
from rig import (
    RANK,
    SIZE,
    Weights,
    backward,
    error_of,
    everywhere,
    join,
    same_everywhere,
    server_of_all,
    wrap_model,
)
from thc import metrics
from torch import nn

torch.set_num_threads(1)

SIZES = (200_000, 700, 100, 60_000, 300, 90_000)
"""Large parameters, and small ones between them."""
SIZE_OF = (1.0, 30.0, 1e-3, 1e-4, 0.01, 0.3)
"""How large their gradients are."""


EXACT = 1e-5
"""Error of what travels as it is: 32-bit integers, of parameters that are packed together."""


def gradients(step: int, rank: int = RANK) -> list[torch.Tensor]:
    """Coordinates of each parameter are of very different sizes, too, which stay."""
    steady = torch.Generator().manual_seed(7)
    generator = torch.Generator().manual_seed(1000 * step + rank)
    found = []
    for length, size in zip(SIZES, SIZE_OF):
        own = torch.exp(1.5 * torch.randn(length, generator=steady))
        found.append(size * own * (0.5 + torch.randn(length, generator=generator)))
    return found


def mean_of(step: int) -> list[torch.Tensor]:
    every = [gradients(step, rank) for rank in range(SIZE)]
    return [torch.stack([g.double() for g in column]).mean(0) for column in zip(*every)]


def errors(means: list[torch.Tensor], step: int) -> list[float]:
    return [error_of([mean], [exact]) for mean, exact in zip(means, mean_of(step))]


def check_errors_are_in_proportion() -> None:
    """Of parameters, and of the small coordinates in each; what error feedback does to them shows beside."""
    model, hook = wrap_model(Weights(SIZES), scales=True)
    found = errors(backward(model, gradients(0)), 0)
    assert max(found) < EXACT, found
    for step in range(1, 6):
        means = backward(model, gradients(step))
        assert same_everywhere(means)
    found = errors(means, 5)
    assert max(found) < 0.05 and min(found) > 1e-4, found
    exact = mean_of(5)[0]
    own = torch.exp(1.5 * torch.randn(SIZES[0], generator=torch.Generator().manual_seed(7)))
    small = own < own.median()
    error = error_of([means[0][small]], [exact[small]])
    assert error < 0.2, error
    assert hook.state_dict()["feedback"] == {} and hook.group.save_feedback() == {}
    paper, _ = wrap_model(Weights(SIZES), feedback=True)
    for step in range(6):
        means = backward(paper, gradients(step))
    found = [error_of([means[0][small]], [exact[small]]), max(errors(means, 5))]
    assert min(found) > 0.4, found


def check_scales_are_the_default_where_means_are_the_same() -> None:
    assert wrap_model(Weights((3_000,)), feedback=None)[1].options.scales == 0.75
    for options, why in (({"adapt": True}, "adapt"), ({"server": {"policy": "best-effort"}}, "lose")):
        chosen = wrap_model(Weights((3_000,)), **{"feedback": None, **options})[1].options
        assert chosen.scales == 0 and chosen.feedback
        try:
            wrap_model(Weights((3_000,)), feedback=None, scales=True, **options)
            raise AssertionError("scales were promised")
        except thc.ConfigError as error:
            assert why in str(error), error
    try:
        wrap_model(Weights((3_000,)), scales=0.3)
        raise AssertionError("a power of its own")
    except thc.ConfigError as error:
        assert "0.75" in str(error)


def check_scales_survive_rebuilt_buckets_and_checkpoints() -> None:
    """What follows a checkpoint, in other buckets, is as good as what went before, and the same as without it where buckets are the same."""
    order = [2, 0, 3, 5, 1, 4]
    model, hook = wrap_model(Weights(SIZES), scales=True)
    for step in range(4):
        means = backward(model, gradients(step), order)
    assert max(errors(means, 3)) < 0.05
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    for ddp_options in ({}, {"bucket_cap_mb": 25}):
        file.seek(0)
        again, resumed = wrap_model(Weights(SIZES), ddp_options=ddp_options, scales=True)
        resumed.load_state_dict(torch.load(file))
        assert resumed.steps == 4
        for step in range(4, 6):
            means = backward(again, gradients(step), order)
            assert same_everywhere(means)
            assert 1e-4 < max(errors(means, step)) < 0.05, "scales are gone"
        mine, whole = resumed.state_dict()["scales"], hook.state_dict()["scales"]
        assert {name: seen - 2 for name, seen in mine["seen"].items()} == whole["seen"]
        assert same_everywhere(list(mine["squares"].values()))


def check_ranks_with_other_scales_get_an_error() -> None:
    for options in ({}, {"fallback": False}, {"over": "process-group"}):
        _with_other_scales(options)


def _with_other_scales(options: dict[str, Any]) -> None:
    model, hook = wrap_model(Weights((40_000,)), scales=True, **options)
    inputs = [torch.randn(40_000)]
    backward(model, inputs)
    state = hook.state_dict()
    backward(model, inputs)
    if RANK == 0:
        hook.load_state_dict(state)
    try:
        backward(model, inputs)
        raise AssertionError(f"a mean of gradients that were scaled differently: {options}")
    except thc.ScalesError as error:
        assert "load the hook's state of one step on all ranks" in str(error), error


class Sparse(nn.Module):
    """An embedding most of whose rows have no gradient, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.out = nn.Embedding(500, 24), nn.Linear(24, 300)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(self.embedding(rows)).square().mean()


def check_rows_without_gradient_stay_zero() -> None:
    """On all ranks, and only those."""
    for options in ({}, {"device": "torch"}):
        model, hook = wrap_model(Sparse(), scales=True, **options)
        for step in range(6):
            mine = [torch.randint(0, 500, (40,), generator=torch.Generator().manual_seed(50 * step + rank)) for rank in range(SIZE)]
            model.zero_grad(set_to_none=True)
            model(mine[RANK]).backward()
            found: Any = model.module.embedding.weight.grad
            seen = torch.zeros(500, dtype=torch.bool)
            seen[torch.cat(mine)] = True
            assert torch.equal(found.ne(0).any(1), seen), step
            assert same_everywhere([found])
        assert hook.state_dict()["scales"]["sparse"] == ["embedding.weight"]


def check_a_step_that_is_not_finite_leaves_scales_as_they_were() -> None:
    model, hook = wrap_model(Weights(SIZES), scales=True)
    for step in range(3):
        backward(model, gradients(step))
    before = hook.state_dict()["scales"]["squares"]
    bad = gradients(3)
    for gradient in bad:
        gradient[5] = float("nan") if RANK == 0 else 1.0
    backward(model, bad)
    assert hook.skipped
    after = hook.state_dict()["scales"]["squares"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    means = backward(model, gradients(4))
    assert max(errors(means, 4)) < 0.05 and same_everywhere(means)


def check_what_is_left_out_stays_exact() -> None:
    for options in ({"exclude": "*.0"}, {"min_size": 1000}, {"exclude": ["*.0", "*.5"], "uncompressed": "process-group"}):
        model, hook = wrap_model(Weights(SIZES), scales=True, **options)
        for step in range(3):
            means = backward(model, gradients(step))
            for name, error in zip([f"weights.{index}" for index in range(len(SIZES))], errors(means, step)):
                exact = step == 0 or not hook._buckets.compresses(name, means[int(name[-1])].numel())
                assert error < 1e-4 if exact else 2e-4 < error < 0.05, (options, step, name, error)


def check_half_precision_and_devices() -> None:
    """Where gradients are compressed makes no bit of difference, f16 comes out as accurate as it is."""
    host, _ = wrap_model(Weights(SIZES), scales=True, server={"seed": 77})
    device, hook = wrap_model(Weights(SIZES), scales=True, server={"seed": 77}, device="torch")
    half, _ = wrap_model(Weights(SIZES, torch.float16), scales=True)
    for step in range(4):
        mine = gradients(step)
        means, others = backward(host, mine), backward(device, mine)
        assert all(torch.equal(a, b) for a, b in zip(means, others)), step
        short = backward(half, [g.half() for g in mine])
        assert short[0].dtype == torch.float16 and same_everywhere(short)
        assert error_of([short[0]], [mean_of(step)[0]]) < 0.05
    assert hook.device is not None and hook.device.where != "host"


def check_the_guard_tells_what_compression_does_to_each_parameter() -> None:
    """Of each bucket in its turn, what the exact mean says itself; and it names who is swamped."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("thc.torch").addHandler(handler)
    try:
        for options in ({}, {"device": "torch"}, {"exclude": ["*.3"]}, {"over": "process-group"}):
            told.clear()
            model, hook = wrap_model(Weights(SIZES), ddp_options={"bucket_cap_mb": 25}, feedback=False, scales=False, check_accuracy=2, **options)
            for step in range(4):
                before = dict(hook.accuracy)
                means = backward(model, gradients(step))
                found = errors(means, step)
                assert step % 2 == 0 or hook.accuracy == before, step
                if step % 2 == 0:
                    assert set(hook.accuracy) == {f"weights.{index}" for index in range(len(SIZES))}
                    for index, error in enumerate(found):
                        nmse = hook.accuracy[f"weights.{index}"]
                        assert abs(nmse - error) < 1e-3 * error + 1e-9, (options, step, index, nmse, error)
            # The small gradients between large ones.
            swamped = [line for line in told if "weights.3" in line and "NMSE" in line]
            assert len(swamped) == ("exclude" not in options), told
            assert hook.group.stats().nmse == hook.accuracy
            assert 'thc_training_nmse{thc_job=' in metrics.text() and 'parameter="weights.0"' in metrics.text()
        model, hook = wrap_model(Weights(SIZES), ddp_options={"bucket_cap_mb": 0.3}, scales=True, check_accuracy=1)
        for step in range(8):
            backward(model, gradients(step))
        assert len(hook.accuracy) == len(SIZES) and max(hook.accuracy.values()) < 0.05, hook.accuracy
    finally:
        logging.getLogger("thc.torch").removeHandler(handler)
    for wrong in (0, -1, True, "often"):
        try:
            wrap_model(Weights((3_000,)), check_accuracy=wrong)
            raise AssertionError(wrong)
        except thc.ConfigError as error:
            assert "check_accuracy" in str(error)


def check_scales_begin_anew_after_a_loss() -> None:
    address, server = server_of_all()
    group = join(address, timeout=1.5)
    model, hook = wrap_model(Weights(SIZES), group=group, scales=True)
    for step in range(2):
        backward(model, gradients(step))
    if server is not None:
        server.kill()
    means = backward(model, gradients(2))
    assert all(everywhere(hook.fallback_active)) and max(errors(means, 2)) < 1e-9
    if server is not None:
        from servers import ParameterServer

        server = ParameterServer({"workers": SIZE}, listen=address)
    rig.dist.barrier()
    assert hook.resume()
    assert max(errors(backward(model, gradients(3)), 3)) < EXACT
    means = backward(model, gradients(4))
    assert 1e-5 < max(errors(means, 4)) < 0.2 and same_everywhere(means)
    group.close()
    if server is not None:
        server.kill()
