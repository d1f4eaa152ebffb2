"""`thc.jax`: on eight devices of JAX's CPU build, the codec's bits (docs/protocol.md, P28 to P33), a server's means, and training."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs, run_together
from patience import HANG

needs("jax", "optax")

DEVICES = 8
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
import thc  # noqa: E402
import thc.jax  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402
from thc import _native  # noqa: E402
from thc.jax import floats, lanes, transform  # noqa: E402
from thc.jax.cut import Run, cut  # noqa: E402
from thc.jax.grid import Grid  # noqa: E402
from thc.jax.pairs import Pair, mix, product  # noqa: E402

# Devices that are threads of one processor must not be calls apart: their collectives would wait for one another's threads.
jax.config.update("jax_cpu_enable_async_dispatch", False)

ROOT = Path(__file__).resolve().parents[2]
COOKIE = 77
DATA = PartitionSpec("data")


def test_there_are_eight_devices_and_no_integers_of_64_bits() -> None:
    assert len(jax.devices()) == DEVICES and not jax.config.jax_enable_x64


# The codec's bits.


def hexadecimal(digits: str) -> int:
    return int(digits, 16)


def floats_of(digits: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """f32 of the digits of their bits: a list, or one text."""
    return np.frombuffer(bytes.fromhex("".join(digits)), ">u4").astype(np.uint32).view(np.float32)


def double_of(digits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(digits))[0])


def assert_bits(got: Any, want: Any, what: str = "") -> None:
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    assert got.shape == want.shape, what
    different = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
    first = different[0] if different.size else 0
    assert not different.size, f"{what}: {different.size} of {got.size} differ, the first at {first}: {got.flat[first]!r} for {want.flat[first]!r}"


def join_pair(pair: Pair) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.asarray(pair.high).astype(np.uint64) << np.uint64(32) | np.asarray(pair.low)


@pytest.fixture(scope="module")
def golden() -> Any:
    return json.loads((ROOT / "codec/golden/codec.json").read_text())


def keys_of(vector: Any, rank: int = 0) -> transform.Keys:
    return transform.Keys(hexadecimal(vector["job_seed"]), Pair.split(vector["round"]), jnp.int32(rank))


def test_integers_of_64_bits() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(0, 1 << 64, (2, 4096), dtype=np.uint64)
    a[:4], b[:4] = np.uint64((1 << 64) - 1), np.array([0, 1, 1 << 32, (1 << 64) - 1], np.uint64)

    def pair(x: Any) -> Pair:
        return Pair(jnp.asarray((x >> np.uint64(32)).astype(np.uint32)), jnp.asarray(x.astype(np.uint32)))

    assert np.array_equal(join_pair(pair(a).plus(pair(b))), a + b)
    assert np.array_equal(join_pair(pair(a).times(pair(b))), a * b)
    assert np.array_equal(join_pair(pair(a).shift_right(27)), a >> np.uint64(27))
    low = np.uint64(0xFFFF_FFFF)
    assert np.array_equal(join_pair(product(pair(a).low, pair(b).low)), (a & low) * (b & low))
    # SplitMix64's first output from the seed 1234567, as its author's reference has it.
    assert join_pair(mix(Pair.split(1234567 + 0x9E37_79B9_7F4A_7C15))) == 6457827717110365317


def test_signs_are_the_vectors(golden: Any) -> None:
    for each in golden["signs"]:
        run = Run(64, each["partition"], 1, 0, 64)
        key = keys_of(each).signs(run)
        assert join_pair(key)[0] == hexadecimal(each["key"])
        # Signs of the words that the vectors name, from ones.
        flipped = np.asarray(transform._flip(key, jnp.ones((1, 1 << 20))))[0] < 0
        for word, want in zip((0, 1, 16_383), each["words"]):
            got = flipped[64 * word : 64 * word + 64]
            assert sum(1 << int(bit) for bit in np.flatnonzero(got)) == hexadecimal(want)


def test_cuts_are_the_vectors(golden: Any) -> None:
    for each in golden["cuts"]:
        runs = cut(each["length"], each["block"])
        assert [run.size for run in runs for _ in range(run.count)] == each["partitions"]
        assert sum(run.valid for run in runs) == each["length"]
        assert [run.offset for run in runs] == [sum(run.valid for run in runs[:at]) for at in range(len(runs))]


def test_transform_indices_and_estimates_are_the_vectors(golden: Any) -> None:
    size, first = len(golden["vector"]), golden["first_coordinate"]
    run = Run(size, golden["partition"], 1, 0, size)
    keys = keys_of(golden)
    signs = keys.signs(run)
    assert join_pair(signs)[0] == hexadecimal(golden["sign_key"])
    x = jnp.asarray(floats_of(golden["vector"]))[None]
    norm = floats.from_bits(floats.norm_bits(x).astype(jnp.uint32))
    assert_bits(norm, floats_of([golden["norm"]]), "norm")
    rotated = jax.jit(transform.forward)(signs, x)
    assert_bits(rotated[0], floats_of(golden["rotated"]), "rotated")

    grid = Grid.solve(4, 30, golden["fraction"], 1, 8)
    assert list(grid.values) == golden["table"]
    affine = jax.jit(lambda norm: grid.affine(norm, size))(norm)
    assert_bits(-affine.lo, floats_of([golden["range"]]), "range")
    # The vectors' private seed is not one that a job's seed makes.
    own = mix(Pair.split((hexadecimal(golden["private_seed"]) ^ transform._DOMAIN) + transform.GAMMA))
    own = transform.derive(transform.derive(own, Pair.split(golden["round"])), Pair.split(golden["partition"]))
    key = Pair(own.high[None], own.low[None])
    draws = np.asarray(transform.draws(key, first + size, 0))[:, first:]
    assert draws[0].tolist() == golden["draws"]
    values, lost = jax.jit(grid.quantize)(rotated, affine, jnp.asarray(draws))
    assert np.asarray(values)[0].tolist() == [golden["table"][z] for z in golden["indices"]]
    assert_bits(lost[0], floats_of(golden["residual"]), "residual")
    assert_bits(jax.jit(transform.inverse)(signs, lost)[0], floats_of(golden["inverse_of_residual"]), "inverse")
    assert_bits(jax.jit(grid.estimate)(values, affine)[0], floats_of(golden["estimate"]), "estimate")


def test_tables_are_the_vectors(golden: Any) -> None:
    for each in golden["tables"]:
        grid = Grid.solve(each["bits"], each["granularity"], each["fraction"], 1, 8)
        assert list(grid.values) == each["values"] and struct.pack(">d", grid.t_p).hex() == each["t_p"]


def test_what_is_rounded_once_is(golden: Any) -> None:
    random = np.random.default_rng(2)
    a = random.standard_normal(100_000).astype(np.float32)
    b = np.exp(random.standard_normal(a.size)).astype(np.float32)
    c = np.float32(15) + random.integers(-3, 4, a.size).astype(np.float32) * np.float32(2**-20)
    # Half of them where the sum nearly cancels.
    a[::2] = np.nextafter(-c[::2] / b[::2], np.float32(0))
    exact, c64 = a.astype(np.float64) * b, c.astype(np.float64)
    s = exact + c64
    t = s - exact
    lost = (exact - (s - t)) + (c64 - t)
    word = s.view(np.int64)
    odd = np.where((lost > 0) == (s > 0), word + 1, word - 1)
    want = np.where((lost != 0) & (word & 1 == 0), odd, word).view(np.float64).astype(np.float32)
    assert_bits(jax.jit(floats.fma)(a, b, c), want)
    two = jax.jit(lambda a, b, c: floats.round_product(a * b) + c)(a, b, c)
    assert_bits(two, a * b + c)


@pytest.mark.parametrize("size", [1024, 2048, 8192, 1 << 20])
@pytest.mark.parametrize("t_p", [2.0**-16, 2.1538746940614564, 38.0])
def test_ranges_are_those_of_f64(size: int, t_p: float) -> None:
    norms = np.exp2(np.random.default_rng(3).uniform(-100, 122, 20_000)).astype(np.float32)
    want = (t_p / np.sqrt(np.float64(size)) * norms.astype(np.float64)).astype(np.float32)
    assert_bits(jax.jit(lambda norms: floats.ranges(norms, t_p, size))(norms), want)


def in_f64(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Norms in the order in which thc-codec adds."""
    squares = np.zeros((len(rows), 32))
    for k in range(0, rows.shape[1], 32):
        squares = squares + rows[:, k : k + 32].astype(np.float64) ** 2
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        squares = squares[:, :half] + squares[:, half:]
    return np.sqrt(squares[:, 0]).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e-28, 1e28])
