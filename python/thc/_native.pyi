from collections.abc import Sequence
from os import PathLike
from typing import Any, final

import numpy as np
import numpy.typing as npt

@final
class Group:
    def __new__(
        cls,
        *,
        ps: str,
        job: int | None = None,
        worker: int | None = None,
        cookie: int | str | None = None,
        bind: str | None = None,
        join_timeout: float | str | None = None,
        timeout: float | str | None = None,
        min_rto: float | str | None = None,
        seed: int | None = None,
        threads: int | None = None,
        recv_buffer: int | None = None,
        send_buffer: int | None = None,
        inject: str | None = None,
        inject_seed: int | None = None,
        controller_ca: str | PathLike[str] | None = None,
        controller_cert: str | PathLike[str] | None = None,
        controller_key: str | PathLike[str] | None = None,
        io: str | None = None,
        dpdk: str | None = None,
        world: int | None = None,
    ) -> Group: ...
    @property
    def workers(self) -> int: ...
    def seat(self) -> int: ...
    def membership(self) -> tuple[int, int, int, bool]: ...
    def boundary(self) -> tuple[int, int, int, bool] | None: ...
    def allreduce(self, array: npt.NDArray[np.float32], mode: str, feedback: int | None) -> None: ...
    def allreduce_async(self, array: npt.NDArray[np.float32], mode: str, feedback: int | None) -> Handle: ...
    def allreduce_plan(
        self, array: npt.NDArray[np.float32], plan: list[tuple[int, int | None]], feedback: int | None
    ) -> None: ...
    def allreduce_plan_async(
        self, array: npt.NDArray[np.float32], plan: list[tuple[int, int | None]], feedback: int | None
    ) -> Handle: ...
    def stats(self) -> dict[str, Any]: ...
    def parameters(self) -> dict[str, Any]: ...
    def rejoin(self) -> None: ...
    def save_feedback(self) -> dict[int, bytes]: ...
    def restore_feedback(self, key: int, length: int, saved: bytes) -> None: ...
    def reset_feedback(self, key: int) -> None: ...
    def close(self) -> None: ...

    def packed_layout(
        self, plan: list[tuple[int, int | None]], piece: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def allreduce_packed(
        self,
        plan: list[tuple[int, int | None]],
        feedback: int | None,
        piece: int,
        norms: npt.NDArray[np.float32],
        sums: list[Memory],
    ) -> Packed: ...

@final
class Memory:
    def __new__(cls, bytes: int) -> Memory: ...
    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def free(self) -> bool: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class Packed:
    @property
    def number(self) -> int: ...
    @property
    def keys(self) -> tuple[int, int]: ...
    def ready(self) -> bool: ...
    def numbers(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]: ...
    def send(self, piece: int, indices: Memory) -> None: ...
    def receive(self) -> tuple[int, tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]] | None: ...

@final
class Handle:
    def done(self) -> bool: ...
    def wait(self, out: npt.NDArray[np.float32]) -> None: ...

@final
class Reserved:
    def __new__(cls, listen: str, *, recv_buffer: int | None = None, send_buffer: int | None = None) -> Reserved: ...
    @property
    def address(self) -> str: ...

@final
class Server:
    def __new__(
        cls,
        *,
        workers: int,
        cookie: int | str,
        job: int,
        listen: str,
        quorum: int | None = None,
        bits: int | None = None,
        granularity: int | None = None,
        fraction: float | str | None = None,
        lane: int | None = None,
        down: int | None = None,
        tables: Sequence[str] | None = None,
        slots: int | None = None,
        norm_slots: int | None = None,
        block: int | None = None,
        policy: str | None = None,
        deadline: float | str | None = None,
        seed: int | str | None = None,
        shards: int | None = None,
        pin: Sequence[int] | None = None,
        busy_poll: bool | None = None,
        recv_buffer: int | None = None,
        send_buffer: int | None = None,
        memory_limit: int | None = None,
        inject: str | None = None,
        inject_seed: int | None = None,
        share: int | None = None,
        shares: Sequence[str] | None = None,
        reserved: Reserved | None = None,
    ) -> Server: ...
    @property
    def address(self) -> str: ...
    def stats_json(self) -> str: ...
    def close(self, linger: float | str) -> None: ...

