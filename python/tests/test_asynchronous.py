"""`thc.Asynchronous` on NumPy arrays and by the PyTorch optimizer. Workers are threads of this process, the server, too."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import thc
from conftest import run_together
from servers import COOKIE, ParameterServer

SECRET = "a secret for tests"
@pytest.fixture(scope="module")
def server() -> Iterator[thc.ModelServer]:
    with thc.ModelServer(SECRET, threads=2) as server:
        yield server


def join(server: thc.ModelServer, length: int, rate: float, model: str, **options: Any) -> thc.Asynchronous:
    return open_model(server.address, length, rate, model=model, timeout=20, **options)


def open_model(address: str, length: Any, rate: float, **options: Any) -> thc.Asynchronous:
    """Options of the specification may be among the others; its ``bits`` are ``model_bits`` here."""
    names = {"model_bits": "bits"} | {field.name: field.name for field in fields(thc.ModelSpec) if field.name != "bits"}
    spec = {names[key]: options.pop(key) for key in list(options) if key in names}
    return thc.Asynchronous(address, thc.ModelSpec(**{"coordinates": length, "rate": rate, **spec}), **{"secret": SECRET, **options})


def test_workers_find_the_minimum_of_a_quadratic(server: thc.ModelServer) -> None:
    target = np.sin(np.arange(500)).astype(np.float32)

    def work(worker: int) -> np.ndarray:
        with join(server, 500, 0.2, "quadratic", worker=worker, workers=3, bits=8, delay=200) as model:
            model.initialise(np.zeros(500))
            x = np.empty(500, np.float32)
            found = model.pull(x)
            assert found.running and not found.empty and len(found.versions) == 1
            for _ in range(40):
                pushed, found = model.push_pull(x - target, x)
                assert pushed.accepted_shards == 1 and pushed.delay <= 200 and not pushed.refused
            stats = model.stats()
            # The paper's bits and the byte that says which form it is.
            assert stats["pushed_bits"] == 40 * (8 + 8 + 32 + 8 * 500)
            assert stats["pushes"] == 40
            return x

    for x in run_together(*[lambda w=w: work(w) for w in range(3)]):
        assert np.linalg.norm(x - target) < 0.2 * np.linalg.norm(target)
    with join(server, 500, 0.2, "quadratic", worker=0, workers=3, delay=200) as model:
        assert model.server_stats()["pushes"] >= 120


def test_epochs_have_snapshots_and_gradients(server: thc.ModelServer) -> None:
    with join(server, 20, 0.5, "epochs", corrected=True, epoch=3, model_bits=32, bits=32, workers=1) as model:
        assert model.initialise(np.ones(20))
        x = np.empty(20, np.float32)
        found = model.pull(x)
        assert found.waiting == 0 and not found.running
        assert model.snapshot(x) == 0
        assert model.begin(0, np.full(20, 0.25)) and not model.begin(0, np.zeros(20))
        for _ in range(3):
            assert model.pull(x).running
            assert model.push(np.zeros(20)).accepted_shards == 1
        assert model.pull(x).waiting == 1
        assert model.snapshot(x) == 1
        np.testing.assert_allclose(x, 1 - 3 * 0.125)


def test_what_is_wrong_is_an_exception(server: thc.ModelServer) -> None:
    with join(server, 20, 0.5, "wrong") as model:
        with pytest.raises(thc.ModelEmptyError):
            model.snapshot(np.empty(20, np.float32))
        model.initialise(np.zeros(20))
        with pytest.raises(thc.ConfigError, match="coordinates"):
            model.pull(np.empty(21, np.float32))
        model.pull(np.empty(20, np.float32))
        with pytest.raises(thc.ConfigError):
            model.push(np.full(20, np.nan))
        with pytest.raises(thc.ModelRefusedError, match="rate"):
            join(server, 20, 0.25, "wrong")
    with pytest.raises(thc.ClosedError):
        model.stats()
    with pytest.raises(thc.ModelRefusedError, match="secret"):
        open_model(server.address, 20, 0.5, secret="some other secret", timeout=5)
    with pytest.raises(thc.ModelSilentError):
        open_model("127.0.0.1:9", 20, 0.5, timeout=0.5)
    for key in ("worker", "workers", "model_bits", "epoch", "delay", "seed"):
        for value in (-1, 2**70):
            with pytest.raises(thc.ConfigError, match=f"^{key.removeprefix('model_')} is {value}"):
                open_model(server.address, 20, 0.5, **{"timeout": 5, key: value})
    with pytest.raises(thc.ConfigError, match="^coordinates is 0"):
        open_model(server.address, 0, 0.5, timeout=5)
    for options in ({"bits": 1}, {"secret": "short"}, {"momentum": 0.9, "adam": (0.9, 0.99)}, {"coordinates": [thc.Tensor(20, bits=17)]}):
        with pytest.raises(thc.ConfigError):
            open_model(server.address, 20, 0.5, **{"workers": 8, "timeout": 5, **options})
    with join(server, 20, 0.5, "largest", delay=2**32 - 1, bits=16, sparse=True, budget=3.0) as model:
        model.initialise(np.zeros(20))
        model.pull(np.empty(20, np.float32))
        for scale in (-1.0, float("nan"), float("inf")):
            with pytest.raises(thc.ConfigError, match="scale"):
                model.push(np.ones(20), scale=scale)


def test_state_survives(tmp_path: Any) -> None:
    x = np.empty(20, np.float32)
    for expected in range(3):
        with thc.ModelServer(SECRET, state=tmp_path) as server, join(server, 20, 1.0, "m", model_bits=32, bits=32) as m:
            m.initialise(np.zeros(20))
            assert m.pull(x).versions == [expected]
            np.testing.assert_array_equal(x, -expected)
            m.push(np.ones(20))


class Process:
    """A model server that is a process of its own, always at one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.start()

    def start(self) -> None:
        code = "import sys, thc; server = thc.ModelServer(sys.argv[1], listen=sys.argv[2]); print('ready', flush=True); sys.stdin.read()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, SECRET, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="not run: Python has no torch (pip install torch)")


