"""Times of kernels, calls and training steps on a GPU, each beside its yardstick, taking turns."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

COOKIE = 77
SPACE = 64 << 20
"""Coordinates that kernels are timed on: more than any cache has."""


@dataclass
class Timed:
    """Something and what it is compared with."""

    name: str
    against: str
    seconds: float
    """Median."""
    yardstick: float
    """Likewise."""
    bytes: float = 0.0
    """That it reads and writes."""
    ratio: float = 0.0
    """Of bandwidths; of seconds where no bytes are counted: above 1 is better than the yardstick."""
    aim: float | None = None
    cpu: float | None = None
    """Seconds of the host's cores, where it is counted."""
    cpu_yardstick: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def clock(work: Callable[[], Any], device: Any) -> float:
    """Seconds of the device, or of the wall where it is the CPU."""
    import torch

    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # The device is busy while the host launches what is timed, as it is with what training gives it.
    _large_buffer(device).zero_()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


@functools.cache
def _large_buffer(device: Any) -> Any:
    """A GiB: it takes longer to fill than a launch."""
    import torch

    return torch.empty(1 << 30, dtype=torch.uint8, device=device)


def in_turns(works: list[Callable[[], Any]], measure: Callable[[Callable[[], Any]], float], times: int, warm: int = 3) -> list[float]:
    """The median of each."""
    taken: list[list[float]] = [[] for _ in works]
    for turn in range(warm + times):
        for work, seconds in zip(works, taken):
            each = measure(work)
            if turn >= warm:
                seconds.append(each)
    return [statistics.median(seconds) for seconds in taken]


