"""The codec in plain operations of torch: the same bits as the kernels in Triton, in many passes. Importing it makes it ``device="torch"``."""

from __future__ import annotations

import math

import torch

from thc.torch.device.call import Numbers
from thc.torch.device.codec import Grid
from thc.torch.device.cut import RAW_WORDS, Run
from thc.torch.options import KERNELS

__all__ = ["NAME", "compress", "decompress", "norms", "obstacle"]

NAME = "torch"

KERNELS[NAME] = "plain"

WORD = 0xFFFF_FFFF


def _to_signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


GAMMA = _to_signed(0x9E37_79B9_7F4A_7C15)
MUL = (_to_signed(0xBF58_476D_1CE4_E5B9), _to_signed(0x94D0_49BB_1331_11EB))


def _right(z: torch.Tensor, by: int) -> torch.Tensor:
    """A shift of 64 bits that brings zeros in."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _right(z, 30)) * MUL[0]
    z = (z ^ _right(z, 27)) * MUL[1]
    return z ^ _right(z, 31)


def _keys(run: Run, key: torch.Tensor) -> torch.Tensor:
    """The keys of each partition."""
    partitions = torch.arange(run.first, run.first + run.count, device=key.device)
    return _mix((key ^ partitions) + GAMMA)


def _flip(run: Run, numbers: Numbers, x: torch.Tensor) -> torch.Tensor:
    """Signs (P29), on rows of partitions."""
    words = torch.arange(1, run.size // 64 + 1, device=x.device) * GAMMA
    words = _mix(_keys(run, numbers.keys[0]).unsqueeze(1) + words)
    bits = (words.unsqueeze(2) >> torch.arange(64, device=x.device)) & 1
    return torch.where(bits.reshape(run.count, run.size) == 1, -x, x)


def _draws(run: Run, numbers: Numbers) -> torch.Tensor:
    """The 23 random bits of each coordinate."""
    key = _keys(run, numbers.keys[1]).unsqueeze(1)
    device = key.device
    x = (torch.arange(run.size // 4, device=device) + (key & WORD)) & WORD
    x = ((x ^ (x >> 17)) * 0xED5A_D4BB) & WORD
    x = (x ^ (x >> 11)) + _right(key, 32)
    x = ((x & WORD) * 0xAC4C_1B51) & WORD
    x = ((x ^ (x >> 15)) * 0x3184_8BAB) & WORD
    x = (x ^ (x >> 14) ^ numbers.keys[2]).reshape(run.count, -1, 1, 16)
    by = (8 * torch.arange(4, device=device)).reshape(4, 1)
    return (((x >> by) | (x << (32 - by))) & 0x7F_FFFF).reshape(run.count, run.size)


def _stages(x: torch.Tensor, up: bool) -> torch.Tensor:
    """All stages of the transform, on rows: strides up from 1, or down to it."""
    rows, size = x.shape
    strides = [1 << s for s in range(size.bit_length() - 1)]
    for stride in strides if up else reversed(strides):
        pairs = x.reshape(rows, -1, 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        x = torch.stack((a + b, a - b), dim=2)
    return x.reshape(rows, size)


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a · b + c in f32, rounded once: the product is exact in f64, and a sum that is rounded to odd there is rounded right when
    it is rounded again."""
    p, c = a.double() * b.double(), c.double()
    s = p + c
    t = s - p
    lost = (p - (s - t)) + (c - t)
    bits = s.view(torch.int64)
    odd = torch.where((lost > 0) == (s > 0), bits + 1, bits - 1)
    bits = torch.where((lost != 0) & ((bits & 1) == 0), odd, bits)
    return bits.view(torch.float64).float()


def _rows(run: Run, x: torch.Tensor) -> torch.Tensor:
    """A run's coordinates in f32, a row for each partition, with zeros for padding."""
    x = x[run.offset : run.offset + run.valid].float()
    if not run.is_whole:
        x = torch.nn.functional.pad(x, (0, run.count * run.size - run.valid))
    return x.reshape(run.count, run.size)