def test_norms_are_those_of_f64(scale: float) -> None:
    random = np.random.default_rng(4)
    for size in (1024, 8192):
        rows = (random.standard_normal((200, size)) * np.exp(2 * random.standard_normal((200, 1))) * scale).astype(np.float32)
        found = np.asarray(jax.jit(floats.norm_bits)(rows)).view(np.float32)
        assert_bits(found, in_f64(rows))


def test_norms_at_their_ends() -> None:
    rows = np.zeros((8, 1024), np.float32)
    rows[0, 3], rows[1, 4], rows[2, 5], rows[3, 6], rows[4, 7] = np.inf, np.nan, 3e38, -7, 2.0**-101
    rows[5, 8], rows[6, :2] = 2.0**-100, (3, 4)
    found = np.asarray(floats.norm_bits(rows))
    assert found[:3].tolist() == [floats.NOT_FINITE] * 3
    assert found[3:].view(np.float32).tolist() == [7, 0, 2.0**-100, 5, 0]


# Lanes.


def packed_by_the_definition(rows: np.ndarray[Any, Any], lane: int) -> list[int]:
    """Coordinate j · W + w at bits k · j of word w."""
    if lane == 8:
        return [int(v) for v in rows.reshape(-1)]
    found = []
    for row in rows:
        words = -(-len(row) // (32 // lane))
        packed = [0] * words
        for at, value in enumerate(row):
            packed[at % words] |= int(value) << lane * (at // words)
        found += packed
    return found


@pytest.mark.parametrize("lane", range(4, 17))
def test_lanes_are_planar_words_and_bytes(lane: int) -> None:
    for count, size in ((1, 1024), (3, 2048)):
        rows = np.random.default_rng(lane).integers(0, 1 << lane, (count, size)).astype(np.uint32)
        packed = lanes.pack(jnp.asarray(rows), lane)
        assert packed.dtype == (jnp.uint8 if lane == 8 else jnp.uint32)
        assert packed.tolist() == packed_by_the_definition(rows, lane)
        assert packed.size == lanes.packed_length(count, size, lane)
        assert np.array_equal(lanes.unpack(packed, count, size, lane), rows)


@pytest.mark.parametrize("lane", range(4, 17))
def test_no_carry_crosses_at_the_extremes(lane: int) -> None:
    """Sums of eight ranks whose largest is the largest of a lane: n · g = 2^k - 1 and its neighbours, all of them at once."""
    size, largest = 1024, (1 << lane) - 1
    total = np.full(size, largest, np.uint32)
    total[1::3], total[2::3] = 0, largest - 1
    # Each rank has its share of each sum.
    ranks = np.stack([total // DEVICES + (np.arange(DEVICES)[:, None] < total % DEVICES)[at] for at in range(DEVICES)])
    assert (ranks.sum(0) == total).all()

    def add(row: jax.Array) -> jax.Array:
        return lanes.unpack(jax.lax.psum(lanes.pack(row, lane), "data"), 1, size, lane)

    sums = jax.jit(jax.shard_map(add, mesh=mesh(), in_specs=DATA, out_specs=PartitionSpec()))(ranks.astype(np.uint32))
    assert np.array_equal(sums[0], total)


def test_bits_of_lanes() -> None:
    assert [lanes.lane_bits(*each) for each in ((1, 1), (1, 15), (1, 16), (8, 31), (8, 32), (4, 15), (257, 255))] == [4, 4, 5, 8, 9, 6, 16]
    with pytest.raises(ValueError, match="17 bits.*granularity 255 or less"):
        lanes.lane_bits(257, 256)


# Means.


def mesh(ranks: int = DEVICES) -> Mesh:
    return Mesh(np.array(jax.devices()[:ranks]), ("data",))


@cache
def average(ranks: int, **options: Any) -> Callable[..., Any]:
    """Averages a tree of arrays with a row for each rank, with error feedback if it is given: every rank's mean and feedback, a row for
    each. Tests that ask for the same share what JAX has compiled."""

    def own(tree: Any, key: Any, feedback: Any) -> Any:
        tree = jax.tree.map(lambda x: x[0], tree)
        found = thc.jax.pmean(tree, "data", key, feedback, **options)
        mean, feedback = found if feedback is not None else (found, None)
        return jax.tree.map(lambda x: x[None], mean), feedback

    # What is the same on all ranks is returned by each of them, to be compared.
    specs = {"mesh": mesh(ranks), "in_specs": (DATA, PartitionSpec(), DATA), "out_specs": (DATA, DATA)}
    return jax.jit(jax.shard_map(own, **specs))


def gradients(ranks: int, length: int, seed: int) -> np.ndarray[Any, Any]:
    """Coordinates of many magnitudes."""
    random = np.random.default_rng(seed)
    return (random.standard_normal((ranks, length)) * np.exp(2 * random.standard_normal((ranks, length)))).astype(np.float32)


def one(rows: Any) -> np.ndarray[Any, Any]:
    """What all ranks have, bit for bit."""
    rows = np.asarray(rows)
    words = rows.view(f"u{rows.itemsize}")
    assert (words == words[0]).all(), "ranks differ"
    return rows[0]


def test_sessions_of_the_vectors() -> None:
    """tests/vectors/all_reduce.json: gradients to means, as workers and an aggregator made them."""
    tables = [(4, 30, 1 / 32, 10), (4, 200, 1 / 512, 20), (1, 5, 0.25, 10), (2, 7, 0.25, 10), (3, 40, 0.25, 10), (8, 255, 0.25, 10)]
    tables += [(4, 60, 0.25, 10), (8, 255, 0.25, 10)]
    seeds = [0x0123_4567_89AB_CDEF, (1 << 64) - 1, 1, 2, 3, 8, 4, 8]
    # Those at the end are told in 4 bits (P45), which no all-reduce does.
    sessions = json.loads((ROOT / "tests/vectors/all_reduce.json").read_text())["sessions"]
    checked = 0
    for session, (bits, granularity, fraction, block), seed in zip(sessions, tables, seeds):
        run = average(session["workers"], bits=bits, granularity=granularity, fraction=fraction, block=block, seed=seed, min_size=1)
        for number, call in enumerate(session["calls"]):
            if call["mode"] != 0:
                continue
            x = np.stack([floats_of(text) for text in call["gradients"]])
            mean = one(run(x, np.uint32(number), None)[0])
            if np.isfinite(x).all():
                assert_bits(mean, floats_of(call["mean"]), f"call {number} of {session['workers']} workers")
                checked += 1
            else:
                assert np.isnan(mean).all()
    assert checked == 10


@pytest.mark.parametrize(
    ("ranks", "bits", "granularity", "fraction", "lane", "block"),
    [
        (1, 4, 30, 1 / 32, 8, 13),
        (2, 4, 127, 1 / 512, 8, 13),
        (3, 4, 30, 1 / 32, 8, 10),
        (4, 4, 15, 1 / 32, 8, 11),
        (8, 4, 31, 1 / 32, 8, 12),
        (2, 1, 5, 0.25, 4, 10),
        (4, 2, 9, 0.1, 8, 10),
        (8, 3, 100, 0.01, 16, 10),
        (3, 8, 255, 0.001, 16, 14),
    ],
)
def test_means_and_feedback_are_those_of_a_server(
    ranks: int, bits: int, granularity: int, fraction: float, lane: int, block: int
) -> None:
    length, seed = 20_500, 0xFEED_0000_1234_5678
    table: dict[str, Any] = {"bits": bits, "granularity": granularity, "fraction": fraction, "block": block, "seed": seed}
    run = average(ranks, min_size=1, **table)
    feedback = jnp.zeros(ranks * length, jnp.float32)
    with thc.Server(ranks, COOKIE, lane=lane, **table) as server:
        groups = run_together(*(partial(thc.Group, server.address, 1, rank, COOKIE, timeout=60) for rank in range(ranks)))
        try:
            for step in range(3):
                x = gradients(ranks, length, step)
                if step == 2:
                    # Partitions of zeros on all ranks are not sent, and keep their feedback.
                    x[:, :8192] = 0
                want = x.copy()
                run_together(*(partial(group.allreduce, row, feedback=5) for group, row in zip(groups, want)))
                mean, feedback = run(x, np.uint32(step), feedback)
                assert_bits(one(mean), one(want), f"mean of step {step}")
                saved = [np.frombuffer(group.save_feedback()[5], "<f4", offset=16) for group in groups]
                assert_bits(np.asarray(feedback).reshape(ranks, -1), np.stack(saved), f"feedback of step {step}")
        finally:
            for group in groups:
                group.close()


@pytest.mark.parametrize(
    ("ranks", "options"),
    [(8, {"bits": 4}), (8, {"lane": 6, "bits": 2}), (8, {"bits": 4, "lane": 10}), (4, {"bits": 4, "lane": 6}), (2, {"bits": 8, "lane": 9}), (8, {"bits": 1, "lane": 4})],
)  # fmt: skip
def test_error_is_no_more_than_theory_says(ranks: int, options: dict[str, Any]) -> None:
    """Of equal gradients. Ranks round against each other, so most of what independent roundings would come to is gone; what is truncated stays."""
    want, granularity, _, _ = _native.adapt_thc_nmse(options["bits"], None, None, ranks, options.get("lane", 8))
    x = np.random.default_rng(5).standard_normal(200_000).astype(np.float32)
    mean = one(average(ranks, **options)(np.tile(x, (ranks, 1)), np.uint32(9), None)[0])
    assert lanes.lane_bits(ranks, granularity) <= options.get("lane", 8)
    nmse = ((mean - x) ** 2).sum() / (x**2).sum()
    # With 8 bits a good part of it is of the few coordinates that are truncated, and varies.
    assert 0.1 * want < nmse < (0.7 if options["bits"] < 8 else 1.15) * want, (nmse, want)


def test_sums_have_as_many_values_as_a_lane_has_room_for() -> None:
    """They cost nothing where it is sums that travel: the default."""
    x = np.random.default_rng(6).standard_normal((DEVICES, 100_000)).astype(np.float32)
    errors = []
    for options in ({"bits": 4}, {}, {"lane": 10}):
        mean = one(average(DEVICES, **options)(x, np.uint32(9), None)[0])
        errors.append(float(((mean - x.mean(0)) ** 2).sum() / (x.mean(0) ** 2).sum()))
    assert errors[1] < 0.8 * errors[0] and errors[2] < 0.2 * errors[1], errors
    with pytest.raises(ValueError, match="give bits, too"):
        average(DEVICES, granularity=31, fraction=0.01)(x, np.uint32(9), None)


def test_mean_of_steps_is_the_gradient() -> None:
    """With error feedback nothing is lost for good."""
    x = gradients(DEVICES, 5000, 6)
    run, feedback = average(DEVICES), jnp.zeros(x.size, jnp.float32)
    total = np.zeros(x.shape[1])
    errors = []
    for step in range(1, 65):
        mean, feedback = run(x, np.uint32(step), feedback)
        total += one(mean)
        errors.append(float(np.linalg.norm(total / step - x.mean(0)) / np.linalg.norm(x.mean(0))))
    assert errors[-1] < errors[0] / 20


def test_trees_of_all_types() -> None:
    random = np.random.default_rng(7)
    tree = {
        "weights": random.standard_normal((DEVICES, 70, 90)).astype(np.float32),
        "bias": random.standard_normal((DEVICES, 90)).astype(np.float32),
        "half": [random.standard_normal((DEVICES, 3000)).astype(each) for each in (np.float16, jnp.bfloat16)],
        "count": np.arange(DEVICES * 5000, dtype=np.int32).reshape(DEVICES, 5000),
        "flags": np.arange(DEVICES)[:, None] < 2,
        "none": None,
        "empty": np.zeros((DEVICES, 0), np.float32),
    }
    mean = average(DEVICES)(tree, np.uint32(0), None)[0]
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64).mean(0), tree)
    found = jax.tree.map(one, mean)
    assert [x.dtype for x in jax.tree.leaves(found)] == [np.float32, np.float32, np.float32, np.float32, np.float16, jnp.bfloat16, np.float32]
    # Exactly, but for the rounding of f32.
    for name in ("bias", "count", "flags", "empty"):
        assert np.allclose(found[name], exact[name], rtol=1e-6, atol=1e-6)
    assert not np.allclose(found["weights"], exact["weights"], rtol=1e-6)
    for got, want in zip(jax.tree.leaves((found["weights"], found["half"])), jax.tree.leaves((exact["weights"], exact["half"]))):
        assert np.square(got.astype(np.float64) - want).sum() < 0.05 * np.square(want).sum()
    # Nothing is compressed, and nothing else is in the feedback.
    assert thc.jax.init_feedback(jax.tree.map(lambda x: x[0], tree)).shape == (70 * 90 + 6000,)
    assert thc.jax.init_feedback(tree, min_size=1 << 20).shape == (0,)


def test_small_arrays_are_averaged_exactly() -> None:
    x = gradients(DEVICES, 1023, 8)
    mean = one(average(DEVICES)(x, np.uint32(0), None)[0])
    own = jax.jit(jax.shard_map(lambda x: jax.lax.pmean(x[0], "data"), mesh=mesh(), in_specs=DATA, out_specs=PartitionSpec()))
    assert_bits(mean, own(x))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.float32(3e38)])
