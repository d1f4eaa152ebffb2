"""Commands of docs/operate.md, as they stand there. ``<!-- run NAME... -->`` before a block makes it a part of these scripts: commands of `sh`, and
of `console` what follows ``$``; ``<!-- run NAME: before FILE -->`` puts a block of `toml` before a file's text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import HANG
from servers import REPOSITORY, program

PAGE = REPOSITORY / "docs" / "operate.md"
BLOCK = re.compile(r"<!-- run ([a-z ]+)(?:: before (\S+))? -->\n```(\w+)\n(.*?)\n```\n", re.DOTALL)

# A reader takes a moment between two commands: one that fails is tried again. What was started ends with the script.
PROLOGUE = """
set -eu
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
ip link set lo up
again() { for second in $(seq 60); do eval "$1" && return; sleep 0.5; done; echo "it does not come to: $1" >&2; exit 1; }
listens() { [ -n "$(ss --no-header --listening --tcp --numeric "sport = :$1")" ]; }
"""


def scripts() -> dict[str, list[str]]:
    """The scripts, by name: each a list of steps."""
    found: dict[str, list[str]] = {}
    for names, file, language, text in BLOCK.findall(PAGE.read_text()):
        if file:
            assert language == "toml", text
            step = f"{{ cat <<'TOML'\n{text}\nTOML\ncat {file}; }} >new.toml && mv new.toml {file}"
        elif language == "console":
            commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            assert commands, text
            step = "\n".join(command if command.startswith("export ") or command.endswith("&") else f"again '{command}'" for command in commands)
        else:
            assert language == "sh", text
            step = text
        if "thc-controller run --config" in step:
            step += "\nagain 'listens 9700'"
        for name in names.split():
            found.setdefault(name, []).append(step)
    return found


@pytest.mark.parametrize("name", sorted(scripts()))
def test_its_commands_do_what_it_says(name: str, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("unshare", "ip", "ss", "openssl")):
        pytest.skip("not run: commands of docs/operate.md: they need root, util-linux, iproute2 and openssl")
    programs = program("thc-controller")
    assert programs is not None
    # In a network of its own, so the ports are free.
    script = PROLOGUE + "\n".join(f"echo '== {number}' >&2\n{step}" for number, step in enumerate(scripts()[name]))
    if name == "first":
        # Counters are read once a second.
        script += """\nagain 'thc-controller counters train | grep "IN SUMS"'\nagain 'thc-controller job list | grep running'\n"""
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        ["unshare", "--net", "bash", "script"], cwd=tmp_path, timeout=HANG, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{programs.parent}:{os.environ['PATH']}", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    if name == "first":
        # What the page shows, but for numbers that are others each time.
        for part in ("connected", "job train, number 1, made ", "1: b=4 g=122 p=0.006324", "256 for gradients, 256 for norms", "IN SUMS", "running"):
            assert part in done.stdout, (part, done.stdout)
