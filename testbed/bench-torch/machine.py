"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone


def machine() -> dict[str, object]:
    """What it ran on."""
    cpu = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    import torch

    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory), "kernel": platform.release(),
            "python": platform.python_version(), "torch": torch.__version__, "load_before": os.getloadavg()[0],
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}