def test_what_is_not_finite_makes_all_nan_and_leaves_the_feedback(bad: float) -> None:
    x = gradients(DEVICES, 20_000, 9)
    run = average(DEVICES)
    _, before = run(x, np.uint32(0), jnp.zeros(x.size, jnp.float32))
    assert np.asarray(before).any()
    worse = x.copy()
    worse[5, 12_345] = bad
    mean, after = run(worse, np.uint32(1), before)
    assert np.isnan(np.asarray(mean)).all()
    assert_bits(after, before)
    assert np.isfinite(np.asarray(run(x, np.uint32(2), after)[0])).all()


def test_zeros_are_zeros() -> None:
    x = np.zeros((DEVICES, 20_000), np.float32)
    run = average(DEVICES)
    assert not one(run(x, np.uint32(0), None)[0]).view(np.uint32).any()
    # Of one partition, where another has something, and where nobody has more than 2^-100.
    x[3, 10_000] = 1
    x[:, 0] = 2.0**-110
    mean = one(run(x, np.uint32(0), None)[0])
    assert not mean[:8192].view(np.uint32).any() and mean[8192:16384].any() and not mean[16384:].any()


def test_ranks_with_different_keys_get_nan() -> None:
    x = gradients(DEVICES, 5000, 10)
    run = jax.pmap(lambda x, key: thc.jax.pmean(x, "data", key), axis_name="data")
    assert np.isfinite(one(run(x, np.full(DEVICES, 3, np.uint32)))).all()
    for rank in (0, 4):
        keys = np.full(DEVICES, 3, np.uint32)
        keys[rank] ^= 1 << 31
        assert np.isnan(np.asarray(run(x, keys))).all()


