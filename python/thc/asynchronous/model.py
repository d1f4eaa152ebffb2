"""A worker's side of a model that is trained asynchronously, and a server of models in this process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from thc import _native
from thc.errors import ConfigError

__all__ = ["Asynchronous", "ModelServer", "Pulled", "Pushed", "Schedule", "Tensor"]

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pulled:
    """What a pull found."""

    running: bool
    """Whether at least one shard takes gradients."""
    waiting: int | None
    """The epoch whose full-batch gradient all shards wait for, if they do."""
    empty: bool
    """Whether the model, or the part of it on one server, has no value: it is new, or that server has lost it. Nothing can be
    pushed until a worker has called :meth:`Asynchronous.initialise`."""
    versions: list[int]
    """Pushes that each running shard has taken."""
    epochs: list[int]
    """Epochs that each running shard has completed."""
    waits: list[int]
    """The epoch whose full-batch gradient each shard waits for that does not run."""


@dataclass(frozen=True)
class Pushed:
    """What became of a push."""

    accepted_shards: int
    """How many shards accepted it."""
    delay: int
    """The most steps that others made between its pull and itself."""
    refused: list[tuple[int, str]]
    """Shards that refused it, and why: ``epoch``, ``late``, ``incarnation``, …"""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model, which has scales of its own: one for each 8192 coordinates."""

    length: int
    """How many coordinates."""
    bits: int | None = None
    """Bits of a pulled coordinate: 2 to 16, or 32 for floats; 0 freezes it, so that it is neither sent nor changed. ``None``: the model's."""
    push_bits: int | None = None
    """Bits of a pushed coordinate: 2 to 16, or 32. ``None``: the worker's ``bits``, or floats where pulls are floats."""


@dataclass(frozen=True)
class Schedule:
    """A factor of the rate, by the model's version, which is the same for all workers."""

    warmup: int = 0
    """Pushes over which it grows from 0 to 1."""
    decay: str = "constant"
    """``"constant"``, ``"linear"`` or ``"cosine"``."""
    steps: int = 0
    """The version at which it has fallen to ``floor``."""
    floor: float = 0.0
    """The least factor, 0 to 1."""


@dataclass(frozen=True)
class _Form:
    """How a gradient is pushed."""

    bits: int
    sparse: bool
    budget: float | None
    scale: float
    spans: Sequence[tuple[int, int]] | None
    tensors: list[int] | None
    behind: bool


def _secret(secret: str | None) -> str:
    found = secret if secret is not None else os.environ.get("THC_MODEL_SECRET")
    if found is None:
        raise ConfigError("the job's secret is missing: give secret, or set THC_MODEL_SECRET")
    return found


def _vector(array: npt.ArrayLike) -> Vector:
    return np.ascontiguousarray(array, dtype=np.float32)


