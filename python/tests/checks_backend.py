"""The backend "thc" of torch.distributed: what is not compressed has gloo's bits, what is has all ranks' same ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import RANK, SIZE, error_of, same_everywhere, sort_options, refused

LENGTH = 70_000
"""Of tensors that are compressed by default."""


def options(**given: Any) -> Any:
    """Those of a group that compresses all that is large enough, not gradients alone."""
    return thc.torch.backend.Options(**sort_options(**{"everywhere": 1, **given}))


def group(ranks: list[int] | None = None, **given: Any) -> Any:
    return dist.new_group(ranks, backend="thc", pg_options=options(**given))


_groups: dict[str, Any] = {}


def both_groups() -> dict[str, Any]:
    """A group of all ranks of each backend."""
    if not _groups:
        _groups.update(gloo=dist.new_group(backend="gloo"), thc=group())
    return _groups


def numbers(step: int, length: int = LENGTH, rank: int = RANK) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(1000 * step + rank))


def total(step: int, length: int = LENGTH, ranks: int = SIZE) -> torch.Tensor:
    return torch.stack([numbers(step, length, rank).double() for rank in range(ranks)]).sum(0)


def theory(lane: int, ranks: int = SIZE) -> float:
    """The NMSE of a mean of gradients that have nothing in common, when ranks round independently; they round against each other, which saves
    up to half of it."""
    return ranks * thc._native.table_error(None, None, None, ranks, lane)[0]


def outcome(work: Callable[[Any], Any], on: Any) -> Any:
    """What a collective leaves, or how it is refused."""
    try:
        found = work(on)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as error:
        return type(error).__name__, str(error).splitlines()[0][:40]
    return [each.clone() for each in found]


def same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) or isinstance(other, tuple):
        return bool(one == other)
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))
        for a, b in zip(one, other)
    )


DTYPES = [
    getattr(torch, name)
    for name in "float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64 bool complex64 complex128".split()
]
OPS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()


def data(dtype: torch.dtype, length: int, salt: int = 0) -> torch.Tensor:
    made = torch.randn(length, generator=torch.Generator().manual_seed(77 * salt + RANK)) * 3
    return (made > 0) if dtype == torch.bool else made.abs().to(dtype) if not dtype.is_floating_point and not dtype.is_complex else made.to(dtype)


def _all_reduce(dtype: torch.dtype, op: Any, length: int) -> Callable[[Any], Any]:
    def work(on: Any) -> Any:
        tensor = data(dtype, length)
        dist.all_reduce(tensor, op, group=on)
        return [tensor]

    return work


def check_all_reduces_that_are_not_compressed_have_gloos_bits() -> None:
    alike = refused = 0
    for dtype, name in itertools.product(DTYPES, OPS):
        op = getattr(dist.ReduceOp, name)
        for length in (0, 1, 1000, LENGTH) if dtype in (torch.float32, torch.float64, torch.int32) else (1000,):
            # torch takes a complex number for two real ones before any backend sees it.
            if dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64) and name in ("SUM", "AVG") and length == LENGTH:
                continue
            work = _all_reduce(dtype, op, length)
            want, found = (outcome(work, both_groups()[name]) for name in ("gloo", "thc"))
            assert same_bits(want, found), (dtype, name, length, want, found)
            alike, refused = alike + isinstance(want, list), refused + isinstance(want, tuple)
    assert alike > 80, (alike, refused)
    assert both_groups()["thc"].stats() is None


def _collectives(dtype: torch.dtype, op: Any, length: int) -> dict[str, Callable[[Any], Any]]:
    """Every other collective that torch's documentation has, of one type."""

    def empty(many: int) -> list[torch.Tensor]:
        return [torch.zeros(length, dtype=dtype) for _ in range(many)]

    def mine(many: int = 1) -> list[torch.Tensor]:
        return [data(dtype, length, salt) for salt in range(many)]

    def broadcast(on: Any) -> Any:
        (tensor,) = mine()
        dist.broadcast(tensor, SIZE - 1, group=on)
        return [tensor]

    def reduce(on: Any) -> Any:
        (tensor,) = mine()
        dist.reduce(tensor, 1, op, group=on)
        return [tensor] if RANK == 1 else []

    def all_gather(on: Any) -> Any:
        found = empty(SIZE)
        dist.all_gather(found, mine()[0], group=on)
        return found

    def all_gather_into_tensor(on: Any) -> Any:
        found = torch.zeros(SIZE * length, dtype=dtype)
        dist.all_gather_into_tensor(found, mine()[0], group=on)
        return [found]

    def gather(on: Any) -> Any:
        found = empty(SIZE) if RANK == 0 else None
        dist.gather(mine()[0], found, 0, group=on)
        return found or []

    def scatter(on: Any) -> Any:
        (found,) = empty(1)
        dist.scatter(found, mine(SIZE) if RANK == 0 else None, 0, group=on)
        return [found]

    def reduce_scatter(on: Any) -> Any:
        (found,) = empty(1)
        dist.reduce_scatter(found, mine(SIZE), op, group=on)
        return [found]

    def reduce_scatter_tensor(on: Any) -> Any:
        (found,) = empty(1)
        dist.reduce_scatter_tensor(found, torch.cat(mine(SIZE)), op, group=on)
        return [found]

    def all_to_all(on: Any) -> Any:
        found = empty(SIZE)
        dist.all_to_all(found, mine(SIZE), group=on)
        return found

    def all_to_all_single(on: Any) -> Any:
        found = torch.zeros(SIZE * length, dtype=dtype)
        dist.all_to_all_single(found, torch.cat(mine(SIZE)), group=on)
        return [found]

    def pairs(on: Any) -> Any:
        (found,) = empty(1)
        ways = [dist.P2POp(dist.isend, mine()[0], (RANK + 1) % SIZE, on), dist.P2POp(dist.irecv, found, (RANK - 1) % SIZE, on)]
        for work in dist.batch_isend_irecv(ways):
            work.wait()
        return [found]

    def send_and_receive(on: Any) -> Any:
        (found,) = empty(1)
        if RANK == 0:
            dist.send(mine()[0], 1, group=on, tag=3)
        elif RANK == 1:
            dist.recv(found, 0, group=on, tag=3)
        return [found]

    def receive_from_any(on: Any) -> Any:
        (found,) = empty(1)
        if RANK == 1:
            dist.send(mine()[0], 0, group=on)
        elif RANK == 0:
            assert dist.recv(found, group=on) == 1
        return [found]

    def together(on: Any) -> Any:
        tensors = mine(3)
        with dist._coalescing_manager(group=on):
            for tensor in tensors:
                dist.all_reduce(tensor, op, group=on)
        return tensors if length < LENGTH else []

    def later(on: Any) -> Any:
        (tensor,) = mine()
        work = dist.broadcast(tensor, 0, group=on, async_op=True)
        work.wait()
        assert work.is_completed()
        found = work.get_future().wait()
        return [tensor, *found]

    return {name: work for name, work in locals().items() if callable(work) and name not in ("empty", "mine", "op")}


