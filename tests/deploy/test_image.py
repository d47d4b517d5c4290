"""The image: what of a checkout reaches its builder, and what its Dockerfile makes of that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.real_parts import needs, needs_program, part

_ROOT = Path(__file__).parents[2]
_NEEDED = (
    *("pyproject.toml", "README.md", "LICENSE", ".ci/release.txt", ".ci/image.txt"),
    *("otel_rl/semconv/model/training.yaml", "exporters/otel_rl_exporters/wandb.py"),
)
_STRAY = (
    *(".env", ".git/config", "token", "runs/p/r/rows.jsonl", ".ci/constraints.txt", "deploy/.env", "docs/index.md"),
    *("otel_rl/.env", "otel_rl/cli/.netrc", "otel_rl/__pycache__/run.pyc", "exporters/wandb/run.wandb"),
)


def context(directory: Path) -> set[str]:
    """Return the files of a directory that a builder gets, as Docker's own SDK reads `.dockerignore`."""
    lines = (_ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if not line.startswith("#")]
    found = part("docker.utils.build").exclude_paths(str(directory), patterns)
    return {name for name in found if (directory / name).is_file()} - {".dockerignore"}


@needs("docker")
def test_the_builder_gets_only_what_the_wheel_is_made_of(tmp_path: Path) -> None:
    """No run with prompts, no history, no token and no file of variables of a checkout is in a layer."""
    for name in (*_NEEDED, *_STRAY):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("content")

    assert context(tmp_path) == set(_NEEDED)


@needs("docker")
@needs_program("uv")
@pytest.mark.slow
def test_the_wheel_of_the_image_is_the_wheel(tmp_path: Path) -> None:
    """Its files are those of the normal wheel, without those of `otel-rl stack`, and no `.env`."""
    for name in context(_ROOT):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, tmp_path / "src" / name)
    (tmp_path / "src" / "otel_rl" / ".env").write_text("PASSWORD=")
    names = {}
    for source in (_ROOT, tmp_path / "src"):
        made = tmp_path / f"of-{source.name}"
        command = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(made), str(source)]
        subprocess.run(command, check=True, env={**os.environ, "UV_CONSTRAINT": str(_ROOT / ".ci" / "constraints.txt")})
        (wheel,) = made.glob("*.whl")
        names[source] = set(ZipFile(wheel).namelist())

    assert names[tmp_path / "src"] == {name for name in names[_ROOT] if not name.startswith("otel_rl/serve/files/")}


def test_the_image_has_the_wheel_and_locked_packages_alone() -> None:
    """Every package has a hash, nothing of the checkout is in the last stage, and its user is a number."""
    stages = (_ROOT / "deploy" / "Dockerfile").read_text().split("\nFROM ")[1:]
    installed = re.findall(r"pip install (.*?)(?: \\)?$", "".join(stages), re.MULTILINE)

    assert [one for one in installed if not re.search(r"--require-hashes|--no-deps --no-index", one)] == []
    assert len(installed) == 3
    assert re.findall(r"^(?:COPY|ADD) (\S+)", stages[-1], re.MULTILINE) == ["--from=build"]
    assert re.findall(r"^USER (\d+:\d+)$", stages[-1], re.MULTILINE) == ["10001:10001"]
