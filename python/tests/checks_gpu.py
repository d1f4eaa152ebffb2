"""What only a GPU can show: streams that wait for one another, and NCCL. `gpu.py` runs it.

Nothing in here trusts to luck. Each place at which one stream has to wait for another is visited by holding that other stream up for
longer than all the rest takes (`torch.cuda._sleep`), and what is read is queued at once, without the host waiting for anything: if somebody
does not wait, the numbers are those of before. The reference is the same model on the CPU, compressed by the library: the bits must
be the same. On the CPU nothing is held up, and the checks show no more than that they can be run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import plain  # noqa: F401 - device="torch"
import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_hook import Sparse
from rig import (
    RANK,
    SIZE,
    Weights,
    error_of,
    everywhere,
    exact_mean,
    gradients,
    refused,
    same_everywhere,
    served,
    wrap_model,
)
from servers import ParameterServer
from thc.torch.engine.bucket import Bucket
from thc.torch.ddp.future import BucketFuture, PassError
from thc.torch.compression.layout import Layout, Segment

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count()) if CUDA else torch.device("cpu")
if CUDA:
    torch.cuda.set_device(DEVICE)
NCCL = dist.get_backend() == "nccl"
KERNELS = "triton" if CUDA and importlib.util.find_spec("triton") else "torch"

CYCLES = 300_000_000
"""Of the GPU's clock: between 0.1 and 0.3 s."""

SIZES = (300_000, 1_000, 280_000, 320_000)
SERVER = {"seed": 77}


def delay() -> None:
    """Holds up the current stream."""
    if CUDA:
        torch.cuda._sleep(CYCLES)


def use_stream(stream: Any) -> Any:
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)


def new_stream() -> Any:
    return torch.cuda.Stream(DEVICE) if CUDA else None


def held_up(stream: Any) -> None:
    with use_stream(stream):
        delay()


# The future alone.


def check_a_stream_that_is_held_up_shows() -> None:
    """That the rest of these checks can fail."""
    if not CUDA:
        return
    writer, buffer = new_stream(), torch.zeros(9, device=DEVICE)
    torch.cuda.synchronize(DEVICE)
    with use_stream(writer):
        delay()
        buffer.fill_(1)
    seen = buffer.clone()
    torch.cuda.current_stream(DEVICE).synchronize()
    assert not seen.any(), "the GPU does its streams one after the other, so nothing in here shows anything"
    torch.cuda.synchronize(DEVICE)


def deliver(writer: Any, reader: Any) -> torch.Tensor:
    """What ``reader`` finds in a bucket that another thread releases while ``writer`` is still to write it."""
    buffer = torch.zeros(9, device=DEVICE)
    if CUDA:
        torch.cuda.synchronize(DEVICE)
    future = BucketFuture(buffer, PassError(), is_last=True)
    bucket = Bucket(0, True, buffer, [], Layout("gpu", [Segment("p", 0, 9, True)]), future, None, stream=writer)
    with use_stream(writer):
        delay()
        buffer.fill_(1)
    # The sequencer is another thread, whose own streams are idle.
    thread = threading.Thread(target=bucket.release)
    thread.start()
    thread.join()
    with use_stream(reader):
        found = future.future.wait()
        seen = buffer.clone()
    assert found is buffer
    if CUDA:
        (reader or torch.cuda.current_stream(DEVICE)).synchronize()
    return seen.cpu()


def check_a_future_waits_for_the_stream_that_writes_the_bucket() -> None:
    for writer in (new_stream(), new_stream()):
        for reader in (None, new_stream(), writer):
            assert deliver(writer, reader).eq(1).all()


def check_what_hangs_on_the_future_waits_too() -> None:
    """As torch's own wrappers of hooks do."""
    writer, buffer = new_stream(), torch.zeros(9, device=DEVICE)
    future = BucketFuture(buffer, PassError(), is_last=True)
    doubled = future.future.then(lambda fulfilled: fulfilled.value() * 2)
    with use_stream(writer):
        delay()
        buffer.fill_(1)
        threading.Thread(target=lambda: _release_on(writer, future)).start()
    assert doubled.wait().cpu().eq(2).all()


def _release_on(stream: Any, future: BucketFuture) -> None:
    with use_stream(stream):
        future.set_result(None)


# Training, held up at every place.


class Late(torch.autograd.Function):
    """A gradient that comes late."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        delay()
        return grad.clone()


class LateWeights(Weights):
    """Whose gradients are late on the stream of the backward pass, those of every bucket by themselves."""

    late = False

    def forward(self, inputs: Sequence[torch.Tensor], order: Sequence[int] | None = None) -> torch.Tensor:
        if not self.late:
            return super().forward(inputs, order)
        return torch.stack([(Late.apply(weight) * part).sum() for weight, part in zip(self.weights, inputs)]).sum()


class Slow:
    """Kernels of which one holds up its stream first."""

    def __init__(self, kernels: Any, name: str) -> None:
        self._kernels, self._name = kernels, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kernels, name)
        if name != self._name:
            return found

        def slow(*arguments: Any, **options: Any) -> Any:
            delay()
            return found(*arguments, **options)

        return slow


def means_of(model: Any, step: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """A step's averaged gradients, read by the stream on which training goes on, without anybody waiting for it."""
    device = next(model.parameters()).device
    inputs = [each.to(device) for each in gradients(step, sizes=SIZES, dtype=dtype)]
    model.zero_grad(set_to_none=True)
    model(inputs).backward()
    return [p.grad.clone() for p in model.parameters()]


