"""Commands of docs/operate.md, as they stand there. ``<!-- run NAME... -->`` before a block makes it a part of these scripts: commands of `sh`, and
of `console` what follows ``$``; ``<!-- run NAME: before FILE -->`` puts a block of `toml` before a file's text;
``<!-- run NAME: fails -->`` is for a command that is refused in the words below it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import HANG
from servers import REPOSITORY, program

PAGE = REPOSITORY / "docs" / "operate.md"
BLOCK = re.compile(r"<!-- run ([a-z ]+)(?:: (fails)|: before (\S+))? -->\n```(\w+)\n(.*?)\n```\n", re.DOTALL)

# A reader takes a moment between two commands: one that fails is tried again. What was started ends with the script.
PROLOGUE = """
set -eu
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
ip link set lo up
again() { for try in $(seq 600); do eval "$1" && return; sleep 0.5; done; echo "it does not come to: $1" >&2; exit 1; }
listens() { [ -n "$(ss --no-header --listening --tcp --numeric "sport = :$1")" ]; }
"""


def scripts() -> dict[str, list[str]]:
    """The scripts, by name: each a list of steps."""
    found: dict[str, list[str]] = {}
    for names, fails, file, language, text in BLOCK.findall(PAGE.read_text()):
        if file:
            assert language == "toml", text
            step = f"{{ cat <<'TOML'\n{text}\nTOML\ncat {file}; }} >new.toml && mv new.toml {file}"
        elif language == "console":
            commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            assert commands, text
            if fails:
                (command,) = commands
                says = "\n".join(line for line in text.splitlines() if not line.startswith("$ "))
                step = f"if said=$({command} 2>&1); then exit 1; fi\n[ \"$said\" = {shlex.quote(says)} ] || {{ echo \"$said\"; exit 1; }}"
                for name in names.split():
                    found.setdefault(name, []).append(step)
                continue
            step = "\n".join(command if command.startswith("export ") or command.endswith("&") else f"again '{command}'" for command in commands)
        else:
            assert language == "sh", text
            step = text
        if language == "console" and " running " in text:
            # A session begins in a moment.
            step += """\nagain 'thc-controller job list | grep running'"""
        if "thc-controller run --config" in step:
            # Its target is there in a moment; one that wants certificates says so.
            step += "\nagain 'listens 9700'\nagain 'thc-controller target list 2>&1 | grep -E \"connected|TLS\"'"
        for name in names.split():
            found.setdefault(name, []).append(step)
    return found


def shown(name: str) -> list[str]:
    """The lines that the page shows as printed by a script, but for those with numbers, which are others each time."""
    blocks = (text for names, fails, _, language, text in BLOCK.findall(PAGE.read_text()) if language == "console" and not fails and name in names.split())
    lines = (line for text in blocks for line in text.splitlines() if not line.startswith("$ "))
    return [" ".join(line.split()) for line in lines if not re.search(r"\d", line)]


@pytest.mark.parametrize("name", sorted(scripts()))
def test_its_commands_do_what_it_says(name: str, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("unshare", "ip", "ss", "openssl")):
        pytest.skip("not run: commands of docs/operate.md: they need root, util-linux, iproute2 and openssl")
    programs = program("thc-controller")
    assert programs is not None
    # In a network of its own, so the ports are free.
    script = PROLOGUE + "\n".join(f"echo '== {number}' >&2\n{step}" for number, step in enumerate(scripts()[name]))
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        ["unshare", "--net", "bash", "script"], cwd=tmp_path, timeout=HANG, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{programs.parent}:{os.environ['PATH']}", "NO_COLOR": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert not [line for line in shown(name) if line not in printed], done.stdout
    if name == "first":
        # What the page shows, but for numbers that are others each time.
        for part in ("connected", "job train, number 1, created ", "1: b=4 g=122 p=0.006324", "expected NMSE", "256 for gradients, 256 for norms", "running"):
            assert part in done.stdout, (part, done.stdout)
