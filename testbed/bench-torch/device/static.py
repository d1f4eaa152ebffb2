"""What the compiler says of the kernels, without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

SM = 90
"""H100."""
REGISTERS, THREADS, SHARED = 65536, 2048, 228 * 1024
"""Of one of its multiprocessors."""


@dataclass
class Compiled:
    """One kernel, compiled."""

    name: str
    warps: int
    registers: int
    stack: int
    """Bytes that a thread keeps in local memory: spilled registers."""
    shared: int
    exchanges: int
    """How often a value changes the thread that has it: through shared memory, or shuffles in a warp."""
    fused: int
    """Multiply-adds of f32 that a thread does."""
    read: float
    written: float
    """Bytes of global memory for each coordinate, each array once."""

    @property
    def programs(self) -> int:
        """How many fit a multiprocessor at a time."""
        threads = 32 * self.warps
        by_registers = REGISTERS // (-(-self.registers // 8) * 8 * threads)
        return min(by_registers, THREADS // threads, 32, SHARED // (self.shared + 1024))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "programs": self.programs}


POINTERS = {"x": "fp32", "kept": "fp32", "left": "fp32", "packed": "u8", "numbers": "fp32", "keys": "i64", "cells": "i32", "slopes": "fp32",
            "starts": "fp32", "sums": "u8", "out": "fp32", "estimates": "fp32", "rotated": "fp32", "found": "i32", "words": "u8",
            "scales": "fp64", "factors": "fp64"}


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack."""
    import triton

    tool = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def compile_one(name: str, function: Any, warps: int, moved: tuple[float, float], pointers: dict[str, str] | None = None, **constants: Any) -> Compiled:
    """Compiles a kernel of :mod:`thc.torch.device.kernels`."""
    import triton
    from thc.torch.device import compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**POINTERS, **(pointers or {})}
    signature, aligned = {}, {}
    for at, argument in enumerate(function.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument in types:
            signature[argument] = "*" + types[argument]
            aligned[(at,)] = [["tt.divisibility", 16]]
        else:
            signature[argument] = "fp32" if argument == "limit" else "i32"
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    bound = compiled.TWICE if name.startswith("compress") and constants["FED"] else {}
    made = triton.compile(source, target=GPUTarget("cuda", SM, 32), options={"num_warps": warps, "enable_fp_fusion": False, **bound})
    registers, stack = _resources(made.asm["cubin"])
    exchanges = made.asm["ttgir"].count("ttg.convert_layout")
    return Compiled(name, warps, registers, stack, made.metadata.shared, exchanges, made.asm["ptx"].count("fma.rn.f32"), *moved)


def compile_all(only: Collection[str] = ()) -> list[Compiled]:
    """The kernels as :mod:`thc.torch.device.compiled` launches them, or those with these names."""
    from thc.torch.device import compiled, kernels

    def transform(log: int, tiles: int = 1) -> dict[str, Any]:
        return {"TILE": 1 << log, "LOG": log, "TILES": tiles, "SCALE": compiled._scale(tiles << log)}

    usual = {"END": 30.0, "WIDTH": 4, "FED": True, "WHOLE": True, "VALUES": False}
    made = []

    def add(name: str, function: Any, warps: int, moved: tuple[float, float], pointers: dict[str, str] | None = None, **constants: Any) -> None:
        if not only or name in only:
            made.append(compile_one(name, function, warps, moved, pointers, **constants))

    norm = {"D": 8192, "ROWS": compiled.ROWS, "UNROLL": compiled.UNROLL, "WHOLE": True}
    add("norms", kernels.norms, 1, (8, 0), **norm, FED=True)
    add("norms of bf16", kernels.norms, 1, (6, 0), {"x": "bf16"}, **norm, FED=True)
    warps = compiled._warps(8192)
    add("compress, 2^13", kernels.compress, warps, (8, 4.5), **transform(13), **usual)
    add("compress, 2^13, of bf16", kernels.compress, warps, (6, 4.5), {"x": "bf16"}, **transform(13), **usual)
    add("compress, 2^13, no feedback", kernels.compress, warps, (4, 0.5), **transform(13), **{**usual, "FED": False})
    for width, end in ((1, 15.0), (2, 30.0), (3, 30.0), (8, 255.0)):
        add(f"compress, 2^13, {width} bits", kernels.compress, warps, (8, 4 + width / 8), **transform(13), **{**usual, "WIDTH": width, "END": end})
    values = {**usual, "WIDTH": 8, "VALUES": True, "FED": False}
    add("compress to values, 2^13, no feedback", kernels.compress, warps, (4, 1), **transform(13), **values)
    for lane in (6, 10):
        add(f"pack, lanes of {lane}", kernels.pack, 4, (1, lane / 8), {"values": "u8", "words": "i32"}, D=8192, WORDS=-(-8192 // (32 // lane)), LANE=lane, BLOCK=1024)
    add("compress, 2^12", kernels.compress, compiled._warps(4096), (8, 4.5), **transform(12), **usual)
    add("compress, 2^10", kernels.compress, compiled._warps(1024), (8, 4.5), **transform(10), **usual)
    whole = {"PER": 1024, "WHOLE": True, "WORDS": 0}
    add("decompress, 2^13", kernels.decompress, warps, (1, 4), **transform(13), LANE=8, **whole)
    add("decompress, 2^13, to bf16", kernels.decompress, warps, (1, 2), {"out": "bf16"}, **transform(13), LANE=8, **whole)
    add("decompress, 2^13, lanes of 4", kernels.decompress, warps, (0.5, 4), **transform(13), LANE=4, **whole)
    add("decompress, 2^13, lanes of 16", kernels.decompress, warps, (2, 4), **transform(13), LANE=16, **{**whole, "PER": 512})
    add("decompress, 2^13, words of lanes of 6", kernels.decompress, warps, (0.8, 4), **transform(13), LANE=6, **{**whole, "WORDS": 1639})
    columns = {"TILE": 8192, "TILES": 128, "LOG": 7, "COLS": 64}
    add("outer, 2^20", kernels.outer, 16, (8, 4), **columns, SCALE=2.0**-10, FED=True)
    add("compress, 2^20", kernels.compress, warps, (4, 4.5), **transform(13, 128), **usual)
    add("outer back, 2^20", kernels.outer_back, 16, (4, 4), **columns, FED=True)
    add("RAW words", kernels.raw_words, 4, (8, 8), D=8192, TILE=1024, FED=True)
    add("RAW means", kernels.raw_means, 4, (4, 4), D=8192, TILE=1024)
    add("peaks", kernels.peaks, 4, (8, 0), D=8192, TILE=1024, FED=True)
    return made


def table(made: list[Compiled]) -> str:
    """Markdown."""
    lines = ["| kernel | warps | registers | spilled bytes | shared KiB | programs an SM | threads an SM | exchanges | bytes read, written a coordinate |",
             "|-|-:|-:|-:|-:|-:|-:|-:|-:|"]
    for each in made:
        lines.append(f"| {each.name} | {each.warps} | {each.registers} | {each.stack} | {each.shared / 1024:.3g} | {each.programs} | "
                     f"{32 * each.warps * each.programs} | {each.exchanges} | {each.read:g}, {each.written:g} |")
    return "\n".join(lines)
