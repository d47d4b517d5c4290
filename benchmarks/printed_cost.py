"""The cost of recording printed lines and messages of logging, next to W&B's console capture and OTel's handler."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.log_versions import Side, pair, ratios
from benchmarks.measuring import TIMER, Contestant, compared, interleave
from benchmarks.recording import directory, recording
from benchmarks.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from opentelemetry.sdk._logs import ReadableLogRecord

_LINES, _ROUNDS, _PAIRS = 100_000, 3, 4
_OURS = "otel_rl, a file that the agent follows"
_TEE = "otel_rl, output=True on a pipe"
_WAYS = {
    "nothing records": "nothing",
    _OURS: "file",
    _TEE: "tee",
    'wandb offline, console="wrap_raw"': "wrap_raw",
    'wandb offline, console="redirect"': "redirect",
}
_PRINTER = """
import json, os, resource, sys, time
from contextlib import suppress
way, lines, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def cpu_s(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime

if way in ("file", "tee"):
    import otel_rl
    output = {"per_second": 10_000_000, "limit": 1 << 40, "tee": way == "tee"}
    run = otel_rl.init(dir=place, project="p", id="r", exporters=[], agent="off", quiet=True, hardware=False,
                       archive_limit=1 << 40, output=output)
elif way != "nothing":
    import wandb
    run = wandb.init(mode="offline", dir=place, project="p",
                     settings=wandb.Settings(silent=True, console=way, x_disable_stats=True))
before = cpu_s(resource.RUSAGE_SELF)
for number in range(lines):
    print(f"step {number // 40} rank 0 | reward {number / 7:.4f} kl {number % 97 / 1e4:.6f} tokens {number * 31}")
sys.stdout.flush()
if way != "nothing":
    run.finish()
if "wandb" in sys.modules:
    wandb.teardown()
took = cpu_s(resource.RUSAGE_SELF) - before
with open(sys.argv[4], "w") as file:
    json.dump({"trainer_s": took, "others_s": cpu_s(resource.RUSAGE_CHILDREN)}, file)
"""


class _Usage(NamedTuple):
    trainer_s: float
    others_s: float
    size: float


def measure() -> list[Table]:
    """Return the cost of lines, of a message for the trainer's thread, and of `log` and `phase` meanwhile."""
    return [_of_lines(), _of_a_message(), _of_other_calls()]


def _of_lines() -> Table:
    found: dict[str, list[_Usage]] = {name: [] for name in _WAYS}
    for _ in range(_ROUNDS):
        for name, way in _WAYS.items():
            few, many = _print(way, 1), _print(way, 1 + _LINES)
            found[name].append(_Usage(*(b - a for a, b in zip(few, many, strict=True))))
    rows: list[list[Cell]] = []
    for name, usages in found.items():
        trainer_s, others_s, size = (statistics.median(column) for column in zip(*usages, strict=True))
        rows.append([name, trainer_s, others_s, size / _LINES])
    columns = ["way", "the trainer's process, CPU s", "agent or service, CPU s", "bytes per line on disk"]
    note = (
        f"Medians of {_ROUNDS} rounds, in turns; what a run of one line takes is subtracted. A line has about 70 "
        "characters, and all are different, but alike. On disk is the archive, or W&B's directory; the file that the "
        "trainer prints into is not in it. No limit leaves lines out."
    )
    return Table(f"{_LINES:,} printed lines", columns, rows, note)


def _print(way: str, lines: int) -> _Usage:
    """Let a process print so many lines, and return what it, its helpers and the files took."""
    with directory() as place:
        into, answer = place / "out", place / "answer"
        command = [sys.executable, "-c", _PRINTER, way, str(lines), str(place / "runs"), str(answer)]
        with into.open("wb") as file:
            if way in ("tee", "wrap_raw", "redirect"):  # a pipe, as of a job that somebody watches
                process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE)
                process.communicate()
            else:
                process = subprocess.Popen(command, cwd=place, stdout=file)
                process.wait()
        assert process.returncode == 0
        used = json.loads(answer.read_text())
        if way not in ("file", "tee"):
            return _Usage(used["trainer_s"], used["others_s"], _size(place / "runs" / "wandb"))
        run = place / "runs" / "p" / "r"
        return _Usage(used["trainer_s"], _agent_s(run), _size(run / "archive"))


def _agent_s(run: Path) -> float:
    """Let an agent deliver what is there, and return its CPU seconds."""
    environment = os.environ | {"OTEL_METRICS_EXPORTER": "none"}
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_rl.cli", "agent", str(run), "--once"], env=environment, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def _of_a_message() -> Table:
    """Compare one message of INFO, whose logger has one handler that does nothing."""
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult

    class Nowhere(LogRecordExporter):
        def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
            return LogRecordExportResult.SUCCESS

        def force_flush(self, timeout_millis: int = 0) -> bool:
            return True

        def shutdown(self) -> None:
            """Do nothing."""

    class Unfollowed(logging.Logger):
        callHandlers = logging.Logger.callHandlers  # noqa: N815 - as it is before `init`, which the name of logging has

    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(Nowhere()))
    bare, theirs, recorded = Unfollowed("bare"), Unfollowed("otel"), logging.Logger("trainer")
    for logger in (bare, recorded):
        logger.addHandler(logging.NullHandler())
    theirs.addHandler(LoggingHandler(logger_provider=provider))
    their_name = "OTel SDK LoggingHandler, exports nowhere"
    with recording() as run, run.step(0), run.phase("generate"):
        found = interleave(
            [
                Contestant("otel_rl, durable on return", lambda: recorded.info("rollout %d took %.1f s", 7, 1.5)),
                Contestant(their_name, lambda: theirs.info("rollout %d took %.1f s", 7, 1.5), provider.force_flush),
                Contestant("a handler that does nothing", lambda: bare.info("rollout %d took %.1f s", 7, 1.5)),
                TIMER,
            ],
            rounds=15,
            calls=300,
        )
    provider.shutdown()
    note = "The SDK has queued its record when the call returns; otel-rl's survives the process."
    return compared("One message of Python's logging", found, their_name, note, short="OTel's handler")


def _of_other_calls() -> Table:
    """Compare `log` and `phase` where lines and messages are recorded with `output=False`."""
    recorded, off = Side(sys.executable, "True"), Side(sys.executable, "False")
    pairs = [pair(recorded, off) for _ in range(_PAIRS)]
    control = [pair(off, off) for _ in range(_PAIRS)]
    rows: list[list[Cell]] = []
    for size in pairs[0]:
        call = f"log of {size}" if size else "phase"
        rows += [
            [f"{call}, output=True", *ratios([one[size] for one in pairs])],
            [f"{call}, output=False, as a control", *ratios([one[size] for one in control])],
        ]
    columns = ["call, against output=False", "p50 µs", "against, p50 µs", "ratio", "lowest pair", "highest pair"]
    note = f"Target: ratio ≤ 1.02. {_PAIRS} pairs of processes in turns, whose standard output is a pipe."
    return Table("`run.log` and phases while output is recorded", columns, rows, note)