def _problem() -> tuple[Any, Any, Callable[[], Any]]:
    import torch as t

    generator = t.Generator().manual_seed(0)
    inputs = t.randn(240, 12, generator=generator)
    labels = (inputs[:, :3].sum(1) + 0.5 * inputs[:, 3] ** 2 > 0.3).long()

    def module() -> Any:
        t.manual_seed(1)
        return t.nn.Sequential(t.nn.Linear(12, 24), t.nn.ReLU(), t.nn.Linear(24, 2))

    return inputs, labels, module


@torch
def test_it_trains_convolutions_normalization_and_embeddings(server: thc.ModelServer) -> None:
    """Any module: shared and frozen parameters, f64 ones, gradients that stay away, groups of parameters."""
    import thc.torch
    import torch as t

    class Odd(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = t.nn.Embedding(11, 6)
            self.convolution = t.nn.Conv1d(6, 8, 3, padding=1)
            self.norm = t.nn.BatchNorm1d(8)
            self.wide = t.nn.Linear(8, 6, dtype=t.float64)
            self.scores = t.nn.Linear(6, 11)
            self.scores.weight = self.words.weight
            self.unused = t.nn.Parameter(t.full((3,), 5.0))
            self.frozen = t.nn.Parameter(t.full((2,), 7.0), requires_grad=False)

        def forward(self, rows: Any) -> Any:
            hidden = self.norm(self.convolution(self.words(rows).transpose(1, 2))).relu().mean(2)
            return self.scores(self.wide(hidden.double()).float())

    t.manual_seed(2)
    module = Odd()
    rows = t.randint(11, (64, 9))
    length = thc.torch.coordinates(module)
    with join(server, length, 0.5, "odd", bits=8, model_bits=16) as model:
        groups = [{"params": [module.frozen]}, {"params": [p for p in module.parameters() if p is not module.frozen]}]
        optimizer = thc.torch.AsynchronousSGD(groups, model)
        for step in range(150):
            optimizer.zero_grad()
            loss = t.nn.functional.cross_entropy(module(rows), rows[:, 4])
            loss.backward()
            optimizer.step()
            assert optimizer.version == step + 1
        assert loss < 0.5
        t.testing.assert_close(module.unused.detach(), t.full((3,), 5.0), atol=1e-3, rtol=0)
        assert (module.frozen == 7).all()
        assert module.scores.weight is module.words.weight and module.wide.weight.dtype == t.float64
        with pytest.raises(thc.ConfigError, match="length"):
            optimizer.add_param_group({"params": [t.nn.Parameter(t.zeros(2))]})
        optimizer.param_groups[0]["lr"] = 0.1
        with pytest.raises(thc.ConfigError, match="different learning rates"):
            optimizer.step()
        with pytest.raises(thc.ConfigError, match="parameters"):
            thc.torch.AsynchronousSGD(module.wide.parameters(), model)


@torch
def test_with_correction_it_averages_once_per_epoch(server: thc.ModelServer, jobs: ParameterServer) -> None:
    import thc.torch
    import torch as t

    inputs, labels, make = _problem()

    def work(worker: int) -> float:
        module = make()
        own = slice(120 * worker, 120 * worker + 120)

        def loss_on(chosen: Any) -> Any:
            module.zero_grad()
            loss = t.nn.functional.cross_entropy(module(inputs[chosen]), labels[chosen])
            loss.backward()
            return loss

        group = thc.Group(jobs.address, 40, worker, COOKIE, join=thc.Join(timeout=20, join_timeout=20))
        length = thc.torch.coordinates(module)
        options = {"worker": worker, "workers": 2, "corrected": True, "epoch": 40, "bits": 8}
        with join(server, length, 0.5, "corrected", **options) as model:
            with pytest.raises(thc.ConfigError, match="full"):
                thc.torch.AsynchronousSGD(module.parameters(), model)
            optimizer = thc.torch.AsynchronousSGD(module.parameters(), model, full=lambda: loss_on(own), group=group)
            with pytest.raises(thc.ConfigError, match="closure"):
                optimizer.step()
            batches = t.Generator().manual_seed(worker)
            # Both leave in the same epoch, whoever made how many of its steps.
            while (optimizer.epoch or 0) < 5:
                chosen = t.randint(240, (40,), generator=batches)
                optimizer.step(lambda: loss_on(chosen))
        group.close()
        with t.no_grad():
            return float(t.nn.functional.cross_entropy(module(inputs), labels))

    for loss in run_together(*[lambda w=w: work(w) for w in range(2)]):
        assert loss < 0.3


@torch
def test_who_comes_within_an_epoch_takes_its_snapshot_along(server: thc.ModelServer) -> None:
    import thc.torch
    import torch as t

    def quadratic() -> tuple[Any, Callable[[], Any]]:
        x = t.nn.Parameter(t.zeros(12))

        def closure() -> Any:
            x.grad = x.detach() - 3
            return x.grad.square().sum() / 2

        return x, closure

    with thc.Server(1, COOKIE) as averaging, thc.Group(averaging.address, 1, 0, COOKIE) as group:
        options: dict[str, Any] = {"workers": 2, "corrected": True, "epoch": 100, "bits": 32, "model_bits": 32}
        with join(server, 12, 0.25, "late", **options) as one, join(server, 12, 0.25, "late", worker=1, **options) as two:
            x, closure = quadratic()
            first = thc.torch.AsynchronousSGD([x], one, full=closure, group=group)
            for _ in range(3):
                first.step(closure)
            late, closure = quadratic()
            second = thc.torch.AsynchronousSGD([late], two, full=closure, group=group)
            assert (second.epoch, second.version) == (0, 3)
            second.step(closure)
            # Without error, correction is gradient descent: (x − 3) shrinks by the same factor at every step.
            t.testing.assert_close(late.detach(), t.full((12,), 3 * (1 - 0.75**4)))


@torch
def test_the_optimizer_goes_on_after_a_server_has_lost_the_model(caplog: pytest.LogCaptureFixture) -> None:
    import thc.torch
    import torch as t

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = Process(address)
    target = t.linspace(-1.0, 1.0, 100)
    x = t.nn.Parameter(t.zeros(100))
    with open_model(address, 100, 0.2, model_bits=16, bits=16, timeout=60) as model:
        optimizer = thc.torch.AsynchronousSGD([x], model)

        def step() -> None:
            x.grad = x.detach() - target
            optimizer.step()

        for _ in range(3):
            step()
        away = (x.detach() - target).abs()
        process.kill()
        process.start()
        for _ in range(20):
            step()
        assert "goes on from what this worker had" in caplog.text
        # It neither stands still nor begins anew.
        assert ((x.detach() - target).abs() <= 0.1 * away + 1e-3).all()
    process.kill()


@torch
def test_norms_are_exact_and_what_is_frozen_stays(server: thc.ModelServer) -> None:
    import thc.torch
    import torch as t

    t.manual_seed(4)
    module = t.nn.Sequential(t.nn.Embedding(40, 16), t.nn.LayerNorm(16), t.nn.Linear(16, 16), t.nn.LayerNorm(16), t.nn.Linear(16, 5))
    module[2].weight.requires_grad_(False)
    with t.no_grad():
        module[1].weight.mul_(30)
    frozen, norm = module[2].weight.clone(), module[1].weight.clone()
    tensors = thc.torch.tensors(module, bits=8)
    assert [tensor.bits for tensor in tensors] == [8, 32, 32, 32, 32, 32, 8, 32]
    rows = t.randint(40, (64,))
    with join(server, tensors, 0.01, "norms", adam=(0.9, 0.99), delay=300, workers=2) as model:
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)
        # Rounded alone, and not with the scale of the norm beside it.
        assert (module[1].weight == norm).all() and (module[2].weight == frozen).all()
        for _ in range(120):
            optimizer.zero_grad()
            loss = t.nn.functional.cross_entropy(module(rows), rows % 5)
            loss.backward()
            optimizer.step()
        assert loss < 0.1
        rounded = module[0].weight.clone()
        assert optimizer.settle() == 120
        assert not (module[0].weight == rounded).all() and (module[2].weight == frozen).all()
        other = t.nn.Sequential(t.nn.Embedding(40, 16), t.nn.LayerNorm(16), t.nn.Linear(16, 16), t.nn.LayerNorm(16), t.nn.Linear(16, 5))
        with pytest.raises(thc.ConfigError, match="frozen"):
            optimizer.export_into(other)
        other[2].weight.requires_grad_(False)
        assert optimizer.export_into(other) == 120
        for one, two in zip(module.parameters(), other.parameters()):
            assert (one == two).all() or not one.requires_grad
        assert optimizer.state_dict()["thc"] == {"version": 120, "skipped": 0, "late": 0}
        # What was settled goes on.
        optimizer.zero_grad()
        t.nn.functional.cross_entropy(module(rows), rows % 5).backward()
        optimizer.step()
        assert optimizer.settle() == 121
        with pytest.raises(thc.ConfigError, match="shapes"):
            optimizer.export_into(module[0])
        with pytest.raises(thc.ConfigError, match="order"):
            thc.torch.AsynchronousSGD(reversed(list(module.parameters())), model)


