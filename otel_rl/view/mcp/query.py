"""A query of a coding agent, in a process of its own, whose time and memory the system limits.

DuckDB neither counts long texts into its memory limit, nor can it be interrupted while it makes one.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from otel_rl.view.mcp.lines import MOST_LINES, lines_of
from otel_rl.view.mcp.marked import MOST_BYTES

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 30
"""The longest time of a query in seconds."""
_BYTES = 4 << 30
"""The largest address space of its process."""
_REFUSED = 3


def ask(run: Path, query: str, most: int, seconds: float = SECONDS) -> msgspec.Raw:
    """Return the first lines that a query finds in a run within some seconds, as bounded JSON.

    Raises:
        ValueError: It is not a query that reads, it fails, or it takes too much time or memory.
    """
    command = [sys.executable, "-P", "-m", __name__, str(run), str(most)]
    try:
        done = subprocess.run(command, input=query.encode(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"the query takes more than {seconds:g} s: read fewer steps or columns") from None
    if done.returncode == _REFUSED:
        raise ValueError(done.stdout.decode())
    if b"PanicException" in done.stderr:  # of the library that holds columns
        raise ValueError("a column has a type that cannot be returned, such as an interval: cast it to text")
    if done.returncode:
        raise ValueError(f"the query takes more than {seconds:g} s, or {_BYTES >> 30} GiB of memory")
    return msgspec.Raw(done.stdout)


def _main(place: str, most: int, query: str) -> int:
    import duckdb

    from otel_rl.archive.reader import open_run
    from otel_rl.view.answers import bounded

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * 2, SECONDS * 2))
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    most = max(1, min(most, MOST_LINES))
    try:
        found = lines_of(open_run(place).select(query, most + 1), most)
        sys.stdout.buffer.write(bounded(found, MOST_BYTES))
    except (duckdb.Error, ValueError) as error:
        sys.stdout.write(str(error))
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2]), sys.stdin.read()))
