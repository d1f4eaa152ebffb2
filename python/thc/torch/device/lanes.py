"""All-reduces that a device compresses and a process group adds up, in lanes."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.collective import WORD, CollectiveGroup
from thc.torch.device.call import Call
from thc.torch.device.codec import DeviceCodec, Grid
from thc.torch.device.cut import RAW_WORDS, Run, Sizes

PIECE = 28
"""log2 of the coordinates that are added up at a time: a bucket is one all-reduce, and buckets are under way beside each other."""
ESTIMATED = 1024
"""Coordinates that kernels read one estimate for."""


def _sizes_of(grids: dict[int, Grid | None]) -> Sizes:
    """Values are a byte each, in no memory of their own if lanes are bytes; sums are in words; RAW is words both ways."""

    def sizes(table: int, size: int) -> tuple[int, int, int]:
        grid = grids[table]
        if grid is None:
            return WORD * size, WORD * size, size // RAW_WORDS
        return 0 if grid.lane == 8 else size, WORD * grid.words(size), size // ESTIMATED

    return sizes


class _LanesCall(Call):
    """Nothing of it is ever on the host but norms."""

    _codec: LanesCodec

    def _prepare(self) -> None:
        self._call: Any = None
        self._told = torch.empty(0, dtype=torch.int32)
        self._words = self._told
        self._work: Any = None

    def submit(self) -> None:
        if self._measured is not None:
            self._measured.synchronize()
        norms = self._numbers.norms(*self._norms)
        group = self._codec.collective
        self._call, told = group._codec.begin_measured(self._cut.plan, norms, self._feedback)
        self._told = torch.from_numpy(told)
        self._work = dist.all_reduce(self._told, op=dist.ReduceOp.MAX, group=group._norms, async_op=True)

    def feed(self) -> None:
        """Makes the words and begins to add them up. What goes wrong :meth:`finish` tells."""
        try:
            self._work.wait()
            self._compress()
        except BaseException as error:  # told by finish
            self._error = error
        self._fed_all.set()

    def _compress(self) -> None:
        codec, cut, numbers = self._codec, self._cut, self._numbers
        native = codec.collective._codec
        native.settle(self._call, self._told.numpy())
        keys, (affine, raw), (estimates, factors) = native.numbers(self._call)
        with codec.on_stream():
            numbers.tell(keys, affine, raw)
            numbers.tell_estimates(slice(None), np.repeat(estimates, cut.packets_of, axis=0), np.repeat(factors, cut.packets_of))
            self._words = torch.empty(cut.sums // WORD, dtype=torch.int32, device=codec.device)
            values = torch.empty(cut.indices, dtype=torch.uint8, device=codec.device)
            for run in cut.runs:
                grid = codec.grid(run.table)
                if grid is not None and grid.lane == 8:
                    # Bytes are the words already.
                    straight = dataclasses.replace(run, indices=run.sums)
                    codec.kernels.compress(straight, self._x, self._fed, grid, numbers, self._words.view(torch.uint8))
                    continue
                codec.kernels.compress(run, self._x, self._fed, grid, numbers, values)
                self._pack(run, grid, values)
            self._work = dist.all_reduce(self._words, group=codec.words, async_op=True)

    def _pack(self, run: Run, grid: Grid | None, values: torch.Tensor) -> None:
        """A run's values to its words."""
        if grid is not None:
            self._codec.kernels.pack(run, grid, values, self._words)
            return
        count = WORD * run.size * run.count
        self._words.view(torch.uint8)[run.sums : run.sums + count] = _reverse_bytes(values[run.indices : run.indices + count])

    def finish(self) -> Any:
        self._fed_all.wait()
        group, call, self._call = self._codec.collective, self._call, None
        try:
            if self._error is not None:
                raise self._error
            with self._codec.on_stream():
                self._work.wait()
                self._land()
        except BaseException as error:
            # A call that is not ended leaves error feedback as it was.
            del call
            group.count_failure()
            if isinstance(error, RuntimeError):
                raise errors.NetworkError(f"the process group failed: {error}") from error
            raise
        finally:
            self._work = None
            self._told = self._words = torch.empty(0, dtype=torch.int32)
        group._codec.end(call)
        group.note(self._x.numel(), 2 * (self._cut.sums // WORD + self._cut.partitions + 2))
        return self._mark()

    def _land(self) -> None:
        codec = self._codec
        sums = self._words.view(torch.uint8)
        for run in self._cut.runs:
            grid = codec.grid(run.table)
            if grid is None:
                place = sums[run.sums : run.sums + WORD * run.size * run.count]
                place.copy_(_reverse_bytes(place))
            codec.kernels.decompress(run, sums, grid, self._numbers, self._x)
        if self._feedback is not None:
            codec.commit_feedback(self._feedback)


class LanesCodec(DeviceCodec):
    """Averages tensors of one device over the ranks of a :class:`thc.torch.CollectiveGroup`, all of which do so.

    Norms are compared by the host, lanes are added up where the tensors are. The bits are those of the group's own calls."""

    calls = _LanesCall

    def __init__(self, group: BaseGroup, device: torch.device, kernels: ModuleType) -> None:
        super().__init__(group, device, kernels, PIECE)
        assert isinstance(group, CollectiveGroup), "only sums in lanes need no server"
        self.collective = group
        self._grids = {0: None, **{table.id: Grid.from_table(table, device, tells_values=True) for table in self._tables}}
        self._sizes = _sizes_of(self._grids)
        self.words = group.words_on(device)
        """What adds them up."""


def _reverse_bytes(words: torch.Tensor) -> torch.Tensor:
    """The bytes of each word in the other order: RAW kernels have them as packets do."""
    return words.view(-1, WORD).flip(1).reshape(-1)
