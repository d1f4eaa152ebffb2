"""`thc.Group` on NumPy arrays. Workers are threads of this process: that they get through shows that the interpreter is
let go. The parameter server is a process of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import thc
from conftest import outcomes, run_together
from patience import HANG
from servers import COOKIE, ParameterServer, joining

_next_job = itertools.count(1)
LENGTH = 5000


@pytest.fixture
def pair(jobs: ParameterServer) -> Iterator[list[thc.Group]]:
    """Both workers of a fresh job."""
    number = next(_next_job)
    groups = run_together(*[lambda w=w: join(jobs, number, w) for w in range(2)])
    yield groups
    run_together(*[group.close for group in groups])


def join(server: ParameterServer, job: int, worker: int, **options: Any) -> thc.Group:
    return thc.Group(server.address, job, worker, COOKIE, **joining(**{"timeout": 10, "join_timeout": 10, **options}))


def arrays(seed: int = 0, count: int = 2, length: int = LENGTH) -> list[np.ndarray]:
    return [np.random.default_rng([seed, w]).standard_normal(length).astype(np.float32) for w in range(count)]


def error_of(found: np.ndarray, exact: np.ndarray) -> float:
    """Normalised mean squared error."""
    return float(np.sum((found.astype(np.float64) - exact) ** 2) / np.sum(exact.astype(np.float64) ** 2))


def test_compressed_mean_is_within_the_codecs_error(pair: list[thc.Group]) -> None:
    mine = arrays()
    exact = np.mean(mine, axis=0)
    returned = run_together(*[lambda g=g, a=a: g.allreduce(a) for g, a in zip(pair, mine)])
    assert returned[0] is mine[0]
    assert mine[0].tobytes() == mine[1].tobytes()
    # 4 bits: about 0.013; nothing at all would be 0, nothing of the array 1.
    assert 1e-3 < error_of(mine[0], exact) < 0.03


@pytest.mark.parametrize("kind", [np.float16, np.float64, "strided", "two-dimensional"])
def test_other_arrays_are_converted(pair: list[thc.Group], kind: Any) -> None:
    mine = arrays()
    exact = np.mean(mine, axis=0)
    if kind == "strided":
        given = [np.repeat(a, 2)[::2] for a in mine]
    elif kind == "two-dimensional":
        given = [np.asfortranarray(a.reshape(50, 100)) for a in mine]
    else:
        given = [a.astype(kind) for a in mine]
    run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(pair, given)])
    assert given[0].dtype == (kind if isinstance(kind, type) else np.float32)
    assert np.allclose(given[1].reshape(-1), exact, atol=2e-3 if kind is np.float16 else 1e-7)


def test_a_handle_tells_when_it_is_done_and_gives_once(pair: list[thc.Group]) -> None:
    mine = arrays()
    before = mine[0].copy()
    handle = pair[0].allreduce_async(mine[0])
    assert not handle.done()
    assert mine[0].tobytes() == before.tobytes(), "the array stays as it is until wait"
    run_together(lambda: pair[1].allreduce(mine[1]), handle.wait)
    assert handle.done()
    with pytest.raises(thc.ClosedError):
        handle.wait()


def test_error_feedback_goes_through_a_checkpoint(pair: list[thc.Group]) -> None:
    mine = arrays()
    run_together(*[lambda g=g, a=a: g.allreduce(a.copy(), feedback="w") for g, a in zip(pair, mine)])
    saved = pair[0].save_feedback()
    assert len(saved) == 1
    pair[0].reset_feedback("w")
    assert pair[0].save_feedback() == {}
    pair[0].restore_feedback(saved)
    assert pair[0].save_feedback() == saved
    pair[0].reset_feedback()
    assert pair[0].save_feedback() == {}


def test_wrong_error_feedback(pair: list[thc.Group]) -> None:
    mine = arrays()
    run_together(*[lambda g=g, a=a: g.allreduce(a.copy(), feedback=3) for g, a in zip(pair, mine)])
    with pytest.raises(thc.FeedbackError, match="5000") as caught:
        pair[0].allreduce(np.ones(10, np.float32), feedback=3)
    assert caught.value.key == 3
    (saved,) = pair[0].save_feedback().values()
    with pytest.raises(thc.FeedbackError) as damaged:
        pair[0].restore_feedback({3: b"XXXX" + saved[4:]})
    assert damaged.value.key == 3
    handle = pair[0].allreduce_async(mine[0], feedback=3)
    with pytest.raises(thc.FeedbackError) as busy:
        pair[0].allreduce_async(mine[0], feedback=3)
    assert busy.value.key == 3
    for use in (
        pair[0].save_feedback,
        lambda: pair[0].restore_feedback({3: saved}),
        lambda: pair[0].reset_feedback(3),
    ):
        with pytest.raises(thc.FeedbackError):
            use()
    run_together(lambda: pair[1].allreduce(mine[1], feedback=3), handle.wait)
    assert pair[0].save_feedback()[3] != saved


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_fails_on_all_alike_and_the_group_goes_on(pair: list[thc.Group], bad: float) -> None:
    run_together(*[lambda g=g, a=a: g.allreduce(a, feedback=1) for g, a in zip(pair, arrays())])
    kept = [group.save_feedback() for group in pair]
    mine = arrays()
    mine[1][17] = bad
    before = [a.tobytes() for a in mine]
    failed = outcomes(*[lambda g=g, a=a: g.allreduce(a, feedback=1) for g, a in zip(pair, mine)])
    assert [type(error) for error in failed] == [thc.NonFiniteError] * 2
    assert [error.worker for error in failed] == [1, 1]
    assert [a.tobytes() for a in mine] == before
    assert [group.save_feedback() for group in pair] == kept
    again = arrays()
    run_together(*[lambda g=g, a=a: g.allreduce(a, feedback=1) for g, a in zip(pair, again)])
    assert [group.stats().failed for group in pair] == [1, 1]


def test_different_calls_are_found_out_and_the_group_joins_anew(pair: list[thc.Group]) -> None:
    lengths = (5000, 6000)
    failed = outcomes(*[lambda g=g, n=n: g.allreduce(np.ones(n, np.float32)) for g, n in zip(pair, lengths)])
    assert [type(error) for error in failed] == [thc.MismatchError] * 2
    assert "5000" in str(failed[0]) and "6000" in str(failed[0])
    assert failed[0].worker in (0, 1)
    with pytest.raises(thc.SessionError):
        pair[0].allreduce(np.ones(5, np.float32))
    run_together(*[group.rejoin for group in pair])
    ones = [np.ones(100, np.float32) for _ in pair]
    run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(pair, ones)])
    assert np.allclose(ones[0], 1.0)


def test_statistics(pair: list[thc.Group]) -> None:
    before = pair[0].stats()
    mine = arrays(length=1 << 16)
    run_together(*[lambda g=g, a=a: g.allreduce(a) for g, a in zip(pair, mine)])
    stats = pair[0].stats() - before
    assert (stats.calls, stats.failed, stats.coordinates) == (1, 0, 1 << 16)
    # 560 bytes up and 1072 down per 1024 coordinates, 68 each way for the norm, and now and then a repetition.
    assert 64 * 560 + 68 <= stats.bytes_up < 64 * 560 * 1.5
    assert 64 * 1072 + 68 <= stats.bytes_down < 64 * 1072 * 1.5
    assert stats.packets_up >= 65 and stats.packets_down >= 65
    assert stats.compression > 0 and stats.communication == stats.network + stats.waiting > 0
    assert stats.round_trip > 0
    assert stats.bytes == stats.bytes_up + stats.bytes_down
    # A ring of two moves 4 bytes per coordinate each way.
    assert stats.saved_bytes(2) == 8 * (1 << 16) - stats.bytes


def test_what_the_server_said(pair: list[thc.Group]) -> None:
    job = pair[0].job
    assert (job.workers, job.quorum, job.policy, job.bits, job.lane) == (2, 2, "reliable", 4, 8)
    assert 2 * job.granularity <= 255
    assert job.slots == 64 and job.norm_slots == 8 and job.shards == 1
    assert pair[0].workers == 2


def test_arrays_that_cannot_be_reduced(pair: list[thc.Group]) -> None:
    group = pair[0]
    with pytest.raises(TypeError, match="int64"):
        group.allreduce(np.ones(4, np.int64))
    with pytest.raises(TypeError, match="list"):
        group.allreduce([1.0, 2.0])  # type: ignore[arg-type]
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        group.allreduce(frozen)
    with pytest.raises(thc.ConfigError):
        group.allreduce(np.ones(0, np.float32))
    with pytest.raises(thc.ConfigError, match="mode"):
        group.allreduce(np.ones(4, np.float32), mode="lossless")


def test_an_array_of_2_32_coordinates_is_refused(pair: list[thc.Group], tmp_path: Any) -> None:
    # A file with a hole of 16 GiB: nothing of it is read before the refusal.
    huge = np.memmap(tmp_path / "huge", dtype=np.float32, mode="w+", shape=(1 << 32,))
    with pytest.raises(thc.ConfigError, match=str(1 << 32)):
        pair[0].allreduce(huge)


def test_a_closed_group(pair: list[thc.Group]) -> None:
    run_together(*[group.close for group in pair])
    assert pair[0].closed
    pair[0].close()
    with pytest.raises(thc.ClosedError):
        pair[0].allreduce(np.ones(4, np.float32))
    with pytest.raises(thc.ClosedError):
        pair[0].stats()


def test_context_manager_and_repr(jobs: ParameterServer) -> None:
    number = next(_next_job)

    def work(worker: int) -> str:
        with join(jobs, number, worker) as group:
            text = repr(group)
        assert group.closed
        return text

    texts = run_together(lambda: work(0), lambda: work(1))
    assert jobs.address in texts[0] and f"{COOKIE:x}" not in texts[0].lower() and str(COOKIE) not in texts[0]


def test_a_forked_child_has_no_group_and_does_the_parents_no_harm(pair: list[thc.Group]) -> None:
    child = os.fork()
    if child == 0:
        try:
            pair[0].stats()
        except thc.ClosedError:
            pair[0].close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    mine = arrays()
    run_together(*[lambda g=g, a=a: g.allreduce(a) for g, a in zip(pair, mine)])


def test_a_group_that_is_not_closed_leaves_at_exit(jobs: ParameterServer) -> None:
    number = next(_next_job)
    script = (
        "import sys, thc, numpy as np\n"
        f"g = thc.Group({jobs.address!r}, {number}, int(sys.argv[1]), {COOKIE}, join=thc.Join(join_timeout=10))\n"
        "print(g.allreduce(np.full(10, float(sys.argv[1]), np.float32), mode='raw')[0])\n"
    )
    for _ in range(2):  # the second pair finds the job free again
        runs = [
            subprocess.Popen([sys.executable, "-c", script, str(w)], stdout=subprocess.PIPE, text=True) for w in range(2)
        ]
        said = [run.communicate(timeout=HANG)[0].strip() for run in runs]
        assert said == ["0.5", "0.5"]
        assert [run.returncode for run in runs] == [0, 0]


def test_the_package_has_a_version_and_leaves_torch_alone() -> None:
    program = "import sys, thc; assert thc.__version__.count('.') == 2 and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG)
