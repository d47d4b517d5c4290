"""No input is a fault of a reader: seeds, inputs that once failed, and some seconds of new ones for each target."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import samples
from tests.fuzz import oracle
from tests.fuzz.found import FOUND
from tests.fuzz.targets import TARGETS, target
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fuzz.targets import Target

pytestmark = pytest.mark.timeout(600)
_SECONDS = samples.of(2, 30)
"""Of new inputs, once the seeds are read."""
_SEED = 20261123
"""Fixed, so that a change of otel-rl is what makes a test fail; campaigns by hand take another one each time."""


@pytest.fixture
def subject(name: str, tmp_path: Path) -> Iterator[Target]:
    found = target(name, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("name", "data"),
    [pytest.param(name, data, id=f"{name}-{n}") for name in FOUND for n, data in enumerate(FOUND[name])],
)
def test_what_once_failed(subject: Target, data: bytes) -> None:
    """An input that once broke a rule breaks none now."""
    subject.check(subject.seeds()[0])  # imports
    oracle.check(subject, data)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import this", "import 'this'"),
        ("(self.folder / '../outside').touch()", "outside"),
        ("x = ' ' * (300 << 20)", "MiB"),
    ],
)
def test_the_rules(code: str, reason: str, tmp_path: Path) -> None:
    """A target that imports, writes elsewhere or takes too much memory is broken."""
    (tmp_path / "here").mkdir()
    program = f"""
from pathlib import Path
from tests.fuzz import oracle
from tests.fuzz.targets import Target
class Bad(Target):
    def check(self, data):
        {code}
oracle.check(Bad(Path({str(tmp_path / "here")!r})), b"")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "Broken" in done.stderr
    assert reason in done.stderr


@pytest.mark.slow
@needs("atheris")
@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs(name: str) -> None:
    """Inputs that the writers make, and inputs that no writer makes, break no rule."""
    options = [f"-max_total_time={_SECONDS}", f"-seed={_SEED}"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-m", "tests.fuzz", name, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)

    told = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("#"))  # without the progress

    assert done.returncode == 0, told[-6000:]
    assert "INITED" in done.stderr  # the seeds were not all
