"""Trainers in processes of their own, as scripts."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from otel_rl.export import Item
from otel_rl.recorder.delivery.outbox import OutboxBatch
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.reader import Reader


def start(
    command: Sequence[str], directory: Path, *, stdin: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """Start a program in `directory`."""
    return subprocess.Popen(
        command,
        cwd=directory,
        env={"XDG_RUNTIME_DIR": f"{directory}.ids"} | os.environ | environment,  # as in `alone` of conftest
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(command: Sequence[str], directory: Path, **environment: str) -> str:
    """Run a program in `directory`; return what it printed. It must succeed."""
    process = start(command, directory, **environment)
    output, errors = process.communicate(timeout=500)  # the time limit of the test comes first
    assert process.returncode == 0, (process.returncode, output, errors)
    return output


def start_python(script: str, directory: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a script in `directory`."""
    return start([sys.executable, "-c", script], directory, **environment)


def run_python(script: str, directory: Path, **environment: str) -> str:
    """Run a script in `directory`; return what it printed. It must succeed."""
    return run([sys.executable, "-c", script], directory, **environment)


def rows_of(run_dir: Path) -> list[dict[str, object]]:
    """Return the rows in `rows.jsonl`, none if there is no such file yet."""
    path = run_dir / "rows.jsonl"
    content = path.read_bytes() if path.exists() else b""
    written = content[: content.rfind(b"\n") + 1]  # the last line may be being written
    return [msgspec.json.decode(line) for line in written.splitlines()]


def local_of(run_dir: Path) -> Path:
    """Return the part of a run directory that belongs to this machine."""
    return directories.at(run_dir).local


def journal_of(run_dir: Path, who: str = "rank0", attempt: int = 0) -> Path:
    """Return the journal of a process; there is one."""
    (found,) = (local_of(run_dir) / "journals").glob(f"{who}.attempt{attempt}.*")
    return found


def items_of(run_dir: Path) -> list[Item]:
    """Return everything that the agent made, from its outbox."""
    reader = Reader(local_of(run_dir) / "outbox", OutboxBatch)
    items: list[Item] = []
    while batches := reader.read():
        for batch in batches:
            items.extend(batch.items)
    return items


def remove(path: Path) -> None:
    """Remove a file or a directory, also while a program writes new files into it."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    continue
                raise
        return
    raise TimeoutError(path)
