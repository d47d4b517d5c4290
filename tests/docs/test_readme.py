"""The commands of README, in a copy of the checkout on a machine that has Python alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Block, blocks

_README = [block for block in blocks() if block.page == "README.md"]
_COMMANDS = [block for block in _README if block.language == "sh" and "pip install '.[" in block.code]
_LINKED = 'pip() { uv pip "$@"; }\n'
"""uv links the gigabytes of torch, where pip copies them; both read the same arguments."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the tracked files, as `git clone` makes it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def typed(script: str, checkout: Path) -> str:
    """Return what a shell printed that was given a script; it must succeed."""
    outer = {"VIRTUAL_ENV", "PYTHONPATH", "CONDA_PREFIX"}
    environment = {name: value for name, value in os.environ.items() if name not in outer and name[:8] != "OTEL_RL_"}
    environment |= {"UV_CONSTRAINT": ".ci/constraints.txt", "PIP_CONSTRAINT": ".ci/constraints.txt", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-ec", f"{_LINKED if shutil.which('uv') else ''}{script}"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _of(extra: str) -> Block:
    (block,) = [block for block in _COMMANDS if f".[{extra}]" in block.code]
    return block


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_quick_start(checkout: Path) -> None:
    """The package is installed, the loop is recorded, the run is looked at, and its columns are read."""
    code = "\n".join(block.code for block in _README if block.language == "python" and not block.how)
    (checkout / "hello.py").write_text(code)
    look = "otel-rl top --once\notel-rl report\n"
    printed = typed(f"{_of('look').code}python hello.py\n{look}", checkout)

    assert "step 2  loss 0.333 " in printed
    assert "[1.         0.5        0.33333333]" in printed
    assert "hello" in printed.partition("└──────────┴")[2]
    assert [*checkout.glob("runs/hello/*/report.html")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo(checkout: Path) -> None:
    """The demo is installed, and trains."""
    printed = typed(_of("demo").code, checkout)

    assert "otel-rl top" in printed
    assert [*checkout.glob("runs/*/*/archive/*/rows/*.parquet")]
