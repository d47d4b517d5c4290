"""The wheel, built and installed into an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_parts import needs_program

_ROOT = Path(__file__).parents[2]
STEPS = 3

pytestmark = [needs_program("uv"), pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path = _ROOT) -> str:
    """Run a command without the paths of this environment; return what it printed. It must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel with the extra `demo`, and what this needs."""
    directory = tmp_path_factory.mktemp("wheel")
    run("uv", "build", "--quiet", "--wheel", "--out-dir", directory)
    (wheel,) = directory.glob("*.whl")
    programs = directory / "venv" / "bin"
    run("uv", "venv", "--quiet", "--python", sys.executable, programs.parent)
    constraints = _ROOT / ".ci" / "constraints.txt"
    python = programs / "python"
    run("uv", "pip", "install", "--quiet", "--python", python, "--constraints", constraints, f"{wheel}[demo]")
    return programs


def test_the_demo_runs(environment: Path, tmp_path: Path) -> None:
    """It trains, and each step is a row."""
    run(environment / "otel-rl", "demo", "--steps", str(STEPS), "--dir", "runs", cwd=tmp_path)

    (rows,) = tmp_path.glob("runs/*/*/rows.jsonl")
    assert [json.loads(line)["step"] for line in rows.read_text().splitlines()] == list(range(STEPS))


def test_the_stack_has_its_files(environment: Path, tmp_path: Path) -> None:
    """The configurations that `otel-rl stack` starts servers with are in the wheel."""
    script = "import otel_rl, pathlib; print(pathlib.Path(otel_rl.__file__).parent / 'files')"
    files = Path(run(environment / "python", "-c", script, cwd=tmp_path).strip())

    for name in ("deploy/compose.yaml", "deploy/prometheus/prometheus.yml", "dashboards/rules", "dashboards/grafana"):
        assert (files / name).exists(), name
