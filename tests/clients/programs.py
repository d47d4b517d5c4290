"""The programs that send rows with OpenTelemetry's own exporters, in each language, built with their lock files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]
_ALL = ("http/protobuf", "http/json", "grpc")
_NO_JSON = ("http/protobuf", "grpc")


class Program(NamedTuple):
    """A client that is built."""

    command: list[str]  # what starts it
    place: Path  # where it runs


class Client(NamedTuple):
    """A program that sends rows."""

    name: str  # its language, or what it is
    needs: tuple[str, ...]  # the programs that build and run it
    build: Callable[[Path], Program]  # builds it; takes an empty directory
    protocols: tuple[str, ...] = _ALL  # those that OpenTelemetry has for it
    keeps_order: bool = True  # if true, rows come as they were sent

    @property
    def ways(self) -> list[tuple[str, str]]:
        """Protocols and compressions."""
        return [(protocol, compression) for protocol in self.protocols for compression in ("none", "gzip")]


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


def jars(place: Path) -> Path:
    """Return a directory below `place` with the jars of `java/pom.xml`, whose checksums are right."""
    found = place / "jars"
    command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={found}"]
    run([*command, "--file", str(HERE / "java" / "pom.xml")], place)
    sums = "".join(f"{sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(found.glob("*.jar")))
    assert sums == (HERE / "java" / "jars.sha256").read_text(), sums
    return found


def java(place: Path, name: str) -> Program:
    """Compile a class of `java/`."""
    libraries = f"{jars(place)}/*"
    run(["javac", "-classpath", libraries, "-d", str(place), str(HERE / "java" / f"{name}.java")], place)
    return Program(["java", "-XX:TieredStopAtLevel=1", "-classpath", f"{libraries}:{place}", name], place)


def _java(place: Path) -> Program:
    return java(place, "Rows")


def _rust(place: Path) -> Program:
    target = os.environ.get("CARGO_TARGET_DIR", str(place))
    run(["cargo", "build", "--quiet", "--locked"], HERE / "rust", CARGO_TARGET_DIR=target)
    return Program([f"{target}/debug/rows"], place)


def _collector(place: Path) -> Program:
    go(place, "collector")
    return Program([sys.executable, "-m", "tests.clients.collector", str(place / "collector")], _ROOT)


COLLECTOR = Client("Collector", ("go",), _collector, keeps_order=False)
"""The Collector; the last part of its command is the program itself."""
CLIENTS = (
    Client("Python", (), _python, _NO_JSON),
    Client("JavaScript", ("node", "npm"), _javascript),
    Client("Java", ("java", "javac", "mvn"), _java, _NO_JSON),
    Client("Rust", ("cargo",), _rust),
    Client("Go", ("go",), _go, _NO_JSON),
    COLLECTOR,
)
"""All of them."""