def kernels(device: Any, made: Any, coordinates: int = SPACE, times: int = 20) -> list[Timed]:
    """Each kernel of a codec against a copy on the device, in bytes read and written a second: launched once, and as calls do it, piece
    by piece as what is compressed goes to the host."""
    import thc
    import torch
    from thc.torch.device.codec import DeviceCodec
    from thc.torch.device.call import Numbers

    found = []
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(coordinates, generator=generator, device=device)
    kept = 0.1 * torch.randn(coordinates, generator=generator, device=device)
    left, y = torch.empty_like(x), torch.empty_like(x)
    for block in (13, 20):
        with thc.Server(1, COOKIE, block=block) as server, thc.Group(server.address, 1, 0, COOKIE) as group:
            codec = DeviceCodec(group, device, made)
            grid, table = codec.grid(group.tables[0].id), group.tables[0].id
            check(codec, group, x[: 3 << 19], f"blocks of 2^{block}")
            plan = ((coordinates, table),)
            cut, whole = codec.cut(plan), DeviceCodec(group, device, made, coordinates.bit_length() - 1).cut(plan)
            numbers = Numbers(cut, 1, device)
            packed = torch.empty(cut.indices, dtype=torch.uint8, device=device)
            sums = torch.randint(0, 31, (cut.sums,), dtype=torch.uint8, device=device)
            deviation = (1 << block) ** -0.5 * (x + kept).reshape(-1, 1 << block).norm(dim=1)
            reach = 2.15 * deviation
            numbers.affine.copy_(torch.stack((-reach, 15 / reach, torch.full_like(reach, 15.0), reach / 15), dim=1))
            numbers.estimates.copy_(torch.stack((reach, -15 * reach), dim=1).repeat_interleave((1 << block) // 1024, dim=0) / 15)
            numbers.keys.copy_(torch.tensor([1, 2]))

            def for_each(runs: Any, work: Callable[[Any], None]) -> Callable[[], None]:
                return lambda: [work(run) for run in runs] and None

            for dtype in (torch.float32, torch.bfloat16):
                g, wide = x.to(dtype), dtype.itemsize
                mean = y.to(dtype)

                def norms(run: Any) -> None:
                    made.norms(run, g, kept, numbers)

                def compress(run: Any) -> None:
                    made.compress(run, g, (kept, left), grid, numbers, packed)

                def decompress(run: Any) -> None:
                    made.decompress(run, sums, grid, numbers, mean)

                rows: list[tuple[str, float, Callable[[], None]]] = [
                    ("norms", wide + 4, for_each(cut.measured, norms)),
                    ("compress", wide + 8.5, for_each(whole.runs, compress)),
                    ("compress in pieces of 2^20", wide + 8.5, for_each(cut.runs, compress)),
                    ("decompress", wide + 1, for_each(whole.runs, decompress)),
                    ("decompress in pieces of 2^20", wide + 1, for_each(cut.runs, decompress)),
                ]
                for name, moved, work in rows:
                    seconds, copy = in_turns([work, lambda: y.copy_(x)], lambda work: clock(work, device), times)
                    bytes_ = moved * coordinates
                    ratio = bytes_ / seconds / (8 * coordinates / copy)
                    aim = 0.5 if name == "compress" and block == 13 else None
                    found.append(Timed(f"{name}, {str(dtype)[6:]}, blocks of 2^{block}", "copy on the device", seconds, copy, bytes_, ratio, aim))
    return found


def check(codec: Any, group: Any, x: Any, what: str) -> None:
    """The device's answer is the library's."""
    import thc
    import torch

    job = group.job
    with thc.Server(1, COOKIE, block=job.block, seed=5) as one, thc.Server(1, COOKIE, block=job.block, seed=5) as two:
        with thc.Group(one.address, 1, 0, COOKIE) as host, thc.Group(two.address, 1, 0, COOKIE) as other:
            want, got = x.cpu().numpy().copy(), x.clone()
            host.allreduce(want, feedback=1)
            done = type(codec)(other, codec.device, codec.kernels).allreduce(got, 1)
            if done is not None:
                done.synchronize()
            same = torch.equal(got.cpu().view(torch.int32), torch.from_numpy(want).view(torch.int32))
            assert same, f"{what}: the device's mean is not the library's"


def cores(work: Callable[[], Any], times: int) -> float:
    """Seconds that the cores work for it, with those of the server in this process."""
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times


def calls(device: Any, made: Any, coordinates: int, times: int = 10) -> Timed:
    """A whole all-reduce of a worker alone over loopback, a server in this process beside it, against the library's with copies."""
    import thc
    import torch
    from thc.torch.device.codec import DeviceCodec

    x = torch.randn(coordinates, device=device)
    staging = torch.empty(coordinates, pin_memory=device.type == "cuda")
    with thc.Server(1, COOKIE) as one, thc.Server(1, COOKIE) as two:
        with thc.Group(one.address, 1, 0, COOKIE) as host, thc.Group(two.address, 1, 0, COOKIE) as other:
            codec = DeviceCodec(other, device, made)

            def on_device() -> None:
                done = codec.allreduce(x, 1)
                if done is not None:
                    done.synchronize()

            def on_host() -> None:
                staging.copy_(x)
                host.allreduce(staging.numpy(), feedback=1)
                x.copy_(staging)
                if device.type == "cuda":
                    torch.cuda.synchronize()

            def wall(work: Callable[[], Any]) -> float:
                started = time.perf_counter()
                work()
                return time.perf_counter() - started

            mine, theirs = in_turns([on_device, on_host], wall, times)
            cpu = in_turns([on_device, on_host], lambda work: cores(work, 3), 5, warm=1)
    name = f"all-reduce of {coordinates} coordinates, 1 worker"
    return Timed(name, "compressed by the host", mine, theirs, ratio=theirs / mine, cpu=cpu[0], cpu_yardstick=cpu[1])


def steps(device: Any, where: str, layers: int = 12, width: int = 1024, times: int = 20) -> Timed:
    """A training step of a model of DDP in a process group of one, against the same with gradients compressed by the host."""
    import thc.torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    made = []
    for choice in (where, "cpu"):
        torch.manual_seed(1)
        model = torch.nn.Sequential(*[part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.GELU())]).to(device)
        wrapped = thc.torch.wrap(DistributedDataParallel(model), device=choice, join=thc.Join(server={"seed": 3}))
        made.append((wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.01)))
    inputs = torch.randn(64, width, device=device)

    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    def wall(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    mine, theirs = in_turns([lambda: step(*made[0]), lambda: step(*made[1])], wall, times)
    parameters = [[p.detach().cpu() for p in model.parameters()] for model, _ in made]
    assert all(torch.equal(a, b) for a, b in zip(*parameters)), "models of the two ways differ"
    for model, _ in made:
        thc.torch.hook_of(model).group.close()
    return Timed(f"training step, {sum(p.numel() for p in parameters[0])} parameters", "compressed by the host", mine, theirs, ratio=theirs / mine)
