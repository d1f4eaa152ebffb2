"""Compression on a GPU: what its kernels, an all-reduce and a step of training take.

testbed/bench-torch/run device; by hand: python3 testbed/bench-torch device --help
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """The part's command."""
    parser = argparse.ArgumentParser(prog="bench device", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("target/bench-device"), help="folder for results")
    options = parser.parse_args(arguments)
    os.environ.pop("TRITON_INTERPRET", None)
    import torch
    import triton

    found: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__}
    found["times"] = times()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"results: {options.out}/results.json")
    return 0


def times() -> dict[str, Any] | None:
    """What the GPU takes, if there is one."""
    import torch

    if not torch.cuda.is_available():
        print("not run: times: no CUDA device")
        return None
    from device import measure
    from thc.torch.device import compiled

    device = torch.device("cuda")
    rows = measure.kernels(device, compiled)
    rows += [measure.calls(device, compiled, coordinates) for coordinates in (1 << 20, 6_553_600, 25_000_000)]
    rows.append(measure.steps(device, "triton"))
    for row in rows:
        speed = f", {row.bytes / row.seconds / 1e9:.0f} GB/s" if row.bytes else ""
        aim = f" (aim: at least {row.aim})" if row.aim else ""
        cpu = f"; cores: {1e3 * row.cpu:.1f} ms for {1e3 * row.cpu_yardstick:.1f}" if row.cpu and row.cpu_yardstick else ""
        times_ = f"{row.ratio:.2f} of {row.against}" if row.bytes else f"{row.ratio:.2f} times as fast as {row.against}"
        print(f"{row.name}: {1e3 * row.seconds:.3f} ms{speed}; {times_}, {1e3 * row.yardstick:.3f} ms{aim}{cpu}")
    name, driver = torch.cuda.get_device_name(device), torch.version.cuda
    return {"device": name, "cuda": driver, "rows": [row.as_dict() for row in rows]}