def check_the_other_collectives_have_gloos_bits() -> None:
    alike: dict[str, int] = {}
    # What gloo refuses half-way, on some ranks before others, may leave these waiting: it is not called at all.
    for dtype in (dtype for dtype in DTYPES if dtype != torch.int16):
        for length in (1, 1000, LENGTH) if dtype in (torch.float32, torch.bfloat16) else (1000,):
            for name, work in _collectives(dtype, dist.ReduceOp.SUM, length).items():
                if (name == "together" and length == LENGTH) or (name == "gather" and dtype.is_complex):
                    continue
                want, found = (outcome(work, both_groups()[name]) for name in ("gloo", "thc"))
                assert same_bits(want, found), (name, dtype, length, want, found)
                alike[name] = alike.get(name, 0) + isinstance(want, list)
    assert len(alike) == 15 and all(alike.values()), alike
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT):
        for name in ("reduce", "reduce_scatter", "reduce_scatter_tensor", "together"):
            want, found = (outcome(_collectives(torch.float32, op, 1000)[name], each) for each in (both_groups()["gloo"], both_groups()["thc"]))
            assert same_bits(want, found), (name, op, want, found)
    on = both_groups()["thc"]
    dist.barrier(group=on)
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, {"rank": RANK}, group=on)
    assert every == [{"rank": rank} for rank in range(SIZE)]
    box = [f"of {RANK}"]
    dist.broadcast_object_list(box, SIZE - 1, group=on)
    assert box == [f"of {SIZE - 1}"]
    sparse = torch.sparse_coo_tensor([[RANK]], [1.0], (LENGTH,))
    dist.all_reduce(sparse, group=on)
    assert float(sparse.to_dense().sum()) == SIZE
    assert on.stats() is None and dist.get_backend(on) == "thc" and on.name() == "thc"


