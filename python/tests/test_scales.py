"""Scales by the codec's kernels are as they are defined, bit for bit, and those of torch's operations, which a rank on a GPU has.

The definition is NumPy's here: torch's square root of f32 on a CPU is MKL's, which is not always the nearest number.
"""

from __future__ import annotations

import pytest
from conftest import needs

needs("torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from thc import ConfigError, _native  # noqa: E402
from thc.torch.compression.scales import derive_on_device, learn_on_device  # noqa: E402

LENGTHS = [*range(140), 1000, 4097, 65_536, 300_007]
POWERS = (0.5, 0.75, 1.0)


def numbers(length: int, seed: int) -> torch.Tensor:
    """Of very different sizes; zeros, and what is larger than any gradient."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(length, generator=generator) * torch.exp(20 * torch.randn(length, generator=generator))
    found[torch.rand(length, generator=generator) < 0.1] = 0.0
    found[torch.rand(length, generator=generator) < 0.02] = float("inf")
    found[torch.rand(length, generator=generator) < 0.02] = -1e30
    return found


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def reference(square: np.ndarray, power: float, floor: float) -> np.ndarray:
    """The scales of a parameter."""
    total = square
    while len(total) > 1:
        half, odd = len(total) // 2, total[-1:] if len(total) % 2 else total[:0]
        total = total[:half] + total[half : 2 * half]
        total[: len(odd)] += odd
    usual = total[0] / np.float32(len(square))
    if not usual > 0:
        return np.ones_like(square)
    share = np.sqrt(square / usual + np.float32(floor))
    if power == 0.75:
        share = np.sqrt(share)
        share = share * np.sqrt(share)
    elif power == 0.5:
        share = np.sqrt(share)
    return share * np.sqrt(usual)


@pytest.mark.parametrize("length", LENGTHS)
def test_learning(length: int) -> None:
    square = torch.zeros(length)
    for step in range(4):
        mean, memory = numbers(length, 10 * length + step), min(0.9, step / (step + 1))
        scale = numbers(length, step).abs().clamp(1e-20, 1e3) if step else None
        known, other, restored = square.clone(), square.clone(), mean.clone()
        learn_on_device(known, restored, scale, memory)
        _native.scales_learn(other.numpy(), mean.numpy(), None if scale is None else scale.numpy(), memory)
        assert same(known, other) and same(mean, restored), step
        square = known


@pytest.mark.parametrize("length", LENGTHS)
def test_scales_of_mean_squares(length: int) -> None:
    for at, square in enumerate((numbers(length, length).clamp(-1e18, 1e18).square(), torch.zeros(length), torch.full((length,), 1e36))):
        for power in POWERS:
            for floor in (0.03**2, 0.1 / 3):
                scale, other = torch.ones(length + 2), torch.ones(length + 2)
                padded = torch.nn.functional.pad(square, (1, 1))
                _native.scales_derive(padded.numpy(), scale.numpy(), [(1, length + 1, floor)], power)
                derive_on_device(square, power, floor, other[1 : length + 1])
                assert torch.allclose(scale, other, rtol=1e-6, atol=0), (at, power, floor)
                if length:
                    with np.errstate(over="ignore"):
                        other[1 : length + 1] = torch.from_numpy(reference(square.numpy(), power, floor))
                    assert same(scale, other), (at, power, floor)


def test_what_does_not_fit_is_refused() -> None:
    two, three = torch.ones(2).numpy(), torch.ones(3).numpy()
    with pytest.raises(ConfigError, match="the mean"):
        _native.scales_learn(two, three, None, 0.9)
    with pytest.raises(ConfigError, match="the scales"):
        _native.scales_learn(three, three.copy(), two, 0.9)
    for places in ([(0, 3, 0.1)], [(2, 1, 0.1)]):
        with pytest.raises(ValueError, match="not a part of"):
            _native.scales_derive(two, two.copy(), places, 0.75)
    with pytest.raises(ValueError, match="0.5, 0.75 or 1.0"):
        _native.scales_derive(two, two.copy(), [(0, 2, 0.1)], 0.3)
