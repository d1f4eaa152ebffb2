"""What Triton's compiler makes of the kernels for an H100, without one: a line of JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from typing import Any

import triton
from thc.torch.device import compiled, kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

POINTERS = {"x": "fp32", "kept": "fp32", "left": "fp32", "packed": "u8", "numbers": "fp32", "keys": "i64", "cells": "i32", "slopes": "fp32",
            "starts": "fp32", "sums": "u8", "out": "fp32", "estimates": "fp32", "rotated": "fp32", "found": "i32", "words": "u8",
            "scales": "fp64", "factors": "fp64"}


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack, which are spilled registers, of a thread."""
    tool = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def compile_kernel(function: Any, warps: int, options: dict[str, Any], **constants: Any) -> dict[str, int]:
    """Compiles a kernel; ``fused`` counts the multiply-adds of f32 that a thread does."""
    signature, aligned = {}, {}
    for at, argument in enumerate(function.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument in POINTERS:
            signature[argument] = "*" + POINTERS[argument]
            aligned[(at,)] = [["tt.divisibility", 16]]
        else:
            signature[argument] = "fp32" if argument == "limit" else "i32"
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "enable_fp_fusion": False, **options})
    registers, stack = _resources(made.asm["cubin"])
    # A multiprocessor has 65,536 registers and room for 2048 threads.
    programs = min(65536 // (-(-registers // 8) * 8 * 32 * warps), 2048 // (32 * warps), 228 * 1024 // (made.metadata.shared + 1024))
    return {"warps": warps, "stack": stack, "fused": made.asm["ptx"].count("fma.rn.f32"), "programs": programs}


def main() -> None:
    transform = {"TILE": 8192, "LOG": 13, "TILES": 1, "SCALE": compiled._scale(8192)}
    warps = compiled._warps(8192)
    print(json.dumps([
        compile_kernel(kernels.norms, 1, {}, D=8192, ROWS=compiled.ROWS, UNROLL=compiled.UNROLL, WHOLE=True, FED=True),
        compile_kernel(kernels.compress, warps, compiled.TWICE, **transform, END=30.0, WIDTH=4, FED=True, WHOLE=True),
        compile_kernel(kernels.decompress, warps, {}, **transform, LANE=8, PER=1024, WHOLE=True),
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