def check_calls_in_a_row_do_not_lock_each_other_out() -> None:
    """gloo's threads let go of tensors, which takes the interpreter's lock, while the next call wants to be queued."""
    on = both_groups()["thc"]
    for _ in range(500):
        # Nobody here holds the tensors and their works any more: gloo's threads have them last.
        on.allreduce_coalesced([torch.ones(10) for _ in range(20)])
        on.broadcast(torch.zeros(10), 0)
    dist.barrier(group=on)


def check_sums_and_means_are_as_good_as_theory_and_alike_everywhere() -> None:
    for lane in (6, 8, 16):
        on = group(lane=lane)
        for step, (dtype, length, op) in enumerate(
            itertools.product((torch.float32, torch.float16, torch.bfloat16), (LENGTH, (1 << 20) + 5000), (dist.ReduceOp.SUM, dist.ReduceOp.AVG))
        ):
            if lane != 8 and length > LENGTH:
                continue
            tensor = numbers(step, length).to(dtype)
            exact = torch.stack([numbers(step, length, rank).to(dtype).double() for rank in range(SIZE)])
            exact = exact.sum(0) if op == dist.ReduceOp.SUM else exact.mean(0)
            dist.all_reduce(tensor, op, group=on)
            found, rounding = error_of([tensor], [exact]), {torch.float32: 0.0, torch.float16: 2e-7, torch.bfloat16: 1e-5}[dtype]
            assert 0.3 * theory(lane) < found < 1.1 * theory(lane) + rounding, (lane, dtype, length, op, found, theory(lane))
            assert same_everywhere([tensor])
        assert on.stats().calls > 0 and on.stats().bytes_up < on.stats().coordinates * lane / 8 * 2 * 1.2
        dist.destroy_process_group(on)


def check_calls_are_asynchronous() -> None:
    on = both_groups()["thc"]
    tensors = [numbers(step) for step in range(6)]
    works = [dist.all_reduce(tensor, dist.ReduceOp.AVG, group=on, async_op=True) for tensor in tensors]
    seen: list[int] = []
    futures = [work.get_future().then(lambda fulfilled, step=step: seen.append(step) or fulfilled.value()[0]) for step, work in enumerate(works)]
    for step in (3, 0, 5, 1):
        assert works[step].wait() and works[step].is_completed() and works[step].exception() is None
        assert error_of([tensors[step]], [total(step) / SIZE]) < 1.5 * theory(8)
    for step, future in enumerate(futures):
        assert future.wait().data_ptr() == tensors[step].data_ptr()
    assert seen == list(range(6)) and works[2].result()[0].data_ptr() == tensors[2].data_ptr()
    assert same_everywhere(tensors)
    # Who does not come is waited for as long as is said.
    if RANK == 0:
        dist.barrier(group=both_groups()["gloo"])
    late = numbers(9)
    work = dist.all_reduce(late, group=on, async_op=True)
    if RANK:
        with refused(RuntimeError, "0.03 s"):
            work.wait(timedelta(milliseconds=30))
        assert not work.is_completed()
        dist.barrier(group=both_groups()["gloo"])
    assert work.wait() and same_everywhere([late])
    # Exact calls and compressed ones may be under way together.
    works = []
    mixed = [numbers(step, LENGTH if step % 2 else 100) for step in range(8)]
    for tensor in mixed:
        works.append(dist.all_reduce(tensor, group=on, async_op=True))
    for work in reversed(works):
        work.wait()
    for step, tensor in enumerate(mixed):
        assert error_of([tensor], [total(step, tensor.numel())]) < (1.5 * theory(8) if step % 2 else 1e-12)


def check_tensors_of_any_shape() -> None:
    on = both_groups()["thc"]
    exact = total(4)
    for view in (
        lambda t: t.view(100, 700),
        lambda t: t.view(100, 700).t().contiguous().t(),
        lambda t: torch.stack([t, t], 1)[:, 0],
        lambda t: torch.nn.Parameter(t).data,
    ):
        tensor = view(numbers(4))
        before = tensor.data_ptr()
        dist.all_reduce(tensor, group=on)
        assert tensor.data_ptr() == before and error_of([tensor.reshape(-1)], [exact]) < 1.5 * theory(8)


