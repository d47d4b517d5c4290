"""The wheel, built and installed into an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from otel_rl import semconv
from tests.demo.test_demo import UNTAUGHT
from tests.real_parts import needs_program

_ROOT = Path(__file__).parents[2]
STEPS = 3
_DEPLOYED = {".yaml", ".yml", ".json", ".sh", ".sbatch", ".md", "Dockerfile"}
"""Suffixes of the files that `otel-rl stack` starts servers with, or names without a suffix."""
_SUFFIXES = {
    "otel_rl": {".py", ".yaml", ".md", "py.typed"},
    "otel_rl/recorder/secrets": {".py", "kept.json"},
    "otel_rl/look/insight": {".py", "level_thresholds.json"},
    "otel_rl/look/page/assets": {".css", ".js", "uplot.license.txt"},
    "otel_rl/serve/files/deploy": _DEPLOYED,
    "otel_rl/serve/files/dashboards": _DEPLOYED,
    "otel_rl_exporters": {".py", "py.typed"},
    ".dist-info": {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"},
}
"""The content of the wheel: suffixes or whole names, by the innermost of these directories."""
_SOURCES = {
    *(".py", ".yaml", ".yml", ".md", ".txt", ".json", ".toml", ".typed", ".lock", ".csv", ".sh", ".sbatch", ".xml"),
    *(".png", ".svg", ".html", ".css", ".js", ".jsx", ".mjs", ".c", ".go", ".mod", ".sum", ".java", ".rs", ".sha256"),
    semconv.SCHEMA_URL.rpartition("/")[2],  # the schema file
    *("Dockerfile", "LICENSE", "PKG-INFO", ".dockerignore", ".gitignore"),
    *("import_graph", "lock", "prose", "run", "secret_rates", "secret_rules", "servers"),
}
"""Suffixes of the sdist, or names without a suffix."""
_TOP = {
    *("otel_rl", "exporters", "dashboards", "deploy", "docs", "tests", "benchmarks", ".ci", ".github"),
    *("pyproject.toml", ".dockerignore", ".gitignore", ".mkdocs.yml", ".pre-commit-config.yaml", "PKG-INFO"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
}

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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the wheel and the sdist."""
    directory = tmp_path_factory.mktemp("dist")
    run("uv", "build", "--quiet", "--wheel", "--sdist", "--out-dir", directory)
    return directory


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel with the extra `demo`, and what this needs."""
    (wheel,) = built.glob("*.whl")
    programs = tmp_path_factory.mktemp("wheel") / "venv" / "bin"
    run("uv", "venv", "--quiet", "--python", sys.executable, programs.parent)
    constraints = _ROOT / ".ci" / "constraints.txt"
    python = programs / "python"
    run("uv", "pip", "install", "--quiet", "--python", python, "--constraints", constraints, f"{wheel}[demo]")
    return programs


def test_the_wheel_has_no_stray_file(built: Path) -> None:
    """Each file is in a directory of the list, and has a suffix of that directory: no test, cache, key or run."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = [PurePosixPath(name) for name in archive.namelist() if not name.endswith("/")]
    stray = [str(file) for file in files if not {file.suffix, file.name} & _allowed(file)]

    assert len(files) > 200
    assert stray == []


def test_the_sdist_has_no_stray_file(built: Path) -> None:
    """A run, a token or a build that lies in a checkout is left out."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = [PurePosixPath(*PurePosixPath(one.name).parts[1:]) for one in archive if not one.isdir()]

    assert {file.parts[0] for file in files} == _TOP
    recorded = (PurePosixPath("tests/data/archive"), PurePosixPath("tests/data/recorded"))  # by an earlier version
    others = [file for file in files if not any(map(file.is_relative_to, recorded))]
    assert [str(file) for file in others if not {file.suffix, file.name} & _SOURCES] == []


def _allowed(file: PurePosixPath) -> set[str]:
    """Return the suffixes and names of the innermost directory of the list that holds a file."""
    places = [str(place) for place in file.parents]
    found = next((_SUFFIXES[place] for place in places if place in _SUFFIXES), set())
    return found or _SUFFIXES.get(PurePosixPath(places[-2]).suffix, set())


def test_the_demo_runs(environment: Path, tmp_path: Path) -> None:
    """It trains, and each step is a row."""
    run(environment / "otel-rl", "demo", "--help", cwd=tmp_path)
    run(environment / "python", "-c", UNTAUGHT, "--steps", str(STEPS), "--dir", "runs", cwd=tmp_path)

    (rows,) = tmp_path.glob("runs/*/*/rows.jsonl")
    assert [json.loads(line)["step"] for line in rows.read_text().splitlines()] == list(range(STEPS))


def test_the_stack_has_its_files(environment: Path, tmp_path: Path) -> None:
    """The configurations that `otel-rl stack` starts servers with are in the wheel."""
    script = "import otel_rl, pathlib; print(pathlib.Path(otel_rl.__file__).parent / 'serve/files')"
    files = Path(run(environment / "python", "-c", script, cwd=tmp_path).strip())

    for name in ("deploy/compose.yaml", "deploy/prometheus/prometheus.yml", "dashboards/rules", "dashboards/grafana"):
        assert (files / name).exists(), name
