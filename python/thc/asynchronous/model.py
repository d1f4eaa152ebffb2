"""A worker's side of a model that is trained asynchronously, and a server of models in this process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thc import _native
from thc.errors import ConfigError

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pulled:
    """What a pull found."""

    running: bool
    """Whether at least one shard takes gradients."""
    waiting: int | None
    """The epoch whose full-batch gradient all shards wait for, if they do."""
    empty: bool
    """Whether the model, or a part of it, has no value: it is new, or the server has lost it. Nothing can be
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
    """Bits of a pulled coordinate: 2 to 16, or 32 for floats, in which it is pushed, too. ``None``: the model's."""


@dataclass(frozen=True)
class ModelSpec:
    """What a model is. The first worker to come makes it; all others must say the same."""

    coordinates: int | Sequence[Tensor]
    """Its length, or its tensors, each of which has scales of its own."""
    rate: float
    """The step size η; a push may scale it."""
    workers: int = 64
    """How many workers it has at most: their numbers are below this."""
    bits: int = 8
    """Bits of a pulled coordinate: 2 to 16, or 32 for floats."""
    mu: float | None = None
    """In place of ``bits``: each pull has as few as condition (2) of the paper allows with this μ."""
    corrected: bool = False
    """SVRG's correction (Algorithm 1); without it gradients are plain stochastic ones. It needs ``epoch``."""
    accelerated: bool = False
    """Momentum of Algorithm 3, which needs ``corrected``."""
    epoch: int | None = None
    """The pushes of an epoch."""
    momentum: float | None = None
    """The server steps with heavy-ball momentum of this factor."""
    adam: tuple[float, float] | None = None
    """The server steps with Adam of these β₁ and β₂, and ε = 1e-8."""
    l1: float = 0.0
    """λ₁ of the proximal step of λ₁‖x‖₁ + ½λ₂‖x‖²."""
    l2: float = 0.0
    """λ₂ of it; with Adam it is AdamW's weight decay."""
    bounds: tuple[float, float] | None = None
    """The least and the largest value of a coordinate."""
    delay: int | None = None
    """A gradient that is older than so many steps is refused."""
    seed: int = 0
    """The seed of the rounding of pulls."""

    def __post_init__(self) -> None:
        numbers = {"rate": self.rate, "l1": self.l1, "l2": self.l2, "mu": self.mu, "momentum": self.momentum}
        numbers |= {f"bounds[{i}]": bound for i, bound in enumerate(self.bounds or ())}
        numbers |= {f"adam[{i}]": beta for i, beta in enumerate(self.adam or ())}
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                raise ConfigError(f"{name} is {number}: give a finite number")
        for name, value, least, most in (
            ("coordinates", self.length, 1, 2**63),
            ("workers", self.workers, 1, 1024),
            ("bits", self.bits, 2, 32),
            ("epoch", self.epoch, 1, 2**32 - 1),
            ("delay", self.delay, 0, 2**32 - 1),
            ("seed", self.seed, 0, 2**64 - 1),
        ):
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name} is {value}: give {least} to {most}")
        for tensor in self.tensors:
            if tensor.bits is not None and not 2 <= tensor.bits <= 32:
                raise ConfigError(f"bits of a tensor is {tensor.bits}: give 2 to 16, or 32")
        if self.momentum is not None and self.adam is not None:
            raise ConfigError("give momentum or adam, not both")

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The model's tensors; none if it is given by its length."""
        return () if isinstance(self.coordinates, int) else self.coordinates

    @property
    def length(self) -> int:
        """The number of coordinates."""
        return self.coordinates if isinstance(self.coordinates, int) else sum(tensor.length for tensor in self.coordinates)

    def _json(self) -> str:
        optimizer: str | dict[str, Any] = "sgd"
        if self.momentum is not None:
            optimizer = {"momentum": {"beta": self.momentum}}
        elif self.adam is not None:
            optimizer = {"adam": {"beta1": self.adam[0], "beta2": self.adam[1], "epsilon": 1e-8}}
        return json.dumps({
            "coordinates": self.length,
            "rate": self.rate,
            "corrected": self.corrected,
            "accelerated": self.accelerated,
            "optimizer": optimizer,
            "tensors": [(tensor.length, self.bits if tensor.bits is None else tensor.bits) for tensor in self.tensors],
            "epoch": self.epoch,
            "prox": {"l1": self.l1, "l2": self.l2, "bounds": self.bounds},
            "delay": self.delay,
            "workers": self.workers,
            "bits": {"fixed": self.bits} if self.mu is None else {"condition": self.mu},
            "shard": _native.default_shard(self.length),
            "seed": self.seed,
        })


@dataclass(frozen=True)
class _Form:
    """How a gradient is pushed."""

    bits: int
    sparse: bool
    budget: float | None
    scale: float


def _secret(secret: str | None) -> str:
    found = secret if secret is not None else os.environ.get("THC_MODEL_SECRET")
    if found is None:
        raise ConfigError("the job's secret is missing: give secret, or set THC_MODEL_SECRET")
    return found


