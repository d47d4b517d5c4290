"""The table of sizes in the page of the architecture; `python -m tests.docs.sizes_page` writes it.

Lines and files are counted. The files that a run loads, and the memory of an idle agent, are measured with a trainer
of two steps that exports JSON lines. `tests/test_walls.py` measures installations.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- sizes: python -m tests.docs.sizes_page -->\n", "<!-- end of sizes -->\n"
TOLERANCE = 0.05
"""Part by which a number may differ before the table must be written again: most changes are smaller."""
_LEAST = 100
_BESIDE = ("semconv", "__init__.py", "analysis.py", "export.py", "moved.py", "testing.py")
"""Names, contracts, and help for users' tests, next to the recorder."""
_ALL_BEFORE = "65,668 in 511"
_LOADED_BEFORE, _MEMORY_BEFORE = 232, 64
"""Before the wings were moved apart, recorder and wings were one; measured by this module at that commit."""
_WATCH = """
import os, sys
def watch(event, arguments, names=set()):
    if event == "import" and arguments[0].startswith("otel_rl") and arguments[0] not in names:
        names.add(arguments[0])
        with open(os.path.join({folder!r}, str(os.getpid())), "a") as file:
            print(arguments[0], file=file)
sys.addaudithook(watch)
"""
_TRAINER = """
import sys, time, otel_rl
from pathlib import Path
run = otel_rl.init(project="sizes", dir=sys.argv[1], exporters=["jsonl"], hardware=False, quiet=True)
for number in range(2):
    with run.step(number), run.phase("generate"):
        run.log({"loss": 0.5})
while not list(Path(sys.argv[1]).rglob("rows.jsonl")):
    time.sleep(0.1)
time.sleep(3)
from otel_rl.recorder.directory import agent_start, directory
agent = agent_start.read_status(directory.at(run.dir)).pid
sizes = Path(f"/proc/{agent}/smaps_rollup").read_text()
(Path(sys.argv[1]) / "rss").write_text(next(line.split()[1] for line in sizes.splitlines() if line.startswith("Rss:")))
run.finish()
"""


class Size(NamedTuple):
    """The size of some Python files."""

    lines: int
    files: int
    code: int
    """Lines that are neither blank nor comments nor docstrings."""


def size_of(paths: Iterable[Path]) -> Size:
    """Count the lines of the Python files below some paths."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    texts = [file.read_text() for file in files]
    return Size(sum(text.count("\n") for text in texts), len(files), sum(map(_code, texts)))


def _code(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {line for token in tokens if token.type not in blank for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(lines)


def sizes() -> dict[str, Size]:
    """Return the size of the recorder, of each of its rooms, of what is next to it, and of each wing."""
    library = ROOT / "otel_rl"
    recorder = library / "recorder"
    wings = sorted(path.parent for path in library.glob("*/__init__.py") if path.parent.name not in _BESIDE)
    rooms = sorted(path.parent for path in recorder.glob("*/__init__.py"))
    return {
        "`recorder`": size_of([recorder]),
        **{f"its room `{room.name}`": size_of([room]) for room in rooms},
        "contracts, names and `testing`": size_of(library / name for name in _BESIDE),
        **{f"`{wing.name}`": size_of([wing]) for wing in wings if wing != recorder},
        "`exporters`": size_of([ROOT / "exporters"]),
    }


def loaded() -> tuple[int, float]:
    """Return how many files of otel-rl a trainer and its agent load, and the memory of the agent in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        names, runs = Path(folder, "names"), Path(folder, "runs")
        names.mkdir()
        runs.mkdir()
        Path(folder, "sitecustomize.py").write_text(_WATCH.format(folder=str(names)))
        path = os.pathsep.join((folder, str(ROOT), str(ROOT / "exporters")))
        command = [sys.executable, "-c", _TRAINER, str(runs)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path}, cwd=folder)
        modules = {name for file in names.iterdir() for name in file.read_text().split()}
        return sum(map(_is_file, modules)), int((runs / "rss").read_text()) / 1024


def _is_file(module: str) -> bool:
    path = Path(*module.split("."))
    roots = (ROOT, ROOT / "exporters")
    return any((root / path).with_suffix(".py").is_file() or (root / path / "__init__.py").is_file() for root in roots)


def table() -> str:
    """Return the table."""
    files, memory = loaded()
    counted = sizes()
    whole = [
        sum(numbers) for numbers in zip(*(size for name, size in counted.items() if "room" not in name), strict=True)
    ]
    rows = [f"| {name} | {size.lines:,} | {size.files} | {size.code:,} |" for name, size in counted.items()]
    return "\n".join(
        (
            "| | lines | files | lines of code |",
            "|---|---:|---:|---:|",
            *rows,
            "| all | {:,} | {} | {:,} |".format(*whole),
            "",
            f"Before, all was one: {_ALL_BEFORE} files, without exporters. A trainer and its agent load",
            f"{files} files ({_LOADED_BEFORE} before). An idle agent takes {memory:.0f} MiB ({_MEMORY_BEFORE} before).",
            "",
        )
    )


def differing(text: str) -> list[str]:
    """Return the rows of a table whose lines differ by more than the tolerance from those of today."""
    lines = {name: int(number.replace(",", "")) for name, number in re.findall(r"^\| (.+?) \| ([\d,]+) \|", text, re.M)}
    today = {name: size.lines for name, size in sizes().items()}
    return [name for name in today if abs(lines.get(name, 0) - today[name]) > max(_LEAST, TOLERANCE * today[name])]


def written() -> str:
    """Return the table that the page has."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.partition(END)[2])
