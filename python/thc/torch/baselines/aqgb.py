"""AQGB as its paper has it: between peers, without an aggregator (sections 4.2 to 4.4)."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from thc import _native, adapt
from thc.errors import ConfigError
from thc.row import Training
from thc.torch.engine.clock import Clock
from thc.torch.compression.layout import Layout, Segment
from thc.torch.ranks.peers import Peers
from thc.torch.engine.arrival import Arrival
from thc.torch.refine.updates import Refined, Updates

__all__ = ["AqgbHook"]

BITS = 32
NARROW = 16
"""Up to so many bits of the first stage numbers are first taken to FP8 or FP16."""
LATEST = 0.7
"""What the latest step counts in a time."""


class _Block:
    """A bucket of DDP and what of it has been sent."""

    def __init__(self, index: int, is_last: bool, buffer: torch.Tensor, parameters: list[torch.nn.Parameter], layout: Layout) -> None:
        self.index, self.is_last, self.buffer, self.parameters, self.layout = index, is_last, buffer, parameters, layout
        self.promise: torch.futures.Future[Any] = torch.futures.Future()
        self.computed: float | None = None
        """Seconds that this step had computed when it was there."""
        self.sent = 0
        """Bits of each number that all have."""
        self.numbers = np.zeros(0, dtype=np.float32)
        """This rank's, with what was left before."""
        self.every: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        """All ranks', as far as they have come."""
        self.is_prefix = False
        """Whether these are the first bits of FP32 numbers, which the next bits follow."""


