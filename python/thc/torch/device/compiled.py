"""Launches the kernels of Triton, run by run."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from typing import Any

import torch

from thc.torch.device import kernels
from thc.torch.device.call import Numbers
from thc.torch.device.codec import Grid
from thc.torch.device.cut import RAW_WORDS, Run

TILE = 8192
"""Most coordinates that one program transforms."""

ROWS = 128 if kernels.INTERPRETED.value else 1
"""Partitions whose norms one program takes: on a GPU no chain of additions shall wait for another's."""
UNROLL = 32
"""Loads of a partition's norm that are under way at a time."""

ELEMENTWISE = 1024
"""Coordinates of a program where nothing is transformed."""


_EXACT: dict[str, Any] = {"enable_fp_fusion": False}
"""A product and a sum are two roundings."""

_ALONE: Any = threading.Lock() if kernels.INTERPRETED.value else contextlib.nullcontext()
"""The interpreter does one kernel at a time."""


Place = tuple[torch.Tensor, int]
"""A tensor, and at which element of it an argument begins."""


class _Kept:
    """Kernels that were launched before. What Triton looks up for each launch anew, and what torch takes to make a tensor of a
    tensor's end, is longer than most launches run."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
        self.trusted = not kernels.INTERPRETED.value
        """Until a kernel kept does something else than at first (:func:`obstacle`)."""

    def launch(self, kernel: Any, programs: int, places: tuple[Place, ...], numbers: tuple[Any, ...], constants: dict[str, Any]) -> None:
        addresses = [tensor.data_ptr() + at * tensor.element_size() for tensor, at in places]
        # What a kernel is compiled for, beside constants: a device, types, which addresses are multiples of 16.
        kinds = [(tensor.dtype, address & 15 == 0) for (tensor, _), address in zip(places, addresses)]
        # Numbers are not specialized, but have 64 bits if 32 are not enough.
        wide = [isinstance(each, int) and each >> 31 for each in numbers]
        key = (kernel, places[0][0].device, *kinds, *wide, *constants.values())
        found = self._made.get(key)
        if found is None:
            made = _compile(kernel, programs, places, numbers, constants)
            self._made[key] = made, tuple(constants[name] for name in kernel.arg_names if name in constants)
            return
        made, values = found
        made[programs, 1, 1](*addresses, *numbers, *values)


_KEPT = _Kept()


def _compile(kernel: Any, programs: int, places: tuple[Place, ...], numbers: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    """Launches a kernel as Triton has it done; returns what was launched."""
    tensors = [tensor if at == 0 else tensor[at:] for tensor, at in places]
    with _ALONE:
        return kernel[(programs,)](*tensors, *numbers, **constants, **_EXACT)


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Arguments are tensors or places in such, then numbers."""
    places = tuple((each, 0) if isinstance(each, torch.Tensor) else each for each in arguments if not isinstance(each, (int, float)))
    (_KEPT.launch if _KEPT.trusted else _compile)(kernel, programs, places, arguments[len(places) :], constants)


@functools.cache
def _scale(size: int) -> float:
    """1/√d as f32."""
    return float(torch.tensor(1.0 / math.sqrt(size), dtype=torch.float64).float())