def _vector(array: npt.ArrayLike) -> Vector:
    return np.ascontiguousarray(array, dtype=np.float32)


class Asynchronous:
    """A worker's side of a model on a model server (``thc-model``).

    ``server`` is ``"host:port"``; ``spec`` says what the model is. Options:

    - ``secret``: of the job (default: the variable ``THC_MODEL_SECRET``), ``job`` its name, ``model`` the model's;
      ``worker`` this worker's number, below ``spec.workers``.
    - ``bits`` (8): of a pushed coordinate, 2 to 16, or 32; ``sparse``: made sparse first, with ``budget`` coordinates
      on average, which needs 2 to 16 bits.
    - ``timeout`` (120 s): how long a call may go without an answer; a server may restart meanwhile.

    Raises :exc:`~thc.ModelSilentError`, :exc:`~thc.ModelRefusedError`, :exc:`~thc.ConfigError`.
    """

    def __init__(
        self,
        server: str,
        spec: ModelSpec,
        *,
        secret: str | None = None,
        job: str = "train",
        model: str = "model",
        worker: int = 0,
        bits: int = 8,
        sparse: bool = False,
        budget: float | None = None,
        timeout: float | str | None = None,
    ) -> None:
        if bits != 32 and not 2 <= bits <= 16:
            raise ConfigError(f"bits is {bits}: give 2 to 16, or 32")
        if sparse and bits == 32:
            raise ConfigError("bits is 32 with sparse: a sparse gradient has no floats; give 2 to 16, or leave sparse out")
        if budget is not None and (not sparse or spec.tensors):
            raise ConfigError(f"budget is {budget}: it goes with sparse=True, and without tensors, which have one each")
        if not 0 <= worker < spec.workers:
            raise ConfigError(f"worker is {worker}: give 0 to {spec.workers - 1}")
        self.spec = spec
        self.worker = worker
        self.bits = bits
        self.sparse = sparse
        self.budget = budget
        self._native = _native.Model(
            server=server,
            model=model,
            spec=spec._json(),
            secret=_secret(secret),
            job=job,
            worker=worker,
            seed=spec.seed,
            timeout=timeout,
        )

    def initialise(self, x: npt.ArrayLike) -> bool:
        """Gives its first value to the model, or to the parts of it that have none: whether there was one."""
        return self._native.initialise(_vector(x))

    def pull(self, out: Vector, *, patient: bool = False) -> Pulled:
        """Overwrites ``out`` by the model; what has no value stays what was pulled last, or what ``out`` holds. ``patient``: waits, up to seconds, while an epoch's gradient is missing."""
        return Pulled(*self._native.pull(out, patient))

    def push(self, gradient: npt.ArrayLike, *, scale: float = 1.0) -> Pushed:
        """Sends a gradient at what was pulled last; ``scale`` is a factor of the rate. With correction it is the
        difference from the gradient at the snapshot."""
        return Pushed(*self._native.push(_vector(gradient), self._form(scale)))

    def push_pull(self, gradient: npt.ArrayLike, out: Vector, *, scale: float = 1.0) -> tuple[Pushed, Pulled]:
        """:meth:`push` and then :meth:`pull`, in one round trip."""
        pushed, pulled = self._native.push_pull(_vector(gradient), self._form(scale), out)
        return Pushed(*pushed), Pulled(*pulled)

    def _form(self, scale: float) -> _Form:
        return _Form(self.bits, self.sparse, self.budget, scale)

    def exact(self, out: Vector) -> list[int]:
        """Overwrites ``out`` by the numbers of the model themselves, where a pull has them rounded: the version of each shard.
        Later pulls and pushes do not change."""
        return self._native.exact(out)

    def snapshot(self, out: Vector) -> int | None:
        """Overwrites ``out`` by the snapshot, in full precision: its epoch; ``None`` if shards have different ones."""
        return self._native.snapshot(out)

    def begin(self, epoch: int, gradient: npt.ArrayLike) -> bool:
        """Gives the full-batch gradient at the snapshot of an epoch: whether it was missing."""
        return self._native.begin(epoch, _vector(gradient))

    def stats(self) -> dict[str, Any]:
        """Totals of this worker: pulls, pushes, bits of each, delays."""
        return self._native.stats()

    def server_stats(self) -> dict[str, Any]:
        """What the server counts for this job."""
        found: dict[str, Any] = json.loads(self._native.server_stats())
        return found

    def close(self) -> None:
        """Closes the connections."""
        self._native.close()

    def __enter__(self) -> Asynchronous:
        return self

    def __exit__(self, *_: object) -> None:
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
    ) -> None:
        self._native = _native.ModelServer(
            secret=_secret(secret),
            job=job,
            listen=listen,
            state=state,
            durable=durable,
            threads=threads,
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

    def __exit__(self, *_: object) -> None:
        self.close()
