"""How pictures of benchmarks begin and are saved. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402


def begin(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A picture of so many inches, and its panels, by row and column."""
    pyplot.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "thc"})
    return pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False, **options)


def save(figure: Any, path: Path, below: float = 0) -> None:
    """Writes the picture, with this share of its height left free below the panels; the same numbers make the same file."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