class AqgbHook:
    """A hook of DDP whose gradients all ranks broadcast to all, as the first bits of each number (TFP): ``ddp.register_comm_hook(hook.state,
    hook.fn)``. Up to 8 bits are those of FP8, rounded at random, up to 16 those of FP16, since the first bits of an FP32 number are
    its exponent (section 4.4); then the second stage sends what is left in the same way. More are those of FP32, and the second
    stage sends the next ones. All ranks make it alike. It is the baseline of ``thc.torch.wrap(model, refine=optimizer)``.

    Blocks are DDP's buckets, the last one produced goes first. In the first stage as many bits are sent of what is undelivered as fit before the
    next block is produced, of the last one as few as allowed; in the second so many of the remaining bits as fit before the next forward pass
    needs the block, whose update by ``optimizer`` waits for them. What is left is error feedback. ``least`` is q̄, of 32 bits. The ranks compare
    before each broadcast which blocks they have and how many bits they would send, and the fewest are sent: torch's all-gather takes the same of
    each. A lost rank raises from ``backward``.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, process_group: Any = None, *, least: float = adapt.LEAST) -> None:
        if not 2 / BITS <= least <= 1:
            raise ConfigError(f"least is {least}: give a share of 32 bits, at least 2 of them and at most 1")
        module = getattr(model, "module", model)
        self.training = Training()
        """What the steps were made of."""
        self.steps = 0
        self.bits: list[tuple[int, int]] = []
        """The last step's blocks in the order in which they went: number of the block, and bits of the first stage."""
        self.further: list[tuple[int, int]] = []
        """Likewise of the second stage."""
        self.calls = 0
        """Broadcasts of the second stage so far."""
        self.broadcasts = 0
        """All of them."""
        self.sent = 0
        """Bytes that this rank has sent to each of the others."""
        self._peers = Peers(process_group)
        self._clock = Clock()
        self._updates = Updates(optimizer, module, self._clock)
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._least = least
        self._bandwidth = adapt.Bandwidth()
        self._produced: dict[int, float] = {}
        self._needed: dict[int, float] = {}
        self._keys: list[int] = []
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._left: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
        """Error feedback by parameter."""
        self._arriving: queue.SimpleQueue[_Block | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="aqgb", daemon=True)
        self._thread.start()

    @property
    def state(self) -> AqgbHook:
        """The first argument of ``register_comm_hook``."""
        return self

    @property
    def fn(self) -> Callable[[AqgbHook, Any], torch.futures.Future[torch.Tensor]]:
        """The second argument of ``register_comm_hook``."""
        return aqgb_hook

    def settle(self) -> None:
        """Makes the updates that have been put off until the next forward pass."""
        self._updates.settle()

    def close(self) -> None:
        """Ends its thread."""
        self._arriving.put(None)
        self._thread.join(10)

    def start(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Takes a bucket and returns a future of its mean."""
        buffer: torch.Tensor = bucket.buffer()
        parameters = bucket.parameters()
        identity = tuple(id(p) for p in parameters)
        if identity not in self._layouts:
            segments, offset = [], 0
            for p in parameters:
                segments.append(Segment(self._names[id(p)], offset, p.numel(), True))
                offset += p.numel()
            self._layouts[identity] = Layout("aqgb", segments)
        block = _Block(bucket.index(), bucket.is_last(), buffer, parameters, self._layouts[identity])
        self._clock.note_production()
        block.computed = self._clock.compute_time()

        def deliver(fulfilled: torch.futures.Future[Any]) -> torch.Tensor:
            error = fulfilled.value()
            if error is not None:
                raise error
            return buffer

        result: torch.futures.Future[torch.Tensor] = block.promise.then(deliver)
        self._arriving.put(block)
        return result

    # The thread: a step after the other.

    def _run(self) -> None:
        while (block := self._arriving.get()) is not None:
            blocks, refined = [block], dict[int, Refined]()
            arrivals: dict[int, Arrival] = {}
            released = False
            try:
                self._first_stage(blocks)
                refined, arrivals = self._announce(blocks)
                self._end_step()
                released = True
                for each in blocks:
                    each.promise.set_result(None)
                self._second_stage(blocks, refined, arrivals)
            except BaseException as error:  # told to training
                for arrival in arrivals.values():
                    if not arrival.is_there():
                        arrival.set_result(error)
                if not released:
                    self._give_up(blocks, error)
            # They must not live until the next come.
            del block, blocks

    def _give_up(self, blocks: list[_Block], error: BaseException) -> None:
        """DDP waits for all blocks of a step."""
        while not blocks[-1].is_last and (block := self._arriving.get()) is not None:
            blocks.append(block)
        for each in blocks:
            each.promise.set_result(error)

    def _end_step(self) -> None:
        self.steps += 1
        if (row := self._clock.end_step()) is not None:
            self.training.step(row)

    def _first_stage(self, blocks: list[_Block]) -> None:
        self.bits = []
        undelivered = list(blocks)
        while True:
            while not blocks[-1].is_last:
                try:
                    # With nothing to send there is nothing to do but wait.
                    block = self._arriving.get(block=not undelivered)
                except queue.Empty:
                    break
                assert block is not None, "closed in the middle of a step"
                blocks.append(block)
                undelivered.append(block)
            if not undelivered:
                return
            rows = self._peers.gather([len(blocks), self._first_bits(blocks, undelivered)])
            # Blocks that all have; of these the last one. All ranks have delivered the same.
            produced = min(row[0] for row in rows)
            block = max((each for each in undelivered if each.index < produced), key=lambda each: each.index)
            undelivered.remove(block)
            bits = min(row[1] for row in rows)
            self._take_up(block)
            self._broadcast(block, bits)
            self.bits.append((block.index, bits))
            self._write(block)

    def _first_bits(self, blocks: list[_Block], undelivered: list[_Block]) -> int:
        """As many bits of all that is undelivered as arrive before the next block comes; L_F of the paper."""
        size = 4.0 * sum(each.layout.length for each in undelivered)
        bandwidth = self._bandwidth.get()
        left = None
        if not blocks[-1].is_last:
            due, now = self._produced.get(len(blocks)), self._clock.compute_time()
            left = 0.0 if due is None or now is None else due - now
        ratio = self._least if bandwidth is None else adapt.first_ratio(size, bandwidth, left, least=self._least)
        return _ceiling(ratio * BITS)

    def _announce(self, blocks: list[_Block]) -> tuple[dict[int, Refined], dict[int, Arrival]]:
        """Ranks tell when they need each block. Training hears which ones will be refined, perhaps."""
        keys = [block.layout.key for block in blocks]
        if keys != self._keys:
            self._keys = keys
            self._needed.clear()
            self._produced.clear()
        for block in blocks:
            if block.computed is not None:
                _blend(self._produced, block.index, block.computed)
            used = self._updates.use_time(block.parameters) if self._updates.owns(block.parameters) else None
            if used is None:
                self._needed.pop(block.index, None)
            else:
                _blend(self._needed, block.index, used)
        micros = [round(1e6 * self._needed.get(block.index, 0.0)) for block in blocks]
        times = [round(1e6 * each) for each in (self._clock.last.hidden, self._clock.last.waited)]
        rows = self._peers.gather([*times, *micros])
        if all(row[0] + row[1] for row in rows):
            self.training.note_comparison((row[0] / 1e6, row[1] / 1e6) for row in rows)
        self._deadlines = [0.0 if not all(column) else max(column) / 1e6 for column in list(zip(*rows))[2:]]
        refined, arrivals = {}, {}
        for block in blocks:
            if self._deadlines[block.index] and block.sent < BITS:
                refined[block.index] = self._updates.expect(block)
                arrivals[block.index] = Arrival()
                refined[block.index].calls.append((torch.zeros(block.layout.length), arrivals[block.index]))
        self._updates.announce()
        return refined, arrivals

    def _second_stage(self, blocks: list[_Block], refined: dict[int, Refined], arrivals: dict[int, Arrival]) -> None:
        self.further = []
        for index in sorted(refined, key=lambda index: (self._deadlines[index], index)):
            block, (buffer, arrival) = blocks[index], refined[index].calls[0]
            bits = min(row[0] for row in self._peers.gather([self._further_bits(block)]))
            if bits >= (1 if block.is_prefix else 2):
                before = self._mean(block)
                self._broadcast(block, bits)
                torch.sub(self._mean(block), before, out=buffer)
                self.further.append((index, bits))
                self.calls += 1
            arrival.set_result(None)
        for block in blocks:
            self._keep(block)

    def _further_bits(self, block: _Block) -> int:
        """As many of a block's unsent bits as arrive before it is needed."""
        now, bandwidth = self._clock.compute_time(), self._bandwidth.get()
        if now is None or bandwidth is None:
            return 0
        rest = BITS - block.sent
        size = 4.0 * block.layout.length * rest / BITS
        ratio = adapt.second_ratio(size, bandwidth, self._deadlines[block.index] - now, least=self._least)
        return 0 if ratio is None else min(rest, _ceiling(ratio * rest))

    # A block.

    def _take_up(self, block: _Block) -> None:
        block.numbers = block.buffer.detach().reshape(-1).to("cpu", torch.float32).numpy().copy()
        for segment in block.layout.segments:
            left = self._left.get(segment.name)
            if left is not None:
                block.numbers[segment.slice] += left
        block.every = [np.zeros_like(block.numbers) for _ in range(self._peers.size)]

    def _broadcast(self, block: _Block, bits: int) -> None:
        """The next bits of each number, from all ranks to all; bits of a narrow format, of what is left of each number."""
        if not block.sent:
            block.is_prefix = bits > NARROW
        first = block.sent if block.is_prefix else 0
        left = block.numbers if block.is_prefix else block.numbers - block.every[self._peers.rank]
        if bits > NARROW or block.is_prefix:
            taken = _native.tfp_take(left, first, bits)
        else:
            # Roundings of the ranks are independent of each other.
            taken = _native.tfp_narrow(left, bits, self._peers.rank, self.broadcasts)
        self.broadcasts += 1
        began = time.perf_counter()
        every = self._peers.gather_bytes(taken)
        landed = time.perf_counter()
        self._clock.note_travel(began, landed)
        for theirs, numbers in zip(every, block.every):
            if block.is_prefix:
                _native.tfp_put(theirs, first, bits, numbers)
            elif bits > NARROW:
                rest = np.zeros_like(numbers)
                _native.tfp_put(theirs, 0, bits, rest)
                numbers += rest
            else:
                _native.tfp_add(theirs, bits, numbers)
        block.sent += bits
        self.sent += len(taken)
        # What a ratio is of: bytes of this rank's gradients, not of all that its link carries.
        self._bandwidth.note(len(taken), landed - began)

    def _mean(self, block: _Block) -> torch.Tensor:
        total = block.every[0].copy()
        for other in block.every[1:]:
            total += other
        return torch.from_numpy(total).div_(self._peers.size)

    def _write(self, block: _Block) -> None:
        block.buffer.reshape(-1).copy_(self._mean(block))

    def _keep(self, block: _Block) -> None:
        """What was not sent of this rank's numbers is added to the next ones."""
        left = block.numbers - block.every[self._peers.rank]
        # An infinity shall not come again in each step.
        np.nan_to_num(left, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        for segment in block.layout.segments:
            self._left[segment.name] = left[segment.slice]


def _blend(times: dict[int, float], index: int, seconds: float) -> None:
    before = times.get(index)
    times[index] = seconds if before is None else before + LATEST * (seconds - before)


def _ceiling(bits: float) -> int:
    """⌈q · bits⌉, where what a product of decimals is above a whole number is no bit."""
    return max(1, math.ceil(bits - 1e-9))


def aqgb_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """The function that DDP calls."""
    return state.start(bucket)
