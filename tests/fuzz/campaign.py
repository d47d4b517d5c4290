"""Runs a target for some seconds in a process of its own, and returns the figures."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_LONGEST_INPUT_S = 120
"""Wall-clock seconds after which an input counts as a hang; the CPU limit of `oracle` is far lower."""
_STARTED_WITHIN_S = 300
"""Seconds to import and instrument the code, and to feed the seeds, on a busy machine."""
_MOST_MEMORY_MIB = 1024
_SMALL_PARENT = ("sh", "-c", '"$@" & wait $!', "sh")
"""A process starts with the peak of memory of the one that started it, which may be a large suite."""
_STATUS = re.compile(r"#\d+\s+\S+\s+cov: (\d+) ft: (\d+)")


class Figures(NamedTuple):
    """The figures of a campaign, and the report of a failure."""

    target: str
    seconds: int
    seeds: int
    inputs: int
    edges: int
    peak_mib: int
    failure: str = ""  # empty if no input failed
    input: bytes = b""  # the input that failed


def run(target: str, seconds: int, seed: int = 0) -> Figures:
    """Fuzz a target, until an input fails or the time is up; seed 0 is another one each time."""
    shared = Path("/dev/shm")  # the files of a target are written a thousand times a second
    parent = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="otel-rl-fuzz.", dir=parent) as place:
        log = Path(place, "log")
        command = [
            *_SMALL_PARENT,
            *(sys.executable, "-m", "tests.fuzz.child", target, place),
            *(f"-max_total_time={seconds}", f"-timeout={_LONGEST_INPUT_S}", f"-rss_limit_mb={_MOST_MEMORY_MIB}"),
            *("-print_final_stats=1", f"-seed={seed}"),
        ]
        environ = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
        with (
            log.open("wb") as file,
            subprocess.Popen(command, stdout=file, stderr=file, env=environ, start_new_session=True) as process,
        ):
            try:
                status = process.wait(_STARTED_WITHIN_S + 2 * seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return _figures(target, seconds, status, log.read_text(errors="replace"), Path(place))


def _figures(target: str, seconds: int, status: int, text: str, folder: Path) -> Figures:
    told = {name: int(number) for name, number in re.findall(r"stat::(\w+):\s+(\d+)", text)}
    edges = [int(found[1]) for found in _STATUS.finditer(text)]
    crashes = [path.read_bytes() for path in (folder / "crashes").glob("*")]
    return Figures(
        target=target,
        seconds=seconds,
        seeds=len(list((folder / "corpus").glob("seed-*"))),
        inputs=told.get("number_of_executed_units", 0),
        edges=max(edges, default=0),
        peak_mib=told.get("peak_rss_mb", 0),
        failure=text[-6000:] if status or crashes else "",
        input=crashes[0] if crashes else b"",
    )