def check_coalesced_calls() -> None:
    on = both_groups()["thc"]
    lengths = (10, LENGTH, 300, LENGTH + 7)
    for later in (False, True):
        tensors = [numbers(step, length) for step, length in enumerate(lengths)]
        with dist._coalescing_manager(group=on, async_ops=later) as managed:
            for tensor in tensors:
                dist.all_reduce(tensor, group=on)
        if later:
            managed.wait()
        for step, tensor in enumerate(tensors):
            error = error_of([tensor], [total(step, tensor.numel())])
            assert 0.3 * theory(8) < error < 1.5 * theory(8) if tensor.numel() >= LENGTH else error < 1e-12, (step, error)
        assert same_everywhere(tensors)
    tensors = [numbers(step, length) for step, length in enumerate(lengths)]
    work = on.allreduce_coalesced(tensors)
    assert [each.data_ptr() for each in work.get_future().wait()] == [each.data_ptr() for each in tensors] and work.is_completed()


def check_functional_collectives_and_dtensor() -> None:
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    on, mine = both_groups()["thc"], numbers(5)
    found = functional.wait_tensor(functional.all_reduce(mine, "sum", on))
    assert 0.3 * theory(8) < error_of([found], [total(5)]) < 1.5 * theory(8) and same_everywhere([found])
    assert torch.equal(mine, numbers(5))
    mesh = DeviceMesh.from_group(on, "cpu")
    sums = DTensor.from_local(numbers(6), mesh, [Partial()]).redistribute(mesh, [Replicate()]).to_local()
    assert 0.3 * theory(8) < error_of([sums], [total(6)]) < 1.5 * theory(8) and same_everywhere([sums])


def check_groups_of_some_ranks() -> None:
    parts = [list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))] if SIZE > 3 else [[0, SIZE - 1]]
    # Every rank makes all of them, as torch wants.
    made = [group(ranks, lane=8 + at) for at, ranks in enumerate(parts)]
    whole = both_groups()["thc"]
    for step in range(3):
        for ranks, on in zip(parts, made):
            if RANK not in ranks:
                continue
            tensor, exact = numbers(step), torch.stack([numbers(step, rank=rank).double() for rank in ranks]).sum(0)
            dist.all_reduce(tensor, group=on)
            assert error_of([tensor], [exact]) < 1.5 * theory(8, len(ranks))
            assert dist.get_group_rank(on, RANK) == ranks.index(RANK)
        tensor = numbers(step)
        dist.all_reduce(tensor, group=whole)
        assert error_of([tensor], [total(step)]) < 1.5 * theory(8) and same_everywhere([tensor])
    # torch's names count the groups that a rank has made: what comes next meets.
    for backend in ("gloo", "thc"):
        after = dist.new_group(backend=backend)
        dist.barrier(group=after)
        some = [0, 1] if RANK < 2 else list(range(2, SIZE))
        dist.barrier(group=dist.new_group(some, backend="gloo", use_local_synchronization=True))
    alone = [dist.new_group([rank], backend="thc") for rank in range(SIZE)][RANK]
    tensor = numbers(1)
    dist.all_reduce(tensor, group=alone)
    assert torch.equal(tensor, numbers(1))
    for ranks, on in zip(parts, made):
        if RANK in ranks:
            dist.destroy_process_group(on)


def check_what_is_not_finite_is_nan_everywhere() -> None:
    on = both_groups()["thc"]
    for dtype, bad in ((torch.float32, float("nan")), (torch.float32, float("-inf")), (torch.bfloat16, float("inf"))):
        tensor = numbers(0).to(dtype)
        if RANK == SIZE - 1:
            tensor[17] = bad
        work = dist.all_reduce(tensor, group=on, async_op=True)
        assert work.wait() and bool(tensor.isnan().all()), (dtype, bad)
        tensor = numbers(1)
        dist.all_reduce(tensor, group=on)
        assert error_of([tensor], [total(1)]) < 1.5 * theory(8)


