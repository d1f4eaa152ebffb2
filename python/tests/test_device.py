"""`thc.torch.device`: what is computed where the gradients are is, bit for bit, what thc-codec computes (P28 to P32).

One worker alone in a job gets back what its own indices stand for, so that its mean and its error feedback show every one of them.
Two jobs are alike; in one the library computes, in the other a device: a GPU if there is one, otherwise Triton's interpreter and
torch's plain operations on tensors of the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs, newest_has, run_together
from patience import HANG

needs("torch")

import torch  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
if not CUDA:
    os.environ.setdefault("TRITON_INTERPRET", "1")

import thc  # noqa: E402
from thc import _native  # noqa: E402
import plain  # noqa: E402
from thc.torch.device.codec import DeviceCodec  # noqa: E402

torch.set_num_threads(1)

KERNELS: dict[str, Any] = {"torch": plain}
MISSING = ""
try:
    import triton
    from thc.torch.device import compiled

    if not CUDA and triton.__version__.startswith("3.0."):
        raise ImportError("the interpreter of Triton 3.0, unlike its compiler, does not take them")
    KERNELS["triton"] = compiled
except ImportError as error:
    MISSING = f"not run: kernels in Triton: {error}"

TABLES = ["bits=1,lane=4", "bits=1,lane=16", "bits=2,lane=4", "bits=2", "bits=3,lane=4", "bits=3", "bits=3,lane=16", "bits=4,lane=16", "bits=8"]
"""Beside the first, 4 bits in lanes of 8: every width and every lane."""

COOKIE = 99


class Pair:
    """Two jobs of one worker that differ in nothing, and a codec on the device for the second."""

    def __init__(self, kernels: str, seed: int = 1, piece: int = 16, **options: Any) -> None:
        self.servers = [thc.Server(1, COOKIE, seed=seed, **options) for _ in range(2)]
        self.groups = [thc.Group(server.address, 1, 0, COOKIE, join=thc.Join(timeout=30)) for server in self.servers]
        self.codec = DeviceCodec(self.groups[1], DEVICE, KERNELS[kernels], piece)

    def check(self, x: torch.Tensor, key: int | None = 7, **how: Any) -> torch.Tensor:
        """One call on either side."""
        want = x.float().numpy().copy()
        got = x.clone().to(DEVICE)
        self.groups[0].allreduce(want, feedback=key, **how)
        done = self.codec.allreduce(got, key, **how)
        if done is not None:
            done.synchronize()
        got = got.cpu()
        # What the library leaves in f32 the hook converts as torch does.
        assert_same(got, torch.from_numpy(want).to(x.dtype), "mean")
        if key is not None and how.get("mode") != "raw":
            saved = [self.groups[0].save_feedback()[key], self.codec.save_feedback()[key]]
            # Equal but for bits of NaN, which there are none of.
            assert saved[0] == saved[1], "error feedback"
        return got

    def close(self) -> None:
        for each in (*self.groups, *self.servers):
            each.close()


def assert_same(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    whole = torch.int32 if got.dtype == torch.float32 else torch.int16
    different = (got.view(whole) != want.view(whole)).nonzero()
    first = int(different[0]) if len(different) else 0
    assert not len(different), f"{what}: {len(different)} differ, the first at {first}: {got[first]} for {want[first]}"


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(*args: Any, **options: Any) -> Pair:
        made.append(Pair(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=["torch", "triton"])
def kernels(request: pytest.FixtureRequest) -> str:
    if request.param not in KERNELS:
        newest_has("Triton's kernels are tried")
        pytest.skip(MISSING)
    return request.param


def gradient(length: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Coordinates of many magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(length, generator=generator) * torch.exp(2 * torch.randn(length, generator=generator))).to(dtype)


@pytest.mark.parametrize(
    ("block", "lengths"),
    [
        (10, (1, 1023, 1024, 5000)),
        (11, (4097,)),
        (12, (12_289,)),
        (13, (8192, 20_001)),
        (14, (16_384 + 1,)),
        (17, (1 << 17,)),
        (20, (1 << 20,)),
    ],
)
def test_blocks_and_tails(pair: Any, kernels: str, block: int, lengths: tuple[int, ...]) -> None:
    if block == 20 and kernels == "triton" and not CUDA and not os.environ.get("THC_TRACES"):
        pytest.skip("not run: Triton's interpreter takes minutes for a block of 2^20, and 2^17 has several tiles, too (THC_TRACES=1 runs it)")
    both = pair(kernels, block=block)
    for key, length in enumerate(lengths):
        both.check(gradient(length, length), key)
        # Again, with error feedback.
        if block < 17:
            both.check(gradient(length, length + 1), key)


def test_the_published_method_demands_a_key_here_as_on_the_host() -> None:
    with thc.Server(1, COOKIE, method="thc-paper") as server:
        group = thc.Group(server.address, 1, 0, COOKIE, method="thc-paper", join=thc.Join(timeout=30))
        codec = DeviceCodec(group, DEVICE, plain)
        with pytest.raises(thc.ConfigError, match="feedback is missing, and method = 'thc-paper' keeps error feedback"):
            codec.begin(torch.ones(9, device=DEVICE))
        codec.allreduce(torch.ones(9, device=DEVICE), mode="raw")
        group.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_seeds_and_rounds(pair: Any, kernels: str, seed: int) -> None:
    both = pair(kernels, seed=seed, block=11)
    for step in range(3):
        both.check(gradient(5000, 10 * seed + step))


def test_every_width_and_lane_and_raw_in_one_call(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=12, tables=TABLES)
    tables = both.groups[0].tables
    assert {table.width for table in tables} == {1, 2, 3, 4, 8} and {table.lane for table in tables} == {4, 8, 16}
    plan: list[tuple[int, Any]] = []
    for at, table in enumerate(tables):
        plan += [(1500 + 311 * at, table.id), (700 + at, "raw")]
    length = sum(span for span, _ in plan)
    both.check(gradient(length, 1), plan=plan)
    # Another plan takes over what was left.
    both.check(gradient(length, 9), plan=[(length // 2, tables[-1].id), (length - length // 2, "raw")])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(pair: Any, kernels: str, dtype: torch.dtype) -> None:
    both = pair(kernels, block=13)
    for step in range(2):
        both.check(gradient(9001, step, dtype))
        both.check(gradient(3001, step, dtype), key=8)
    both.check(gradient(9000, 3, dtype), None, mode="raw")


def test_without_error_feedback_and_raw(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=13)
    for length in (5, 9000):
        both.check(gradient(length, length), None)
        both.check(gradient(length, length), None, mode="raw")
    both.check(torch.tensor([1e30, -1e30, 3.3e29, 0.0, -0.0, 1.0]), None, mode="raw")


def test_unusual_numbers(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=11)
    zeros = torch.zeros(5000)
    both.check(zeros)
    some = gradient(5000, 1)
    some[2048:4096] = 0.0
    both.check(some)
    both.check(zeros)  # what is left of the second partition alone
    tiny = torch.full((5000,), 1e-42)
    tiny[7] = -1e-45
    both.check(tiny, key=8)  # below the least norm: as zeros
    tiny[0], tiny[3000] = 1e-20, -0.0
    both.check(tiny, key=8)
    huge = gradient(5000, 2) * 1e30
    both.check(huge, key=9)
    alone = torch.zeros(5000)
    alone[77], alone[2048] = 128.0, -1e-25
    both.check(alone, key=10)
    mixed = gradient(5000, 4) * torch.exp2(torch.linspace(-148.0, 60.0, 5000))
    both.check(mixed, key=11)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_fails_and_changes_nothing(pair: Any, kernels: str, bad: float) -> None:
    both = pair(kernels, block=11)
    both.check(gradient(5000, 1))
    before = both.codec.save_feedback()
    poisoned = gradient(5000, 2)
    poisoned[4321] = bad
    x = poisoned.clone().to(DEVICE)
    for mode in ("compressed", "raw"):
        with pytest.raises(thc.NonFiniteError):
            both.codec.allreduce(x, 7, mode=mode)
        with pytest.raises(thc.NonFiniteError):
            both.groups[0].allreduce(poisoned.numpy().copy(), feedback=7 if mode == "compressed" else None, mode=mode)
    assert_same(x.cpu(), poisoned, "gradient")
    assert both.codec.save_feedback() == before
    both.check(gradient(5000, 3))


def test_a_device_and_two_hosts_of_one_job(kernels: str) -> None:
    with thc.Server(3, COOKIE, block=12) as server:
        groups = run_together(*[lambda w=w: thc.Group(server.address, 1, w, COOKIE, join=thc.Join(inject="loss=0.01" if w == 1 else None)) for w in range(3)])
        codec = DeviceCodec(groups[1], DEVICE, KERNELS[kernels], 16)
        plan = [(66_000, groups[0].tables[0].id), (3000, "raw"), (7000, groups[0].tables[0].id)]
        for step in range(2):
            inputs = [gradient(76_000, 3 * step + w) for w in range(3)]
            means = [x.numpy().copy() for x in inputs]
            on_device = inputs[1].to(DEVICE)
            run_together(
                lambda: groups[0].allreduce(means[0], feedback=3, plan=plan),
                lambda: codec.allreduce(on_device, 3, plan),
                lambda: groups[2].allreduce(means[2], feedback=3, plan=plan),
            )
            assert np.array_equal(means[0].view(np.int32), means[2].view(np.int32))
            assert_same(on_device.cpu(), torch.from_numpy(means[0]), "mean")
        for group in groups:
            group.close()


def test_several_calls_under_way(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=12)
    inputs = [gradient(3000 + 4000 * at, at) for at in range(3)]
    want = [x.numpy().copy() for x in inputs]
    got = [x.to(DEVICE) for x in inputs]
    for step in range(2):
        for key, array in enumerate(want):
            both.groups[0].allreduce(array, feedback=key)
        calls = [both.codec.begin(x, key) for key, x in enumerate(got)]
        for call in calls:
            call.submit()
        for call in calls:
            call.feed()
        for call in calls:
            done = call.finish()
            if done is not None:
                done.synchronize()
        for x, array in zip(got, want):
            assert_same(x.cpu(), torch.from_numpy(array), "mean")


def test_feedback_is_saved_as_the_group_saves_it(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=11)
    both.check(gradient(5000, 1))
    saved = both.groups[0].save_feedback()
    both.codec.restore_feedback(saved)
    both.check(gradient(5000, 2))
    both.groups[0].reset_feedback(7)
    both.codec.reset_feedback(7)
    both.check(gradient(5000, 3))
    damaged = {7: saved[7][:-4] + b"\x00\x00\xc0\x7f"}
    with pytest.raises(thc.FeedbackError):
        both.codec.restore_feedback(damaged)
    with pytest.raises(thc.FeedbackError):
        both.codec.allreduce(gradient(4000, 3).to(DEVICE), 7)


def test_memory_is_used_again(pair: Any, kernels: str) -> None:
    both = pair(kernels, block=11)
    cut = both.codec.cut(((5000, both.groups[1].tables[0].id),))
    for step in range(3):
        both.check(gradient(5000, step))
    assert len(cut._free) == 1
    pages = cut._free[0][0]
    assert all(memory.address % 4096 == 0 for memory in (*pages.indices, *pages.sums))
    assert pages.pinned == CUDA


def test_choice_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from thc.torch.compression import selector as choice
    from thc.torch.options import Options

    def options(device: str) -> Options:
        return Options(feedback=True, fallback=True, device=device)

    with thc.Server(1, COOKIE) as server, thc.Group(server.address, 1, 0, COOKIE) as group:
        on_cpu, on_gpu = torch.device("cpu"), torch.device("cuda:0")
        assert choice.choose(group, on_cpu, options("auto")).where == "cpu"
        assert choice.choose(group, on_cpu, options("torch")).kernels is plain
        assert choice.choose(group, on_gpu, options("cpu")).where == "cpu"
        found = choice.choose(group, torch.device("xpu:0"), options("auto"))
        assert (found.where, found.why) == ("cpu", "there are no kernels for gradients on xpu:0")
        monkeypatch.setattr(choice, "_kernels", lambda where, device: (plain, "") if where == "triton" else (None, "none"))
        assert choice.choose(group, on_gpu, options("auto")).where == "triton"
        monkeypatch.setattr(choice, "_kernels", lambda where, device: (None, "Triton cannot be imported"))
        found = choice.choose(group, on_gpu, options("auto"))
        assert (found.where, found.why) == ("cpu", "Triton cannot be imported")
        with pytest.raises(thc.ConfigError, match="Triton cannot be imported: leave device out"):
            choice.choose(group, on_gpu, options("triton"))
    with thc.Server(1, COOKIE, policy="best-effort") as server, thc.Group(server.address, 1, 0, COOKIE) as group:
        assert "may lose packets" in choice.choose(group, on_gpu, options("auto")).why


def test_memory_that_is_in_use_is_not_given_twice(pair: Any) -> None:
    both = pair("torch", block=11)
    codec, cut = both.codec, both.codec.cut(((5000, both.groups[1].tables[0].id),))
    call = codec.begin(gradient(5000, 1).to(DEVICE), 7)
    native = both.groups[1]._native
    call.submit()
    norms = np.ones(cut.partitions, dtype=np.float32)

    def packed(norms: Any, wait: bool = False) -> Any:
        tensor = _native.PackedTensor(5000, cut.piece, norms, call._pages.sums)
        return native.call(tensor, plan=cut.plan, feedback=7, wait=wait)

    with pytest.raises(thc.ConfigError, match="give wait=False"):
        packed(norms, wait=True)
    with pytest.raises(ValueError, match="in use by a call"):
        packed(norms)
    call.feed()
    call.finish()
    with pytest.raises(thc.ConfigError, match="ask for its layout"):
        packed(norms[1:])
    codec.allreduce(gradient(5000, 1).to(DEVICE), 7)


def test_a_call_that_is_given_up_ends_the_session_and_the_group_joins_anew(pair: Any) -> None:
    both = pair("torch", block=11)
    call = both.codec.begin(gradient(5000, 1).to(DEVICE), 7)
    call.submit()
    both.codec.kernels = None
    call.feed()
    with pytest.raises(AttributeError):
        call.finish()
    both.codec.kernels = plain
    with pytest.raises(thc.SessionError, match="given up"):
        for _ in range(1000):
            both.codec.allreduce(gradient(5000, 1).to(DEVICE), 7)
    both.groups[1].rejoin()
    both.codec.allreduce(gradient(5000, 1).to(DEVICE), 7)


def test_the_compiler_takes_kernels_and_contracts_nothing(tmp_path: Path) -> None:
    newest_has("Triton's kernels are tried")
    if MISSING:
        pytest.skip(MISSING)
    program = Path(__file__).with_name("compiled_kernels.py")
    # Where this process has `thc` from, and no interpreter.
    path = os.pathsep.join([str(Path(thc.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(program)], env=os.environ | variables, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    norms, compress, decompress = json.loads(done.stdout)
    # A thread of `compress` has 16 coordinates; of each the position and the threshold are fused, and nothing else is.
    assert (compress["warps"], compress["fused"], decompress["fused"], norms["fused"]) == (16, 32, 0, 0)
    assert all(each["stack"] < 128 and each["programs"] >= 1 for each in (norms, compress, decompress))


def test_the_checks_of_a_gpu_run() -> None:
    """On the CPU, where they show nothing of a GPU but that each comes to its end."""
    newest_has("the checks of a GPU are tried")
    if CUDA:
        return
    program = Path(__file__).with_name("gpu.py")
    done = subprocess.run([sys.executable, str(program), "--dry"], capture_output=True, text=True, timeout=5 * HANG)
    assert done.returncode == 0, done.stdout + done.stderr
