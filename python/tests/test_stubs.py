"""The stubs of the compiled module are true, and the package is typed throughout."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG
import thc

HERE = Path(thc.__file__).parent
if importlib.util.find_spec("mypy") is None:
    pytest.skip("not run: Python has no mypy (pip install mypy)", allow_module_level=True)


def run(*command: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (HERE / "py.typed").is_file() and (HERE / "_native.pyi").is_file()


def test_the_stubs_are_those_of_the_compiled_module(tmp_path: Path) -> None:
    # What Python 3.11 gives every class by itself is not worth a line in the stubs.
    run("mypy.stubtest", "thc._native", "--ignore-missing-stub", folder=tmp_path)


def test_mypy_finds_nothing_in_the_package(tmp_path: Path) -> None:
    config = Path(__file__).resolve().parents[1] / "pyproject.toml"
    run("mypy", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), "-p", "thc", folder=tmp_path)


def test_a_users_program_is_checked_against_the_package(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text("import thc, numpy as np\ng = thc.Group('host:1')\ng.allreduce(np.ones(3, np.float32))\n")
    run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "good.py", folder=tmp_path)
    bad = tmp_path / "bad.py"
    bad.write_text("import thc\ng = thc.Group('host:1', jobs=3)\ng.allreduce('text')\n")
    with pytest.raises(AssertionError, match="jobs"):
        run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "bad.py", folder=tmp_path)


def test_options_of_wrap_are_checked_in_a_users_program(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: Python has no torch (pip install torch)")
    program = tmp_path / "program.py"
    text = "import thc.torch\nfrom torch.nn.parallel import DistributedDataParallel\n\n\ndef train(model: DistributedDataParallel) -> None:\n    thc.torch.wrap(model, {})\n"
    check = ("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py")
    program.write_text(text.format('exclude=["*.bias"], check_replicas=100, join=thc.torch.Join(rails=False, server={"quorum": 7}, timeout=20)'))
    run(*check, folder=tmp_path)
    for wrong, what in (("excludes=[]", "excludes"), ("compression=thc.torch.Compression(min_size='small')", "min_size"), ("join=thc.torch.Join(rails=3)", "rails")):
        program.write_text(text.format(wrong))
        with pytest.raises(AssertionError, match=what):
            run(*check, folder=tmp_path)


@pytest.mark.parametrize("kind", ["Compression", "Join", "Adapt"])
def test_each_option_is_explained_where_help_shows_it(kind: str) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: Python has no torch (pip install torch)")
    import thc.torch

    options = getattr(thc.torch, kind)
    for field in dataclasses.fields(options):
        assert f"- ``{field.name}``: " in options.__doc__, field.name


def test_options_take_no_more_than_a_screen() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: Python has no torch (pip install torch)")
    import thc.torch

    text = pydoc.render_doc(thc.torch.wrap, renderer=pydoc.plaintext)
    assert text.count("\n") <= 30 and "compression: 'Compression' = Compression(), join: 'Join' = Join()" in text
    assert "77" not in repr(thc.torch.Join(cookie=77, port=9)) and len(inspect.signature(thc.torch.wrap).parameters) <= 9