@torch
def test_what_is_not_finite_is_skipped_and_counted(server: thc.ModelServer) -> None:
    import thc.torch
    import torch as t

    x = t.nn.Parameter(t.zeros(10))
    with join(server, 10, 0.5, "nan", bits=32, model_bits=32) as model:
        optimizer = thc.torch.AsynchronousSGD([x], model)
        for step in range(30):
            x.grad = x.detach() - 1
            if step % 10 == 3:
                x.grad[4] = float("nan") if step == 3 else float("inf")
            optimizer.step()
        assert optimizer.skipped == 3 and optimizer.settle() == 27
        t.testing.assert_close(x.detach(), t.ones(10), atol=1e-2, rtol=0)


@torch
def test_a_worker_that_is_too_slow_is_told(server: thc.ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    import thc.torch
    import torch as t

    options: dict[str, Any] = {"workers": 2, "delay": 1, "bits": 32}
    with thc.ModelServer(SECRET) as running:
        with join(running, 10, 0.1, "slow", **options) as slow, join(running, 10, 0.1, "slow", worker=1, **options) as quick:
            x = t.nn.Parameter(t.zeros(10))
            optimizer = thc.torch.AsynchronousSGD([x], slow)
            y = np.empty(10, np.float32)
            for _ in range(3):
                quick.pull(y)
                quick.push(np.ones(10))
            x.grad = t.ones(10)
            optimizer.step()
            assert optimizer.late == 1
            assert "too slow" in caplog.text
            optimizer.step()
            assert optimizer.late == 1
