"""A query of a coding agent, in a process of its own, whose time and memory the system limits.

DuckDB neither counts long texts into its memory limit, nor can it be interrupted while it makes one.
"""

from __future__ import annotations

import contextlib
import resource
import select
import sys
from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.mcp.lines import MOST_LINES, lines_of
from otel_rl.look.mcp.marked import MOST_BYTES
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files import programs
from otel_rl.recorder.files.asked_programs import finish
from otel_rl.recorder.files.programs import PIPE

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 30
"""The longest time of a query in seconds."""
_BYTES = 4 << 30
"""The largest address space of its process."""
_REFUSED = 3
_READY = b"\n"
"""The byte that the process writes when it has loaded DuckDB: the time of the query begins then."""
_START_SECONDS = 60


def ask(run: Path, query: str, most: int, seconds: float = SECONDS) -> msgspec.Raw:
    """Return the first lines that a query finds in a run within some seconds, as bounded JSON.

    Raises:
        ValueError: It is not a query that reads, it fails, or it takes too much time or memory.
    """
    process = programs.start_python(
        *(__name__, str(run), str(most)), reads=PIPE, output=PIPE, errors=PIPE, is_detached=True
    )
    is_ready = _is_ready(process)
    try:
        answer = finish(process, within=seconds if is_ready else 0, question=query.encode())
    except programs.TooLate:
        doing = (
            f"takes more than {wording.seconds(seconds)}: read fewer steps or columns" if is_ready else "does not start"
        )
        raise ValueError(f"the query {doing}") from None
    if answer.code == _REFUSED:
        raise ValueError(answer.output.decode())
    if b"PanicException" in answer.errors:  # of the library that holds columns
        raise ValueError("a column has a type that cannot be returned, such as an interval: cast it to text")
    if answer.code:
        raise ValueError(f"the query takes more than {wording.seconds(seconds)}, or {_BYTES >> 30} GiB of memory")
    return msgspec.Raw(answer.output)


def _is_ready(process: programs.Program) -> bool:
    """Wait until a process has loaded DuckDB, which takes longer than most queries if the machine is busy."""
    output = process.stdout
    return (
        output is not None
        and select.select([output], [], [], _START_SECONDS)[0] == [output]
        and output.read(1) == _READY
    )


def _main(place: str, most: int) -> int:
    import duckdb

    from otel_rl.cli.answers import bounded
    from otel_rl.look.reader.runs import open_run

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * 2, SECONDS * 2))
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    most = max(1, min(most, MOST_LINES))
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    query = sys.stdin.read()
    try:
        answered = lines_of(open_run(place).select(query, most + 1), most)
        sys.stdout.buffer.write(bounded(answered, MOST_BYTES))
    except (duckdb.Error, ValueError) as error:
        sys.stdout.write(str(error))
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2])))