def test_keys_are_steps_or_random() -> None:
    x = gradients(DEVICES, 5000, 11)
    run = average(DEVICES)
    by_step = one(run(x, np.uint32(7), None)[0])
    assert_bits(by_step, one(run(x, np.int32(7), None)[0]))

    def static(x: Any) -> Any:
        return thc.jax.pmean(x[0], "data", 7)

    assert_bits(by_step, jax.jit(jax.shard_map(static, mesh=mesh(), in_specs=DATA, out_specs=PartitionSpec()))(x))
    typed, raw = one(run(x, jax.random.key(7), None)[0]), one(run(x, jax.random.PRNGKey(7), None)[0])
    assert_bits(typed, raw)
    # That of a step is its number.
    assert_bits(by_step, raw)
    for other in (jax.random.key(8), jax.random.key(7, impl="rbg"), np.uint32(8)):
        assert not np.array_equal(by_step, one(run(x, other, None)[0]))
    with pytest.raises(TypeError, match="step's number"):
        run(x, np.float32(7), None)


def test_several_axes_and_pmap_are_one_axis() -> None:
    x = gradients(DEVICES, 5000, 12)
    want = one(average(DEVICES)(x, np.uint32(1), None)[0])
    several = Mesh(np.array(jax.devices()).reshape(2, 4), ("host", "device"))

    def own(x: Any) -> Any:
        return thc.jax.pmean(x[0, 0], ("host", "device"), 1)

    both = PartitionSpec("host", "device")
    found = jax.jit(jax.shard_map(own, mesh=several, in_specs=both, out_specs=PartitionSpec()))(x.reshape(2, 4, -1))
    assert_bits(found, want)
    assert_bits(one(jax.pmap(lambda x: thc.jax.pmean(x, "data", 1), axis_name="data")(x)), want)


