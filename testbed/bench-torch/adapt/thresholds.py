"""SlimGC's communication threshold table on shaped links (its Fig. 6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import links
from crew import Crew, Failed, find_server

SIZES = [1 << power for power in range(8, 23, 2)]
RATES = (1.0, 10.0)
ROUNDS = 10


def measure(workers: int, folder: Path, say: Callable[[str], None]) -> list[dict[str, Any]] | None:
    """A table for each rate; nothing, and a line that says why, where it cannot be had."""
    why, program = links.why_not(), find_server()
    if why is None and program is None:
        why = "thc-ps not found (cargo build --release -p thc-ps, or THC_PS_PROGRAM=PATH)"
    if why is not None:
        say(f"not run: thresholds: {why}")
        return None
    found = []
    with links.Network(workers) as network:
        network.shape(RATES[0])
        try:
            with Crew(workers, program, folder / "thresholds", network) as crew:
                for rate in RATES:
                    network.shape(rate)
                    answer = crew.ask(120, do="thresholds", sizes=SIZES, rounds=ROUNDS)[0]
                    found.append({"rate": rate, **answer})
                    say(f"threshold at {rate:g} Gb/s: {answer['threshold']} coordinates")
        except Failed as failure:
            say(f"not run: thresholds: {failure}")
            return None
    return found