def read_config(path: str | PathLike[str]) -> dict[str, Any]: ...

@final
class Model:
    def __new__(
        cls,
        *,
        servers: Sequence[str],
        model: str,
        coordinates: int,
        rate: float,
        secret: str,
        job: str,
        worker: int,
        workers: int,
        model_bits: int | None,
        mu: float | None,
        corrected: bool,
        accelerated: bool,
        epoch: int | None,
        l1: float,
        l2: float,
        bounds: tuple[float, float] | None,
        delay: int | None,
        shard: int | None,
        seed: int,
        timeout: float | str | None,
    ) -> Model: ...
    def initialise(self, array: npt.NDArray[np.float32]) -> bool: ...
    def begin(self, epoch: int, array: npt.NDArray[np.float32]) -> bool: ...
    def pull(
        self, array: npt.NDArray[np.float32], patient: bool
    ) -> tuple[bool, int | None, bool, list[int], list[int]]: ...
    def snapshot(self, array: npt.NDArray[np.float32]) -> int | None: ...
    def push(
        self,
        gradient: npt.NDArray[np.float32],
        bits: int,
        sparse: bool,
        budget: float | None,
        zeros: bool,
        scale: float,
    ) -> tuple[int, int, list[tuple[int, str]]]: ...
    def push_pull(
        self,
        gradient: npt.NDArray[np.float32],
        bits: int,
        sparse: bool,
        budget: float | None,
        zeros: bool,
        scale: float,
        array: npt.NDArray[np.float32],
    ) -> tuple[tuple[int, int, list[tuple[int, str]]], tuple[bool, int | None, bool, list[int], list[int]]]: ...
    def stats(self) -> dict[str, Any]: ...
    def server_stats(self, server: int) -> str: ...
    def close(self) -> None: ...

@final
class ModelServer:
    def __new__(
        cls,
        *,
        secret: str,
        job: str,
        listen: str,
        state: str | PathLike[str] | None,
        durable: float | str | None,
        threads: int | None,
        lease: float | str | None,
    ) -> ModelServer: ...
    @property
    def address(self) -> str: ...
    def stats_json(self) -> str: ...
    def close(self) -> None: ...

def adapt_solve(
    costs: npt.NDArray[np.float64], errors: npt.NDArray[np.float64], bound: float, steps: int | None
) -> tuple[list[int], float, float, float]: ...
def adapt_price(
    costs: npt.NDArray[np.float64], errors: npt.NDArray[np.float64], choices: Sequence[int]
) -> tuple[list[int], float, float, float]: ...
def adapt_thc_nmse(
    bits: int, granularity: int | None, fraction: float | None, workers: int, lane: int
) -> tuple[float, int, float, float]: ...
def adapt_thc_bytes(coordinates: int, bits: int | None, lane: int, block: int) -> float: ...
def adapt_fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]: ...
def adapt_ratio_first(least: float, size: float, bandwidth: float, left: float | None) -> float: ...
def adapt_ratio_second(least: float, size: float, bandwidth: float, left: float) -> float | None: ...
def tfp_take(array: npt.NDArray[np.float32], first: int, bits: int) -> bytes: ...
def tfp_put(taken: bytes, first: int, bits: int, array: npt.NDArray[np.float32]) -> None: ...
@final
class Bandwidth:
    def __new__(cls) -> Bandwidth: ...
    def note(self, bytes: float, seconds: float) -> None: ...
    def get(self) -> float | None: ...

@final
class Accordion:
    def __new__(cls, eta: float) -> Accordion: ...
    def look(self, norms: Sequence[float]) -> list[bool]: ...
    def restart(self) -> None: ...

@final
class ThresholdTable:
    def __new__(cls) -> ThresholdTable: ...
    def raw(self, size: int, seconds: float) -> None: ...
    def compressed(self, size: int, seconds: float, processing: float) -> None: ...
    def rows(self) -> list[tuple[int, float, float, float]]: ...
    def threshold(self, before: int | None) -> int | None: ...
    def changed(self, size: int, seconds: float, share: float) -> bool: ...
    @staticmethod
    def agreed(tables: Sequence[ThresholdTable], before: int | None) -> int | None: ...
