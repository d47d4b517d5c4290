"""The programs that send rows with OpenTelemetry's own exporters, in each language, built with their lock files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]
_ALL = ("http/protobuf", "http/json", "grpc")
_NO_JSON = ("http/protobuf", "grpc")


class Program(NamedTuple):
    """A client that is built.

    Attributes:
        command: What starts it.
        place: Where it runs.
    """

    command: list[str]
    place: Path


class Client(NamedTuple):
    """A program that sends rows.

    Attributes:
        name: Its language, or what it is.
        version: The package whose exporters it uses, and the version.
        needs: The programs that build and run it.
        build: Builds it; takes an empty directory.
        protocols: Those that OpenTelemetry has for it.
        keeps_order: If true, rows come as they were sent.
    """

    name: str
    version: str
    needs: tuple[str, ...]
    build: Callable[[Path], Program]
    protocols: tuple[str, ...] = _ALL
    keeps_order: bool = True


def run(command: list[str], place: Path, **environment: str) -> None:
    """Run a program that builds another one; it must succeed."""
    done = subprocess.run(
        command, cwd=place, env=os.environ | environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"


def go(place: Path, *programs: str) -> None:
    """Build programs of `go/` into `place`."""
    command = ["go", "build", "-mod=readonly", "-o", f"{place}/", *(f"./{name}" for name in programs)]
    run(command, HERE / "go", CGO_ENABLED="0")


def node(place: Path) -> None:
    """Copy `js/` to `place`, with the packages of its lock file."""
    for file in (HERE / "js").iterdir():
        if file.is_file():
            shutil.copy(file, place)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], place)


def _python(place: Path) -> Program:
    del place
    return Program([sys.executable, "-m", "tests.clients.rows"], _ROOT)


def _go(place: Path) -> Program:
    go(place, "rows")
    return Program([str(place / "rows")], place)


def _javascript(place: Path) -> Program:
    node(place)
    return Program(["node", "rows.mjs"], place)


CLIENTS = (
    Client("Python", "opentelemetry-exporter-otlp", (), _python, _NO_JSON),
    Client("JavaScript", "@opentelemetry/exporter-logs-otlp-* 0.223.1", ("node", "npm"), _javascript),
    Client("Go", "otlploghttp and otlploggrpc 0.20.0", ("go",), _go, _NO_JSON),
)
"""All of them."""