def _gradient(run: Run, x: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    rows = _rows(run, x)
    return rows if kept is None else rows + _rows(run, kept)


def _store(run: Run, out: torch.Tensor, rows: torch.Tensor) -> None:
    out[run.offset : run.offset + run.valid] = rows.reshape(-1)[: run.valid]


def obstacle(device: torch.device) -> str:
    """Why a device cannot do this; nothing if it can."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return f"{device.type} has no f64, which norms are added up in"
    return ""


def norms(run: Run, x: torch.Tensor, kept: torch.Tensor | None, numbers: Numbers) -> None:
    """Sums of squares, or of RAW largest magnitudes, of its partitions."""
    rows = _gradient(run, x, kept)
    place = slice(run.first, run.first + run.count)
    if run.table == 0:
        numbers.peaks[place] = (rows.view(torch.int32) & 0x7FFF_FFFF).amax(1)
        return
    rows = rows.double().reshape(run.count, -1, 32)
    rows = rows * rows
    total = torch.zeros_like(rows[:, 0])
    for k in range(rows.shape[1]):
        total += rows[:, k]
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    numbers.squares[place] = total[:, 0]


def _pack(z: torch.Tensor, width: int) -> torch.Tensor:
    """Indices to bytes, the most significant bit first."""
    bits = (z.reshape(-1, 1) >> torch.arange(width - 1, -1, -1, device=z.device)) & 1
    weights = 1 << torch.arange(7, -1, -1, device=z.device)
    return (bits.reshape(-1, 8) * weights).sum(1).to(torch.uint8)


def compress(
    run: Run,
    x: torch.Tensor,
    fed: tuple[torch.Tensor, torch.Tensor] | None,
    grid: Grid | None,
    numbers: Numbers,
    packed: torch.Tensor,
) -> None:
    """Its coordinates to ``packed``, the call's indices; error feedback, before and after."""
    kept = None if fed is None else fed[0]
    v = _gradient(run, x, kept)
    place = slice(run.first, run.first + run.count)
    padded = run.count * run.size
    if grid is None:
        scale = numbers.raw[place].unsqueeze(1)
        words = (v.double() * scale).clamp(-numbers.limit, numbers.limit).round().to(torch.int32)
        packed[run.indices : run.indices + 4 * padded] = words.reshape(-1, 1).view(torch.uint8).flip(1).reshape(-1)
        if fed is not None:
            _store(run, fed[1], torch.where(scale == 0, _rows(run, fed[0]), torch.zeros_like(v)))
        return
    lo, scale, bias, step = numbers.affine[place].unbind(1)
    lo, step = lo.unsqueeze(1), step.unsqueeze(1)
    root = torch.tensor(1.0 / math.sqrt(run.size), dtype=torch.float64).float().to(x.device)
    v = _stages(_flip(run, numbers, v * root), up=False)
    q = _fma(v, scale.unsqueeze(1), bias.unsqueeze(1))
    # Comparisons send NaN to the lower end.
    q = torch.where(q > 0, q, torch.zeros_like(q))
    q = torch.where(q < grid.end, q, torch.full_like(q, grid.end))
    cell = q.to(torch.int64)
    found = grid.cells[cell]
    threshold = _fma(q, grid.slopes[cell], grid.starts[cell])
    draw = (_draws(run, numbers) | 0x3F80_0000).to(torch.int32).view(torch.float32)
    up = draw < threshold
    values = torch.where(up, (found >> 16) & 0xFF, (found >> 8) & 0xFF)
    packed[run.indices : run.indices + padded * grid.width // 8] = _pack((found & 0xFF) + up.to(torch.int32), grid.width)
    if fed is None:
        return
    point = values.float()
    v = _flip(run, numbers, _stages((v - (point * step + lo)) * root, up=True))
    _store(run, fed[1], torch.where(lo == 0, _rows(run, fed[0]), v))


def decompress(run: Run, sums: torch.Tensor, grid: Grid | None, numbers: Numbers, x: torch.Tensor) -> None:
    """Its mean to ``x``, from ``sums``, those of the call."""
    place = slice(run.first, run.first + run.count)
    padded = run.count * run.size
    if grid is None:
        packets = slice(run.packet, run.packet + padded // RAW_WORDS)
        words = sums[run.sums : run.sums + 4 * padded].reshape(-1, 4).flip(1).contiguous().view(torch.int32)
        mean = words.reshape(-1, RAW_WORDS).double() * numbers.factors[packets].unsqueeze(1)
        mean = mean.float().reshape(run.count, run.size)
        _store(run, x, torch.where(numbers.raw[place].unsqueeze(1) == 0, torch.zeros_like(mean), mean))
        return
    per_packet = 512 if grid.lane == 16 else 1024
    s = sums[run.sums : run.sums + padded * grid.lane // 8].to(torch.int32)
    if grid.lane == 16:
        s = s[0::2] << 8 | s[1::2]
    elif grid.lane == 4:
        s = torch.stack((s >> 4, s & 15), dim=1)
    step, lo = numbers.estimates[run.packet : run.packet + padded // per_packet].unbind(1)
    v = s.reshape(-1, per_packet).float() * step.unsqueeze(1) + lo.unsqueeze(1)
    root = torch.tensor(1.0 / math.sqrt(run.size), dtype=torch.float64).float().to(x.device)
    v = _flip(run, numbers, _stages(v.reshape(run.count, run.size) * root, up=True))
    _store(run, x, torch.where(numbers.affine[place, 0:1] == 0, torch.zeros_like(v), v))