def _warps(tile: int) -> int:
    """Threads have 16 coordinates of a tile, or fewer of a short one: with 32 they would need so many registers that only one
    program at a time fits a multiprocessor."""
    return max(tile // 512, 4)


TWICE: dict[str, int] = {"maxnreg": 64}
"""So that two programs of 16 warps fit a multiprocessor of NVIDIA's: one computes while the other loads. That is worth more than
the few registers that are spilled."""


@functools.cache
def _bounds(device: torch.device) -> dict[str, int]:
    """For kernels that would take more registers."""
    return TWICE if device.type == "cuda" and torch.version.hip is None and not kernels.INTERPRETED.value else {}


def _log(number: int) -> int:
    return number.bit_length() - 1


def obstacle(device: torch.device) -> str:
    """Why kernels cannot be compiled for a device, or run there; nothing if they can."""
    try:
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            x, found = torch.ones(1024, device=device), torch.zeros(2, dtype=torch.int32, device=device)
            _launch(kernels.peaks, 1, x, x, found, 0, 1024, D=1024, TILE=1024, FED=False)
            if _KEPT.trusted:
                try:
                    _launch(kernels.peaks, 1, x, x, found, 1, 1024, D=1024, TILE=1024, FED=False)
                except Exception:  # this Triton's are launched in another way
                    _KEPT.trusted = False
                _KEPT.trusted &= int(found[1]) == 0x3F800000
            return "" if int(found[0]) == 0x3F800000 else "a kernel in Triton gave a wrong answer"
    except Exception as error:  # whatever a compiler or a driver raises
        return f"a kernel in Triton failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def norms(run: Run, x: torch.Tensor, kept: torch.Tensor | None, numbers: Numbers) -> None:
    """Sums of squares, or of RAW largest magnitudes, of its partitions."""
    fed, place = kept is not None, (x, run.offset)
    fed_place = place if kept is None else (kept, run.offset)
    if run.table == 0:
        tile = min(run.size, ELEMENTWISE)
        _launch(kernels.peaks, run.count, place, fed_place, numbers.peaks, run.first, run.valid, D=run.size, TILE=tile, FED=fed)
        return
    _launch(
        kernels.norms, -(-run.count // ROWS), place, fed_place, numbers.squares, run.first, run.count, run.valid,
        D=run.size, ROWS=ROWS, UNROLL=UNROLL, FED=fed, WHOLE=run.is_whole, num_warps=1,
    )


def compress(
    run: Run,
    x: torch.Tensor,
    fed: tuple[torch.Tensor, torch.Tensor] | None,
    grid: Grid | None,
    numbers: Numbers,
    packed: torch.Tensor,
) -> None:
    """Its coordinates to ``packed``, the call's indices; error feedback, before and after."""
    place, out = (x, run.offset), (packed, run.indices)
    kept, left = (place, place) if fed is None else ((fed[0], run.offset), (fed[1], run.offset))
    if grid is None:
        tile = min(run.size, ELEMENTWISE)
        _launch(
            kernels.raw_words, run.count * run.size // tile, place, kept, left, out, numbers.raw, run.first, run.valid, numbers.limit,
            D=run.size, TILE=tile, FED=fed is not None,
        )
        return
    tile = min(run.size, TILE)
    tiles = run.size // tile
    scale = _scale(run.size)
    source, target = place, left
    if tiles > 1:
        source = target = (torch.empty(run.count * run.size, dtype=torch.float32, device=x.device), 0)
        columns = tile // tiles
        _launch(
            kernels.outer, run.count * (tile // columns), place, kept, source, numbers.keys, run.first, run.valid,
            TILE=tile, TILES=tiles, LOG=_log(tiles), COLS=columns, SCALE=scale, FED=fed is not None, num_warps=16,
        )
    _launch(
        kernels.compress, run.count * tiles,
        source, kept, target, out, numbers.affine, numbers.keys, grid.cells, grid.slopes, grid.starts, run.first, run.valid,
        TILE=tile, LOG=_log(tile), TILES=tiles, SCALE=scale, END=grid.end, WIDTH=grid.width,
        FED=fed is not None, WHOLE=run.is_whole, num_warps=_warps(tile), **({} if fed is None else _bounds(x.device)),
    )
    if tiles > 1 and fed is not None:
        _outer_back(run, source, kept, left, numbers, tiles, fed=True)


def _outer_back(run: Run, rotated: Place, kept: Place, out: Place, numbers: Numbers, tiles: int, fed: bool) -> None:
    columns = TILE // tiles
    _launch(
        kernels.outer_back, run.count * (TILE // columns), rotated, kept, out, numbers.affine, numbers.keys, run.first, run.valid,
        TILE=TILE, TILES=tiles, LOG=_log(tiles), COLS=columns, FED=fed, num_warps=16,
    )


def decompress(run: Run, sums: torch.Tensor, grid: Grid | None, numbers: Numbers, x: torch.Tensor) -> None:
    """Its mean to ``x``, from ``sums``, those of the call."""
    out, place = (x, run.offset), (sums, run.sums)
    if grid is None:
        tile = min(run.size, ELEMENTWISE)
        _launch(
            kernels.raw_means, run.count * run.size // tile, place, out, numbers.raw, numbers.factors, run.first, run.packet, run.valid,
            D=run.size, TILE=tile,
        )
        return
    tile = min(run.size, TILE)
    tiles = run.size // tile
    target = out if tiles == 1 else (torch.empty(run.count * run.size, dtype=torch.float32, device=x.device), 0)
    _launch(
        kernels.decompress, run.count * tiles,
        place, target, numbers.affine, numbers.estimates, numbers.keys, run.first, run.packet, run.valid,
        TILE=tile, LOG=_log(tile), TILES=tiles, SCALE=_scale(run.size), LANE=grid.lane,
        PER=512 if grid.lane == 16 else 1024, WHOLE=run.is_whole and tiles == 1, num_warps=_warps(tile),
    )
    if tiles > 1:
        _outer_back(run, target, target, out, numbers, tiles, fed=False)


assert RAW_WORDS == 256, "raw_means has it as a number"
