"""Of a run that hangs, the last line of each process is said, the rarest one first, with how often it came."""

from __future__ import annotations

import time
from pathlib import Path

import otel_rl
from otel_rl.export import LogRecord
from otel_rl.look.insight.why.of_run import why
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.terminal.nows import S, hanging, process, written


def printed(directory: Path, lines: dict[int, tuple[str, int]], *, hangs: bool = True) -> list[str]:
    """Return the sentences about a run of four ranks that printed these lines so often, 40 s ago."""
    place = written(directory, processes=[process(n, host="a") for n in range(4)], stalled=hanging() if hangs else ())
    now = time.time_ns()
    writer = ArchiveWriter(place.path / "archive" / "a", 1 << 60)
    for rank in range(4):
        at = now - 40 * S
        writer.add(LogRecord(0, at - S, "", rank, "a", 0, "stdout", "begins"))
        text, repeated = lines.get(rank, ("step 811 done", 1))
        writer.add(LogRecord(0, at, "", rank, "a", 1, "stdout", text, repeated=repeated))
    writer.save()
    return [
        sentence for sentence in why(otel_rl.open_run(place.path), at_unix_nano=now).sentences if "rinted" in sentence
    ]


def test_a_hang(tmp_path: Path) -> None:
    """The rank that printed something else comes first."""
    (sentence,) = printed(tmp_path / "r", {2: ("retrying http://10.0.0.7:8000", 4112)})

    assert sentence == (
        "Printed last: rank 2, 40 s ago, 4,112 times: retrying http://10.0.0.7:8000; rank 0, rank 1 and rank 3, "
        "40 s ago: step 811 done"
    )


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    """Nothing is said of what it prints."""
    assert printed(tmp_path / "r", {2: ("retrying", 9)}, hangs=False) == []
