"""No circles between the modules of the package, what only types need included: each is read after those that it uses."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import thc

ROOT = Path(thc.__file__).parent


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")]):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    used: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            within = (f"{node.module}.{alias.name}" for alias in node.names)
            used.update(name if name in modules else node.module for name in within)
    return used & modules.keys()


def test_modules_use_one_another_in_one_direction() -> None:
    modules = _modules()
    assert len(modules) > 70
    graph = {name: _imports(path, modules) - {name} for name, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()