def test_it_works_where_jax_has_64_bits() -> None:
    x = gradients(DEVICES, 5000, 13)
    want = one(average(DEVICES)(x, np.uint32(1), None)[0])
    with jax.enable_x64(True):
        tree = {"same": x, "wide": x.astype(np.float64), "small": x[:, :9].astype(np.float64)}
        run = average(DEVICES)
        mean = run(tree, np.int64(1), None)[0]
        assert one(mean["wide"]).dtype == np.float64 and np.allclose(one(mean["small"]), tree["small"].mean(0), rtol=1e-14)
        assert_bits(one(average(DEVICES)(x, np.int64(1), None)[0]), want)
        far = one(average(DEVICES)(x, np.int64(1 + (1 << 40)), None)[0])
    assert not np.array_equal(far, want)


def test_gradients_that_jax_has_added_up_are_refused() -> None:
    """In shard_map those of parameters that are the same on all ranks are."""

    def loss(w: Any, x: Any) -> Any:
        return (w * x).sum()

    def step(w: Any, x: Any, cast: bool) -> Any:
        w = jax.lax.pcast(w, "data", to="varying") if cast else w
        return thc.jax.pmean(jax.grad(loss)(w, x[0]), "data", 0)

    x = gradients(DEVICES, 5000, 15)
    run = [
        jax.shard_map(partial(step, cast=cast), mesh=mesh(), in_specs=(PartitionSpec(), DATA), out_specs=PartitionSpec())
        for cast in (False, True)
    ]
    with pytest.raises(ValueError, match='pcast.*"varying"'):
        jax.jit(run[0])(jnp.ones(5000), x)
    assert_bits(jax.jit(run[1])(jnp.ones(5000), x), one(average(DEVICES)(x, np.uint32(0), None)[0]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bits": 5}, "bits is 5"),
        ({"block": 9}, "block is 9"),
        ({"lane": 17}, "lane is 17"),
        ({"granularity": 30}, "go together"),
        ({"bits": 8, "granularity": 256, "fraction": 0.1}, "granularity is 255"),
        ({"lane": 6, "bits": 4}, "lanes of 7 bits or more"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        average(DEVICES, **options)(np.ones((DEVICES, 2000), np.float32), np.uint32(0), None)


def test_feedback_of_another_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="1500 coordinates.*init_feedback"):
        average(DEVICES)(np.ones((DEVICES, 1500), np.float32), np.uint32(0), jnp.zeros(DEVICES * 1499))


# Training.


def test_an_optimizer_keeps_feedback_and_steps() -> None:
    """The same as by hand, and state that goes through jit, scan and checkpoints."""
    params = {"w": jnp.zeros(3000), "b": jnp.zeros(3)}
    optimizer = optax.chain(thc.jax.average("data", seed=4), optax.sgd(1.0))
    specs = thc.jax.specs(jax.eval_shape(optimizer.init, params), "data")
    assert specs[0].feedback == DATA and specs[0].count == PartitionSpec()
    x = gradients(DEVICES, 3003, 14)
    start = jax.jit(jax.shard_map(optimizer.init, mesh=mesh(), in_specs=PartitionSpec(), out_specs=specs))
    state = start(params)
    assert state[0].feedback.shape == (DEVICES * 3000,)

    def step(params: Any, state: Any, x: Any) -> Any:
        updates, state = optimizer.update({"w": x[0, :3000], "b": x[0, 3000:]}, state, params)
        return optax.apply_updates(params, updates), state

    def steps(params: Any, state: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (step(*carry, x), None), (params, state), length=3)[0]

    places = {"mesh": mesh(), "in_specs": (PartitionSpec(), specs, DATA), "out_specs": (PartitionSpec(), specs)}
    run, several = jax.jit(jax.shard_map(step, **places)), jax.jit(jax.shard_map(steps, **places))
    by_hand, feedback = average(DEVICES, seed=4), jnp.zeros(DEVICES * 3000)
    want = np.zeros(3000, np.float32)
    got = params
    for number in range(3):
        got, state = run(got, state, x)
        mean, feedback = by_hand(x[:, :3000], np.uint32(number), feedback)
        want -= one(mean)
        assert_bits(got["w"], want)
        assert_bits(state[0].feedback, feedback)
        assert state[0].count == number + 1
    at_once, last = several(params, start(params), x)
    assert_bits(at_once["w"], want)
    assert_bits(last[0].feedback, feedback)
    without = optax.chain(thc.jax.average("data", feedback=False), optax.sgd(1.0)).init(params)
    assert without[0].feedback is None


def test_the_example_trains() -> None:
    needs("sklearn")
    accuracies = []
    for arguments in ([], ["--without-thc"]):
        command = [sys.executable, str(ROOT / "python/examples/jax_digits.py"), "--steps", "80", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"not trained on: loss ([\d.]+), accuracy ([\d.]+) %", done.stdout)
        assert found, done.stdout
        accuracies.append(float(found[2]))
    assert accuracies[0] > 85 and abs(accuracies[0] - accuracies[1]) < 5