class Asynchronous:
    """A worker's side of a model on one or several model servers (``thc-model``).

    ``server`` is ``"host:port"``, or several, over which the model is cut; ``"host:port|host:port"`` names a server and its
    spare. ``coordinates`` is its length, or its tensors (:class:`Tensor`), each of which has scales of its own, and ``rate`` the
    step size. The first worker to come makes the model; all others must say the same. Options:

    - ``secret``: of the job (default: the variable ``THC_MODEL_SECRET``), ``job`` its name, ``model`` the model's;
      ``worker`` this worker's number, below ``workers``.
    - ``model_bits`` (8): of a pulled coordinate, 2 to 16, or 32; or ``mu``: as few as condition (2) of the paper allows.
    - ``bits`` (8): of a pushed coordinate, 2 to 16, or 32; ``sparse``: made sparse first, with ``budget`` coordinates
      on average, which needs 2 to 16 bits.
    - ``momentum``: the server steps with heavy-ball momentum of this factor; ``adam``: with Adam of these β₁ and β₂, and
      ``epsilon`` (1e-8). Without: SGD.
    - ``schedule``: a :class:`Schedule` of the rate; ``delay_aware``: each gradient's rate is divided by its delay.
    - ``corrected``: SVRG's correction (Algorithm 1), ``accelerated``: momentum (Algorithm 3); both need ``epoch``, the
      pushes of an epoch. Without: plain stochastic gradients. ``accelerated`` without ``corrected`` lets steps grow without
      reducing their variance: it must be ``"uncorrected"`` then.
    - ``overlap``: workers may pull the next model before they have pushed what they computed at the last.
    - ``l1``, ``l2``, ``bounds``: the proximal step.
    - ``delay``: no gradient is taken that is older than so many steps; quick workers wait for slow ones then.
    - ``timeout`` (120 s): how long a call may go without an answer; a server may restart meanwhile.

    Raises :exc:`~thc.ModelSilentError`, :exc:`~thc.ModelRefusedError`, :exc:`~thc.ConfigError`.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        coordinates: int | Sequence[Tensor],
        rate: float,
        *,
        secret: str | None = None,
        job: str = "train",
        model: str = "model",
        worker: int = 0,
        workers: int = 64,
        model_bits: int | None = None,
        mu: float | None = None,
        bits: int = 8,
        sparse: bool = False,
        budget: float | None = None,
        corrected: bool = False,
        accelerated: bool | str = False,
        momentum: float | None = None,
        adam: tuple[float, float] | None = None,
        epsilon: float = 1e-8,
        schedule: Schedule | None = None,
        delay_aware: bool = False,
        overlap: bool = False,
        epoch: int | None = None,
        l1: float = 0.0,
        l2: float = 0.0,
        bounds: tuple[float, float] | None = None,
        delay: int | None = None,
        shard: int | None = None,
        seed: int = 0,
        timeout: float | str | None = None,
    ) -> None:
        if bits != 32 and not 2 <= bits <= 16:
            raise ConfigError(f"bits is {bits}: give 2 to 16, or 32")
        if sparse and bits == 32:
            raise ConfigError("bits is 32 with sparse: a sparse gradient has no floats; give 2 to 16, or leave sparse out")
        if budget is not None and not sparse:
            raise ConfigError(f"budget is {budget} without sparse: give sparse=True, or leave budget out")
        if model_bits is not None and model_bits != 32 and not 2 <= model_bits <= 16:
            raise ConfigError(f"model_bits is {model_bits}: give 2 to 16, or 32")
        tensors = [] if isinstance(coordinates, int) else list(coordinates)
        if not isinstance(coordinates, int):
            coordinates = sum(tensor.length for tensor in tensors)
        if tensors and budget is not None:
            raise ConfigError(f"budget is {budget} with tensors: each has its own, so leave budget out")
        if model_bits is not None and mu is not None:
            raise ConfigError("give model_bits or mu, not both")
        if momentum is not None and adam is not None:
            raise ConfigError("give momentum or adam, not both")
        if accelerated not in (False, True, "uncorrected"):
            raise ConfigError(f'accelerated is {accelerated!r}: give True, False, or "uncorrected"')
        numbers = {"rate": rate, "l1": l1, "l2": l2, "mu": mu, "momentum": momentum, "epsilon": epsilon}
        numbers |= {f"bounds[{i}]": bound for i, bound in enumerate(bounds or ())}
        numbers |= {f"adam[{i}]": beta for i, beta in enumerate(adam or ())}
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                raise ConfigError(f"{name} is {number}: give a finite number")
        for name, value, least, most in (
            ("coordinates", coordinates, 1, 2**63),
            ("workers", workers, 1, 1024),
            ("worker", worker, 0, 1023),
            ("epoch", epoch, 1, 2**32 - 1),
            ("delay", delay, 0, 2**32 - 1),
            ("shard", shard, 1, 2**32 - 1),
            ("seed", seed, 0, 2**64 - 1),
        ):
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name} is {value}: give {least} to {most}")
        for tensor in tensors:
            for name, value in (("bits", tensor.bits), ("push_bits", tensor.push_bits)):
                if value is not None and value != 32 and not 2 <= value <= 16 and (value, name) != (0, "bits"):
                    raise ConfigError(f"{name} of a tensor is {value}: give 2 to 16, or 32, or bits of 0 for a frozen one")
        optimizer: str | dict[str, Any] = "sgd"
        if momentum is not None:
            optimizer = {"momentum": {"beta": momentum}}
        elif adam is not None:
            optimizer = {"adam": {"beta1": adam[0], "beta2": adam[1], "epsilon": epsilon}}
        usual = 8 if model_bits is None else model_bits
        spec = {
            "coordinates": coordinates,
            "rate": rate,
            "corrected": corrected,
            "accelerated": bool(accelerated),
            "uncorrected": accelerated == "uncorrected",
            "optimizer": optimizer,
            "schedule": asdict(schedule or Schedule()),
            "delay_aware": delay_aware,
            "overlap": overlap,
            "tensors": [(tensor.length, usual if tensor.bits is None else tensor.bits) for tensor in tensors],
            "epoch": epoch,
            "prox": {"l1": l1, "l2": l2, "bounds": bounds},
            "delay": delay,
            "workers": workers,
            "bits": {"fixed": usual} if mu is None else {"condition": mu},
            "shard": _native.default_shard(coordinates) if shard is None else shard,
            "seed": seed,
        }
        self.coordinates = coordinates
        self.tensors = tensors
        self.overlap = overlap
        self.rate = rate
        self.corrected = corrected
        self.worker = worker
        self.bits = bits
        self.sparse = sparse
        self.budget = budget
        self._native = _native.Model(
            servers=[server] if isinstance(server, str) else list(server),
            model=model,
            spec=json.dumps(spec),
            secret=_secret(secret),
            job=job,
            worker=worker,
            seed=seed,
            timeout=timeout,
        )

    def initialise(self, x: npt.ArrayLike) -> bool:
        """Gives its first value to the model, or to the parts of it that have none: whether there was one."""
        return self._native.initialise(_vector(x))

    def pull(self, out: Vector, *, patient: bool = False) -> Pulled:
        """Overwrites ``out`` by the model; what has no value stays what was pulled last, or what ``out`` holds. ``patient``: waits, up to seconds, while an epoch's gradient is missing."""
        return Pulled(*self._native.pull(out, patient))

    def push(
        self,
        gradient: npt.ArrayLike,
        *,
        scale: float = 1.0,
        spans: Sequence[tuple[int, int]] | None = None,
        behind: bool = False,
    ) -> Pushed:
        """Sends a gradient at what was pulled last; ``scale`` is a factor of the rate. With correction it is the
        difference from the gradient at the snapshot. ``spans``, begins and ends in order: the coordinates that are in the
        step; others stay what they are, though a proximal step would move them. ``behind``: it was computed at the pull before the
        last one."""
        return Pushed(*self._native.push(_vector(gradient), self._form(scale, spans, behind)))

    def push_pull(
        self,
        gradient: npt.ArrayLike,
        out: Vector,
        *,
        scale: float = 1.0,
        spans: Sequence[tuple[int, int]] | None = None,
        behind: bool = False,
    ) -> tuple[Pushed, Pulled]:
        """:meth:`push` and then :meth:`pull`, in one round trip."""
        fate, found = self._native.push_pull(_vector(gradient), self._form(scale, spans, behind), out)
        return Pushed(*fate), Pulled(*found)

    def _form(self, scale: float, spans: Sequence[tuple[int, int]] | None, behind: bool) -> _Form:
        tensors = [tensor.push_bits or 0 for tensor in self.tensors] if self.tensors else None
        return _Form(self.bits, self.sparse, self.budget, scale, spans, tensors, behind)

    def exact(self, out: Vector) -> list[int]:
        """Overwrites ``out`` by the numbers of the model themselves, where a pull has them rounded: the version of each shard.
        It is neither a pull nor a reservation."""
        return self._native.exact(out)

    def snapshot(self, out: Vector) -> int | None:
        """Overwrites ``out`` by the snapshot, in full precision: its epoch; ``None`` if shards have different ones."""
        return self._native.snapshot(out)

    def begin(self, epoch: int, gradient: npt.ArrayLike) -> bool:
        """Gives the full-batch gradient at the snapshot of an epoch: whether it was missing."""
        return self._native.begin(epoch, _vector(gradient))

    def stats(self) -> dict[str, Any]:
        """Totals of this worker: pulls, pushes, bits of each, delays, seconds of waiting."""
        return self._native.stats()

    def server_stats(self, server: int = 0) -> dict[str, Any]:
        """What a server counts for this job."""
        found: dict[str, Any] = json.loads(self._native.server_stats(server))
        return found

    def close(self) -> None:
        """Leaves, so that nobody waits for this worker."""
        self._native.close()

    def __enter__(self) -> Asynchronous:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ModelServer:
    """A model server in this process, as the program ``thc-model`` is one of its own.

    ``state`` is the folder that keeps the models, ``durable`` (1 s) how old it may be.
    """

    def __init__(
        self,
        secret: str | None = None,
        *,
        job: str = "train",
        listen: str = "127.0.0.1:0",
        state: str | os.PathLike[str] | None = None,
        durable: float | str | None = None,
        threads: int | None = None,
        lease: float | str | None = None,
    ) -> None:
        self._native = _native.ModelServer(
            secret=_secret(secret),
            job=job,
            listen=listen,
            state=state,
            durable=durable,
            threads=threads,
            lease=lease,
        )

    @property
    def address(self) -> str:
        """``"host:port"``."""
        return self._native.address

    def stats(self) -> dict[str, Any]:
        """Totals."""
        found: dict[str, Any] = json.loads(self._native.stats_json())
        return found

    def close(self) -> None:
        """Stops, after everything was written."""
        self._native.close()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
