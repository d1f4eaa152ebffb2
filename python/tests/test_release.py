"""A torch that is too old is refused with both versions, before anything else fails."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import needs
from patience import HANG
from servers import REPOSITORY

needs("torch")

import thc  # noqa: E402
import torch  # noqa: E402
from thc.torch.release import OLDEST, check_release  # noqa: E402


def test_the_package_asks_for_the_same() -> None:
    asked = re.search(r'"torch>=([\d.]+)"', (REPOSITORY / "python" / "pyproject.toml").read_text())
    assert asked and tuple(map(int, asked[1].split("."))) == OLDEST


def test_without_torch_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None; import thc.torch"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG).stderr
    assert "thc.torch needs PyTorch, which is not installed: pip install 'torch>=2.4'" in said.splitlines()[-1]


@pytest.mark.parametrize("version", ["2.4.0", "2.4.1+cu121", "2.10.0a0+git1234567", "3.0", torch.__version__])
def test_newer_ones_are_taken(version: str) -> None:
    check_release(version)


@pytest.mark.parametrize("version", ["1.13.1", "2.3.1+cpu", "2.0.0a0"])
def test_older_ones_are_refused(version: str) -> None:
    with pytest.raises(thc.ConfigError, match=f"torch 2.4 or newer, and this is torch {re.escape(version)}: pip install"):
        check_release(version)


def test_importing_says_so() -> None:
    program = "import torch; torch.__version__ = '2.3.1'; import thc.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and said == (
        "thc.errors.ConfigError: thc.torch needs torch 2.4 or newer, and this is torch 2.3.1: pip install 'torch>=2.4'"
    )
