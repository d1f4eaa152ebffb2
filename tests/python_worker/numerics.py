"""The numbers of docs/protocol.md: partitions (P4), values (P5, P19), signs to RAW (P28 to P32)."""

import math
import struct

import numpy as np

from wire import mix

G = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1


def cut(length, block):
    """The partitions of a tensor, full ones of 2^block (P4): where each begins, what it holds, its d."""
    parts, offset = [], 0
    while offset < length:
        rest = length - offset
        d = min(max(1 << (rest.bit_length() - 1), 1 << 10), 1 << block)
        parts.append((offset, min(d, rest), d))
        offset += min(d, rest)
    return parts


def sign_key(seed, call, partition):
    """P29."""
    key = mix(seed + G & MASK64)
    key = mix((key ^ call) + G & MASK64)
    return mix((key ^ partition) + G & MASK64)


def sign_words(key, first, count):
    """P29: word(first), word(first + 1), …"""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.arange(first + 1, first + 1 + count, dtype=np.uint64) * np.uint64(G)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def negate(x, key):
    """Flips the signs of P29, in place."""
    words = sign_words(key, 0, -(-len(x) // 64)).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(x)]
    x.view(np.uint32)[:] ^= bits.astype(np.uint32) << np.uint32(31)


def stage(x, stride):
    """One stage of butterflies (P30), in place."""
    pairs = x.reshape(-1, 2, stride)
    a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
    pairs[:, 0], pairs[:, 1] = a + b, a - b


def scale(d):
    return np.float32(1.0 / math.sqrt(d))


def forward(x, d, key):
    """P30: the transform of some coordinates, padded to d."""
    y = np.zeros(d, np.float32)
    y[: len(x)] = x
    y *= scale(d)
    negate(y, key)
    stride = d // 2
    while stride:
        stage(y, stride)
        stride //= 2
    return y


def inverse(y, key):
    """P30: back, padding included."""
    x = y * scale(len(y))
    stride = 1
    while stride < len(x):
        stage(x, stride)
        stride *= 2
    negate(x, key)
    return x


def norm(x):
    """‖x‖ of P5."""
    return np.float32(math.sqrt(float(np.sum(np.square(x.astype(np.float64))))))


def float_of(bits):
    """The f32 of these bits."""
    return struct.unpack(">f", struct.pack(">I", bits))[0]


def fma(a, b, c):
    """a · b + c of f32, rounded once: the product of two is exact in f64, and so is all but the last bits of the sum."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


class Table:
    """A lookup table and what follows from it (P6, P31)."""

    def __init__(self, values, t_p):
        self.values = np.array(list(values), np.int64)
        self.granularity = int(self.values[-1])
        self.t_p = t_p
        # By cell of the grid, the greatest index whose value is not above it.
        self.lower = np.searchsorted(self.values, np.arange(self.granularity + 1), side="right") - 1
        gaps = np.append(np.diff(self.values), 1)
        self.slope = (1 / gaps).astype(np.float32)
        self.start = (1 - self.values * self.slope.astype(np.float64)).astype(np.float32)
        self.slope[-1] = self.start[-1] = 0

    def range(self, maximum, d):
        """M for ℓ."""
        return np.float32(self.t_p / math.sqrt(d) * float(maximum))

    def indices(self, x, m, u):
        """What is sent for transformed coordinates; u are random numbers below 2^23."""
        width = 2.0 * float(m)
        scale = np.float32(min(self.granularity / width, float(np.finfo(np.float32).max)))
        bias = np.float32(float(m) * float(scale))
        q = np.clip(fma(x, scale, bias), np.float32(0), np.float32(self.granularity))
        z = self.lower[q.astype(np.int64)]
        t = fma(q, self.slope[z], self.start[z])
        return (z + (1 + u / (1 << 23) < t)).astype(np.uint8)

    def residual(self, x, m, indices):
        """What indices do not send of transformed coordinates, for error feedback."""
        unit = np.float32(2.0 * float(m) / self.granularity)
        return x - (self.values[indices].astype(np.float32) * unit + (-m))

    def step(self, m, count):
        """The distance of two sums of so many workers that differ by one (P31)."""
        return np.float32(2.0 * float(m) / (self.granularity * count))

    def estimates(self, sums, m, count):
        """Coordinates of the transformed mean from sums."""
        return sums.astype(np.float32) * self.step(m, count) + (-m)


def pack(indices, width):
    """DATA's payload (P2): bits one behind the other, the first on top."""
    bits = indices[:, None] >> np.arange(width - 1, -1, -1) & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def unpack(payload, width):
    """The indices of DATA's payload (P2), or sums (P44)."""
    bits = np.unpackbits(np.frombuffer(payload, np.uint8)).reshape(-1, width)
    return bits.astype(np.int64) @ (1 << np.arange(width - 1, -1, -1))


def raw_exponent(maximum, workers):
    """s of P5."""
    e = math.frexp(maximum)[1]
    return 30 - e - (workers - 1).bit_length()


def raw_words(x, s, workers):
    """RAW's payload (P32)."""
    limit = 2.0 ** (30 - (workers - 1).bit_length())
    return np.clip(np.rint(x.astype(np.float64) * 2.0**s), -limit, limit).astype(">i4").tobytes()


def raw_mean(payload, s, count):
    """The mean from RAW_RESULT's payload (P32)."""
    return (np.frombuffer(payload, ">i4").astype(np.float64) * (1.0 / (2.0**s * count))).astype(np.float32)