def same_bits(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> bool:
    whole = {2: torch.int16, 4: torch.int32}
    return all(torch.equal(a.cpu().view(whole[a.element_size()]), b.cpu().view(whole[b.element_size()])) for a, b in zip(got, want))


@contextlib.contextmanager
def slow(codec: Any, name: str) -> Iterator[None]:
    kernels, codec.kernels = codec.kernels, Slow(codec.kernels, name)
    try:
        yield
    finally:
        codec.kernels = kernels


@contextlib.contextmanager
def late(model: Any) -> Iterator[None]:
    model.module.late = True
    try:
        yield
    finally:
        model.module.late = False


@contextlib.contextmanager
def stream_held_up(stream: Any) -> Iterator[None]:
    held_up(stream)
    yield


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """On another stream than the model was made on, which is held up, too."""
    side = new_stream()
    if side is None:
        yield
        return
    before = torch.cuda.current_stream(DEVICE)
    side.wait_stream(before)
    with torch.cuda.stream(side):
        delay()
        yield
    before.wait_stream(side)


def places(model: Any, hook: thc.torch.Hook) -> dict[str, Callable[[], Any]]:
    """Where a stream waits for another, by what is held up: a context for a step."""
    found: dict[str, Callable[[], Any]] = {
        "nothing": contextlib.nullcontext,
        "gradients": lambda: late(model),
        "the stream of training": lambda: stream_held_up(None),
        "a stream beside it": beside,
    }
    chosen = hook.engine.selector.compressor
    codec = getattr(chosen, "_codec", None)
    if codec is not None:
        found["the codec's stream"] = lambda: stream_held_up(codec.stream)
        for name in ("norms", "compress", "decompress"):
            found[f"{name} on it"] = lambda name=name: slow(codec, name)  # type: ignore[misc]
    for name in ("_fetching", "_storing"):
        if (stream := getattr(chosen, name, None)) is not None:
            found[f"the stream of {name[1:]}"] = lambda stream=stream: stream_held_up(stream)  # type: ignore[misc]
    return found


def held_up_everywhere(where: str, dtype: torch.dtype = torch.float32, **options: Any) -> None:
    """Steps on a GPU, each held up at another place, and the same on the CPU, bit for bit."""
    # NCCL moves nothing of the CPU's.
    reference, host = wrap_model(LateWeights(SIZES, dtype), {"process_group": rig.TALK} if NCCL else None, server=SERVER, device="cpu", **options)
    model, hook = wrap_model(LateWeights(SIZES, dtype).to(DEVICE), server=SERVER, device=where, **options)
    for step in range(2):  # DDP makes other buckets after the first
        assert same_bits(means_of(model, step, dtype), means_of(reference, step, dtype)), (where, options, step)
    assert hook.device is not None and hook.device.where == where, hook.device
    for step, (name, context) in enumerate(places(model, hook).items(), 2):
        with context():
            got = means_of(model, step, dtype)
        want = means_of(reference, step, dtype)
        assert same_bits(got, want), (where, name, options)
        assert same_everywhere([each.cpu() for each in got]), (where, name)
    assert hook.steps == host.steps
    if (codec := getattr(hook.engine.selector.compressor, "_codec", None)) is not None:
        held_up(codec.stream)
    mine, theirs = hook.state_dict()["feedback"], host.state_dict()["feedback"]
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine), (where, options)
    for each in (host, hook):
        each.group.close()


def check_compressed_by_the_gpu_with_fallback() -> None:
    held_up_everywhere(KERNELS)


def check_compressed_by_the_gpu_without_fallback() -> None:
    """Where no call that ends a step hides that somebody does not wait."""
    held_up_everywhere(KERNELS, fallback=False)


def check_compressed_by_the_host() -> None:
    held_up_everywhere("cpu")
    held_up_everywhere("cpu", fallback=False)


def check_half_precision() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        held_up_everywhere(KERNELS, dtype, fallback=False)


def check_parts_that_are_not_compressed() -> None:
    held_up_everywhere(KERNELS, exclude=["*.0", "*.1"])
    held_up_everywhere(KERNELS, warmup=3)


def check_nan_for_what_is_not_finite() -> None:
    for where in (KERNELS, "cpu"):
        for fallback in (True, False):
            model, hook = wrap_model(LateWeights(SIZES).to(DEVICE), device=where, fallback=fallback)
            means_of(model, 0)
            for name, context in places(model, hook).items():
                inputs = [each.to(DEVICE) for each in gradients(1, sizes=SIZES)]
                if RANK == 0:
                    inputs[2][77] = float("inf")
                model.zero_grad(set_to_none=True)
                with context():
                    model(inputs).backward()
                    means = [p.grad.clone() for p in model.parameters()]
                assert hook.skipped and bool(means[2].isnan().all()), (where, name, fallback)


