"""Three families of compression: what a layer costs and loses with a parameter, and how a bucket's layers are averaged."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from thc.errors import ConfigError

__all__ = ["Carrier", "Family", "PowerSGD", "QSGD", "TopK"]


class Carrier(Protocol):
    """How tensors get from rank to rank."""

    size: int

    def mean(self, tensor: torch.Tensor, whole: bool = False) -> None:
        """Replaces the tensor by its mean over all ranks; ``whole``: without loss."""

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's tensor."""


class Layer(Protocol):
    """A layer's gradient of this step on this rank, with what was left out before; any shape."""

    name: str
    gradient: torch.Tensor


class Family(Protocol):
    """A family of compression."""

    name: str
    feedback: bool
    """Whether what is lost is added to the next step's gradients."""

    def choices(self, default: float) -> list[float]:
        """The parameters around a default that the paper tries (section 5.1), least compression last."""

    def cost(self, shape: Sequence[int], parameter: float) -> float:
        """Bytes that a rank sends for a layer."""

    def errors(self, gradient: torch.Tensor, parameters: Sequence[float]) -> list[float]:
        """Squared L2 norms of what each parameter loses of a gradient, without error feedback."""

    def average(self, layers: Sequence[Any], parameters: Sequence[float], carrier: Carrier) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer the mean over all ranks, and what this rank has sent of its own."""


def _length(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if len(shape) else 1


class QSGD:
    """Random rounding to 2^(b − 1) − 1 levels and a sign, relative to the largest of each 512 coordinates (QSGD, NeurIPS 2017,
    in buckets as CGX has them). Each rank rounds by random numbers of its own, so that errors average out; ``seed`` gives other ones."""

    name = "QSGD"
    feedback = False
    BUCKET = 512

    def __init__(self, seed: int = 0) -> None:
        # Ranks have different ones, whatever the seed: the same seed for all is what one writes.
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        self._generator = torch.Generator().manual_seed((seed << 20) + rank)
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    def choices(self, default: float) -> list[float]:
        return [float(bits) for bits in range(max(2, int(default) // 2), min(8, 2 * int(default)) + 1)]

    def cost(self, shape: Sequence[int], parameter: float) -> float:
        length = _length(shape)
        return 4 * -(-length // self.BUCKET) + -(-length * self._bits(parameter) // 8)

    @staticmethod
    def _bits(parameter: float) -> int:
        if parameter not in range(2, 9):
            raise ConfigError(f"QSGD has no {parameter:g} bits: give 2 to 8")
        return int(parameter)

    def errors(self, gradient: torch.Tensor, parameters: Sequence[float]) -> list[float]:
        buckets = self._in_buckets([gradient])
        found = []
        for parameter in parameters:
            largest, codes = self._encode(buckets, parameter)
            found.append(float((buckets - self._decode(largest, codes, parameter)).square().sum()))
        return found

    def _in_buckets(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Gradients one after the other, each filled up with zeros to whole buckets."""
        padded = torch.zeros(sum(-(-g.numel() // self.BUCKET) for g in gradients) * self.BUCKET)
        at = 0
        for gradient in gradients:
            padded[at : at + gradient.numel()] = gradient.reshape(-1)
            at += -(-gradient.numel() // self.BUCKET) * self.BUCKET
        return padded.view(-1, self.BUCKET)

    def _places(self, lengths: tuple[int, ...]) -> torch.Tensor:
        """Where coordinates are in buckets: zeros that fill up are not sent."""
        if lengths not in self._known:
            starts = np.cumsum([0, *(-(-length // self.BUCKET) * self.BUCKET for length in lengths)])
            self._known[lengths] = torch.cat([torch.arange(n) + int(at) for n, at in zip(lengths, starts)])
        return self._known[lengths]

    def _encode(self, buckets: torch.Tensor, parameter: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The largest of each bucket, and codes of 0 to 2·levels."""
        levels = (1 << (self._bits(parameter) - 1)) - 1
        largest = buckets.abs().amax(1, keepdim=True)
        scaled = buckets * (levels / largest.clamp_min(1e-38))
        codes = (scaled + torch.rand(scaled.shape, generator=self._generator)).floor_().clamp_(-levels, levels) + levels
        return largest, codes.to(torch.uint8)

    def _decode(self, largest: torch.Tensor, codes: torch.Tensor, parameter: float) -> torch.Tensor:
        levels = (1 << (self._bits(parameter) - 1)) - 1
        return (codes.float() - levels) * (largest / levels)

    def average(self, layers: Sequence[Any], parameters: Sequence[float], carrier: Carrier) -> list[tuple[torch.Tensor, torch.Tensor]]:
        # Layers of the same width are quantized together.
        together = {p: [i for i, each in enumerate(parameters) if each == p] for p in sorted(set(parameters))}
        parts, own = [], {}
        for parameter, members in together.items():
            gradients = [layers[i].gradient for i in members]
            largest, codes = self._encode(self._in_buckets(gradients), parameter)
            own[parameter] = self._decode(largest, codes, parameter)
            sent = codes.view(-1)[self._places(tuple(g.numel() for g in gradients))]
            parts += [largest.numpy().reshape(-1).view(np.uint8), _pack(sent.numpy(), self._bits(parameter))]
        every = [each.numpy() for each in carrier.gather(torch.from_numpy(np.concatenate(parts)))]
        found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        at = 0
        for parameter, members in together.items():
            lengths, bits = tuple(layers[i].gradient.numel() for i in members), self._bits(parameter)
            scales, packed = 4 * len(own[parameter]), -(-sum(lengths) * bits // 8)
            mean = torch.zeros_like(own[parameter])
            for theirs in every:
                largest = torch.from_numpy(theirs[at : at + scales].copy().view(np.float32))[:, None]
                codes = torch.zeros(mean.shape, dtype=torch.uint8)
                sent = torch.from_numpy(_unpack(theirs[at + scales : at + scales + packed], bits, sum(lengths)))
                codes.view(-1)[self._places(lengths)] = sent
                mean += self._decode(largest, codes, parameter)
            at += scales + packed
            mean /= carrier.size
            begin = 0
            for i in members:
                shape, length = layers[i].gradient.shape, layers[i].gradient.numel()
                found[i] = tuple(t.view(-1)[begin : begin + length].view(shape) for t in (mean, own[parameter]))
                begin += -(-length // self.BUCKET) * self.BUCKET
        return [found[i] for i in range(len(layers))]


def _pack(codes: Any, bits: int) -> Any:
    """Codes to bytes, ``bits`` each: eight codes are ``bits`` bytes, the first in the lowest bits."""
    length = codes.size
    groups = np.zeros((-(-length // 8), 8), dtype=np.uint8)
    groups.reshape(-1)[:length] = codes
    words = np.zeros(len(groups), dtype="<u8")
    for place in range(8):
        words |= groups[:, place].astype("<u8") << np.uint64(bits * place)
    packed = words.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)
    return packed[: -(-length * bits // 8)]


def _unpack(packed: Any, bits: int, length: int) -> Any:
    padded = np.zeros((-(-length // 8), bits), dtype=np.uint8)
    padded.reshape(-1)[: packed.size] = packed
    wide = np.zeros((len(padded), 8), dtype=np.uint8)
    wide[:, :bits] = padded
    words = wide.reshape(-1).view("<u8")
    codes = np.empty((len(padded), 8), dtype=np.uint8)
    for place in range(8):
        codes[:, place] = (words >> np.uint64(bits * place)) & np.uint64((1 << bits) - 1)
    return codes.reshape(-1)[:length]


class TopK:
    """The largest coordinates and their places, 8 bytes each; what is left waits for the next step."""

    name = "TopK"
    feedback = True

    def choices(self, default: float) -> list[float]:
        return [default * tenth / 10 for tenth in range(1, 101) if default * tenth / 10 <= 1]

    def _kept_count(self, length: int, parameter: float) -> int:
        if not 0 < parameter <= 1:
            raise ConfigError(f"TopK keeps a share above 0 and up to 1 of a layer, not {parameter:g}")
        return max(1, round(parameter * length))

    def cost(self, shape: Sequence[int], parameter: float) -> float:
        length = _length(shape)
        return min(8 * self._kept_count(length, parameter), 4 * length)

    def errors(self, gradient: torch.Tensor, parameters: Sequence[float]) -> list[float]:
        squares = gradient.reshape(-1).double().square().sort(descending=True).values
        left = squares.flip(0).cumsum(0).flip(0)
        length = squares.numel()
        kept = [self._kept_count(length, parameter) for parameter in parameters]
        return [0.0 if self._sends_whole(length, k) else float(left[k]) for k in kept]

    @staticmethod
    def _sends_whole(length: int, kept: int) -> bool:
        """Whether all coordinates without places take no more."""
        return 2 * kept >= length

    def average(self, layers: Sequence[Any], parameters: Sequence[float], carrier: Carrier) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts, own = [], []
        for layer, parameter in zip(layers, parameters):
            flat = layer.gradient.reshape(-1)
            kept = self._kept_count(flat.numel(), parameter)
            if self._sends_whole(flat.numel(), kept):
                own.append(flat.clone())
                parts.append(flat)
                continue
            places = flat.abs().topk(kept, sorted=False).indices
            mine = torch.zeros_like(flat)
            mine[places] = flat[places]
            own.append(mine)
            parts += [flat[places], torch.from_numpy(places.to(torch.int32).numpy().view(np.float32))]
        every = carrier.gather(torch.cat(parts))
        found, at = [], 0
        for layer, parameter, mine in zip(layers, parameters, own):
            length = layer.gradient.numel()
            kept = self._kept_count(length, parameter)
            mean = torch.zeros(length)
            whole = self._sends_whole(length, kept)
            for theirs in every:
                if whole:
                    mean += theirs[at : at + length]
                else:
                    places = torch.from_numpy(theirs[at + kept : at + 2 * kept].numpy().view(np.int32)).long()
                    mean[places] += theirs[at : at + kept]
            at += length if whole else 2 * kept
            shape = layer.gradient.shape
            found.append(((mean / carrier.size).view(shape), mine.view(shape)))
        return found


class PowerSGD:
    """Two thin factors of each matrix by one power iteration that goes on from step to step (PowerSGD, NeurIPS 2019). Both are
    linear in the gradients, so whatever averages can carry them; vectors travel as they are."""

    name = "PowerSGD"
    feedback = True

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._right: dict[str, torch.Tensor] = {}

    def choices(self, default: float) -> list[float]:
        return [float(rank) for rank in range(max(1, int(default) // 2), 2 * int(default) + 1)]

    @staticmethod
    def _sides(shape: Sequence[int]) -> tuple[int, int]:
        return (int(shape[0]), _length(shape[1:])) if len(shape) > 1 else (1, _length(shape))

    def _rank(self, shape: Sequence[int], parameter: float) -> int:
        """Columns of the factors; 0 if they are no smaller than the matrix."""
        if parameter < 1 or parameter != int(parameter):
            raise ConfigError(f"PowerSGD has ranks 1, 2, …, not {parameter:g}")
        rows, columns = self._sides(shape)
        rank = min(int(parameter), rows, columns)
        return rank if rank * (rows + columns) < rows * columns else 0

    def cost(self, shape: Sequence[int], parameter: float) -> float:
        rank = self._rank(shape, parameter)
        return 4 * (rank * sum(self._sides(shape)) if rank else _length(shape))

    def errors(self, gradient: torch.Tensor, parameters: Sequence[float]) -> list[float]:
        ranks = [self._rank(gradient.shape, parameter) for parameter in parameters]
        most = max(ranks)
        if most == 0:
            return [0.0] * len(ranks)
        # The basis of a lower rank is the first columns of that of a higher one: one iteration tells of all.
        matrix = gradient.reshape(self._sides(gradient.shape)).double()
        right = torch.randn(matrix.shape[1], most, generator=torch.Generator().manual_seed(self._seed), dtype=torch.float64)
        right = torch.linalg.qr(matrix.T @ (matrix @ right)).Q
        basis = torch.linalg.qr(matrix @ right).Q
        kept = (basis.T @ matrix).square().sum(1).cumsum(0)
        total = float(matrix.square().sum())
        return [max(0.0, total - float(kept[rank - 1])) if rank else 0.0 for rank in ranks]

    def _start(self, name: str, columns: int, rank: int) -> torch.Tensor:
        """The right factor of the step before, with as many columns as it shall have now."""
        before = self._right.get(name)
        have = 0 if before is None else before.shape[1]
        if before is not None and have >= rank:
            return before[:, :rank]
        generator = torch.Generator().manual_seed(self._seed ^ zlib.crc32(f"{name}/{have}".encode()))
        fresh = torch.randn(columns, rank - have, generator=generator)
        return fresh if before is None else torch.cat([before, fresh], 1)

    def average(self, layers: Sequence[Any], parameters: Sequence[float], carrier: Carrier) -> list[tuple[torch.Tensor, torch.Tensor]]:
        ranks = [self._rank(layer.gradient.shape, parameter) for layer, parameter in zip(layers, parameters)]
        matrices = [layer.gradient.reshape(self._sides(layer.gradient.shape)) for layer in layers]
        low = [(layer, matrix, rank) for layer, matrix, rank in zip(layers, matrices, ranks) if rank]
        # As they are: what has no factors.
        whole = [matrix.clone() for matrix, rank in zip(matrices, ranks) if not rank]
        _mean_of(whole, carrier, whole=True)
        starts = [self._start(layer.name, matrix.shape[1], rank) for layer, matrix, rank in low]
        # All layers' factors go in one call, and of about one size: a carrier that rounds them loses of each alike. The scales
        # are of what all ranks have had in common.
        scales = [max(float(start.norm()), 1e-30) for start in starts]
        lefts = [matrix @ (start / scale**2) for (_, matrix, _), start, scale in zip(low, starts, scales)]
        _mean_of(lefts, carrier)
        bases = [torch.linalg.qr(left).Q for left in lefts]
        own = [matrix.T @ basis for (_, matrix, _), basis in zip(low, bases)]
        rights = [right / scale for right, scale in zip(own, scales)]
        _mean_of(rights, carrier)
        rights = [right * scale for right, scale in zip(rights, scales)]
        factors, plain = iter(zip(low, bases, own, rights)), iter(whole)
        found = []
        for layer, rank in zip(layers, ranks):
            shape = layer.gradient.shape
            if not rank:
                found.append((next(plain).view(shape), layer.gradient))
                continue
            _, basis, mine, right = next(factors)
            self._right[layer.name] = right
            found.append(((basis @ right.T).view(shape), (basis @ mine.T).view(shape)))
        return found


def _mean_of(tensors: Sequence[torch.Tensor], carrier: Carrier, whole: bool = False) -> None:
    """Means over all ranks, in one call."""
    if not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    carrier.mean(flat, whole)
    at = 0
    for tensor in tensors:
        tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()