def check_calls_that_differ_are_an_error_on_all_ranks() -> None:
    on = both_groups()["thc"]
    last = RANK == SIZE - 1
    for tensor, op, words in (
        (numbers(0, LENGTH + 8192 * last), dist.ReduceOp.SUM, (str(LENGTH), str(LENGTH + 8192))),
        (numbers(0).to(torch.float16 if last else torch.float32), dist.ReduceOp.SUM, ("float16", "float32")),
        (numbers(0), dist.ReduceOp.AVG if last else dist.ReduceOp.SUM, ("AVG", "SUM")),
    ):
        work = dist.all_reduce(tensor, op, group=on, async_op=True)
        future = work.get_future()
        with refused(thc.MismatchError, *words):
            work.wait()
        assert bool(tensor.isnan().all()) and isinstance(work.exception(), thc.MismatchError) and not work.is_success()
        with refused(RuntimeError, "MismatchError"):
            future.wait()
        tensor = numbers(1)
        dist.all_reduce(tensor, group=on)
        assert error_of([tensor], [total(1)]) < 1.5 * theory(8)


def check_a_rank_that_does_not_call_is_an_error_in_time() -> None:
    on = dist.new_group(backend="thc", timeout=timedelta(seconds=3), pg_options=options(min_size=1000))
    tensor = numbers(0)
    dist.all_reduce(tensor, group=on)
    tensor = numbers(0, 1000 if RANK else 999)
    # Of rank 0 it is too short to be compressed.
    with refused(thc.NetworkError, "not all ranks have called") if RANK else refused((thc.NetworkError, RuntimeError)):
        dist.all_reduce(tensor, group=on)
    assert RANK == 0 or bool(tensor.isnan().all())
    dist.barrier(group=both_groups()["gloo"])
    dist.destroy_process_group(on)


def check_only_gradients_are_compressed_by_default() -> None:
    on = dist.new_group(backend="thc", pg_options=options(everywhere=0))
    # As averaging of parameters has it: what is equal everywhere stays what it is.
    equal = numbers(7) if RANK == 0 else torch.empty(LENGTH)
    dist.broadcast(equal, 0)
    mean = equal / SIZE
    dist.all_reduce(mean, group=on)
    assert torch.allclose(mean, equal, rtol=1e-6) and on.stats() is None

    class AddUp(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
            found = gradient.clone()
            dist.all_reduce(found, group=on)
            return found

    x = torch.zeros(LENGTH, requires_grad=True)
    AddUp.apply(x).backward(numbers(RANK))
    assert on.stats().calls == 1
    with thc.torch.backend.exact():
        AddUp.apply(x).backward(numbers(RANK))
        everywhere = group()
        dist.all_reduce(mean, group=everywhere)
    assert on.stats().calls == 1 and everywhere.stats() is None


def check_options() -> None:
    for given, words in (
        ({"lane": 17}, "lane is 17"),
        ({"bits": 9}, "bits is 9"),
        ({"block": 9}, "block is 9"),
        ({"min_size": -1}, "min_size is -1"),
        ({"everywhere": 2}, "everywhere is 2"),
        ({"min_size": 1e6}, "min_size is 1000000.0"),
    ):
        with refused(thc.ConfigError, words, "give"):
            options(**given)
    for name, text, says in (("LANE", "wide", "THC_BACKEND_LANE is 'wide'"), ("MIN_SIZE", "-4", "min_size is -4")):
        with patch.dict(os.environ, {f"THC_BACKEND_{name}": text}), refused(thc.ConfigError, says):
            options()
    with patch.dict(os.environ, {"THC_BACKEND_LANE": "12", "THC_BACKEND_BLOCK": "12"}):
        made = options(block=14).compression
        assert (made.lane, made.block, made.min_size) == (12, 14, 65536) and "lane=12" in repr(options())
        on = dist.new_group(backend="thc", pg_options=options())
    tensor = numbers(0)
    dist.all_reduce(tensor, group=on)
    assert error_of([tensor], [total(0)]) < 1.5 * theory(12)
    # Of all of them, ranks must have the same.
    first = int(RANK == 0)
    for given, name in (({"lane": 8 + 4 * first}, "lane"), ({"min_size": 1000 + first}, "min_size"), ({"everywhere": first}, "everywhere")):
        with refused(thc.ConfigError, f"{name} is", "rank"):
            group(**given)
    with refused(thc.ConfigError, "thc.torch.backend.Options"):
        dist.new_group(backend="thc", pg_options=7)


def check_hooks_of_thc_refuse_a_group_that_compresses() -> None:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(30, 30), process_group=both_groups()["thc"])
    with refused(thc.ConfigError, '"thc"', "gloo"):
        thc.torch.wrap(model, over="process-group")