# The process group.


def check_doubles_go_through_the_process_group() -> None:
    sizes = (40_000, 30_000)
    model, hook = wrap_model(Weights(sizes, torch.float64).to(DEVICE))
    for step in range(3):
        delay()
        means = rig.backward(model, [each.to(DEVICE) for each in gradients(step, sizes=sizes, dtype=torch.float64)])
        assert error_of([mean.cpu() for mean in means], exact_mean(step, sizes, torch.float64)) < 1e-25, step
    if CUDA:
        # Each rank's threads are on its own GPU; a thread begins with the first.
        assert hook.engine.ask(torch.cuda.current_device) == DEVICE.index


def check_sparse_gradients() -> None:
    exact = torch.zeros(50, 8)
    exact[:SIZE] = torch.arange(1.0, 1 + SIZE)[:, None] / SIZE
    model, hook = wrap_model(Sparse().to(DEVICE))
    for step in range(2):
        model.zero_grad(set_to_none=True)
        delay()
        model(torch.tensor([RANK], device=DEVICE), [each.to(DEVICE) for each in gradients(step, sizes=(20_000,))]).backward()
        rows = model.module.rows.weight.grad
        assert rows.is_sparse and torch.allclose(rows.to_dense().cpu(), exact), step


# A server that is lost.


def check_training_goes_on_when_the_server_dies() -> None:
    for where, view in ((KERNELS, False), (KERNELS, True), ("cpu", False), ("cpu", True)):
        server, group = served(timeout=2)
        model, hook = wrap_model(LateWeights(SIZES).to(DEVICE), {"gradient_as_bucket_view": view}, group=group, device=where)
        means_of(model, 0)
        dist.barrier()
        if server is not None:
            server.kill()
        dist.barrier()
        for step in range(1, 4):
            with late(model):
                means = [mean.cpu() for mean in means_of(model, step)]
            assert same_everywhere(means) and error_of(means, exact_mean(step, SIZES)) < 1e-12, (where, view, step)
        assert hook.fallback_active and hook.steps == 4


def check_exceptions_keep_their_type_and_ddp_its_use() -> None:
    server, group = served(timeout=2)
    model, hook = wrap_model(LateWeights(SIZES).to(DEVICE), group=group, fallback=False)
    means_of(model, 0)
    dist.barrier()
    if server is not None:
        server.kill()
    dist.barrier()
    with refused(thc.SessionError):
        means_of(model, 1)
    assert all(bool(p.grad.isnan().all()) for p in model.parameters()), "what is no mean is NaN"
    if server is not None:
        server = ParameterServer({"workers": SIZE}, listen=group.ps)
    dist.barrier()
    assert hook.resume()
    means = [mean.cpu() for mean in means_of(model, 2)]
    assert same_everywhere(means) and error_of(means, exact_mean(2, SIZES)) < 0.1


def check_batch_norm_of_all_ranks_beside_the_fallback() -> str | None:
    """Two communicators of NCCL, in one order on all ranks."""
    if not NCCL or SIZE < 2:
        return "not run: SyncBatchNorm beside the fall-back under NCCL: needs two GPUs"
    server, group = served(timeout=2)
    layers = torch.nn.Sequential(*[part for _ in range(6) for part in (torch.nn.Linear(512, 512), torch.nn.SyncBatchNorm(512), torch.nn.ReLU())])
    model, hook = wrap_model(layers.to(DEVICE), group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(30):
        if step == 3 and server is not None:
            server.kill()
        inputs = torch.randn(64, 512, generator=torch.Generator().manual_seed(100 * step + RANK)).to(DEVICE)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    assert hook.fallback_active and same_everywhere([p.detach().cpu() for p in model.parameters()])
    group.close()
    return None


# Means that nobody waits for.


def check_means_that_nobody_waits_for() -> None:
    model = LateWeights(SIZES).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loop = thc.torch.overlap(model, optimizer, join=thc.Join(timeout=20, join_timeout=20))
    rig._made.append(loop.group)
    model.late = True
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        delay()
        model([each.to(DEVICE) for each in gradients(step, sizes=SIZES)]).backward()
        loop.step()
    loop.settle()
    assert same_everywhere([p.detach().cpu() for p in model.parameters()])
    assert everywhere(loop.fallback_active) == [False] * SIZE


def check_a_backward_pass_is_not_captured() -> str | None:
    """What a graph replays would call no hook."""
    if not CUDA:
        return "not run: CUDA graphs: there is no GPU"
    model, _ = wrap_model(Weights((3000,)).to(DEVICE), device="cpu")
    given = [each.to(DEVICE) for each in gradients(0, sizes=(3000,))]
    refused: Exception | None = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            model(given).backward()
    except Exception as error:
        refused = error
    assert "CUDA graph" in str(refused), refused
    return None
