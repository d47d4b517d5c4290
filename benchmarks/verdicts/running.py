"""Runs a scenario's program in a directory and a process group of its own, and asks otel-rl what a user would ask."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.verdicts import statements
from benchmarks.verdicts.judge import Judgment, judge
from benchmarks.verdicts.pieces.recording import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.verdicts.labels import Form, Scenario
    from benchmarks.verdicts.statements import Statement

ROOT = Path(__file__).parents[2]
DEADLINE_S = 15
"""`stalled_after`: seconds without progress after which the agent looks for a hang."""
EARLY_S = 6.0
"""A user asks so long after the moment that the program marked, before any deadline."""
VERDICT_S = 45.0
"""After the deadline, so long at most until the agent has made its autopsy; under load, it takes long."""
PROGRAM_S = 240.0
"""The longest time until a program marks its moment, or ends."""
AGENT_S = 25.0
"""After the end of a program, so long at most until its agent has ended too."""


class Trial:
    """One run of a scenario's program, in a directory."""

    def __init__(self, scenario: Scenario, form: Form, place: Path) -> None:
        self._scenario, self._form = scenario, form
        self._place = place.resolve()
        self._mark, self._events = self._place / "mark", self._place / "events"
        self._said: list[Statement] = []
        self._output = (self._place / "output.txt").open("w")
        (self._place / "tmp").mkdir(parents=True, exist_ok=True)
        append = f"exec >>'{self._events}'; date +%s.%N; cat; echo"
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self._environment = cleared | {
            MARK: str(self._mark),
            "OMP_NUM_THREADS": "1",
            "OTEL_RL_DIR": str(self._place / "runs"),
            "OTEL_RL_ON_EVENT": f'sh -c "{append}"',
            "OTEL_RL_STALLED_AFTER": str(DEADLINE_S),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self._place / "tmp"),
            "XDG_RUNTIME_DIR": str(self._place / "ids"),
        }

    def run(self) -> Judgment:
        """Run the program, ask, and judge; end everything that was started."""
        command = [sys.executable, "-m", "benchmarks.verdicts.program", self._scenario.name, self._form]
        (self._place / "program").mkdir(exist_ok=True)
        process = subprocess.Popen(
            command,
            cwd=self._place / "program",
            env=self._environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            since = self._ask_live(process) if self._scenario.is_asked_live else None
            if not self._scenario.is_asked_live or self._scenario.kind == "control":
                since = self._ask_afterwards(process)
            if since is None:
                return Judgment(self._scenario.name, "broken", None, "it did not mark its moment, or did not end")
            self._said += statements.of_events(self._events)
            with (self._place / "said.txt").open("w") as file:
                file.writelines(f"{one.at - since:+8.1f} {one.place}: {one.text}\n" for one in self._said)
            return judge(self._scenario, self._form, self._said, since)
        finally:
            self._end(process)

    def _ask_live(self, process: subprocess.Popen[bytes]) -> float | None:
        if not _wait(lambda: self._mark.exists() or process.poll() is not None, PROGRAM_S) or not self._mark.exists():
            return None
        time.sleep(0.1)  # it may be being written
        since = float(self._mark.read_text())
        time.sleep(max(0.0, since + EARLY_S - time.time()))
        self._ask("why")
        if self._scenario.kind == "hang":
            _wait(lambda: self._has_concluded(since), DEADLINE_S + VERDICT_S)
            time.sleep(1.5)  # `now.json` follows the event
            self._ask("why")
            self._ask("top", "--once")
        return since

    def _has_concluded(self, since: float) -> bool:
        events = statements.of_events(self._events)
        return any(one.place == "rl.autopsy.concluded" and one.at > since + DEADLINE_S / 2 for one in events)

    def _ask_afterwards(self, process: subprocess.Popen[bytes]) -> float | None:
        if not _wait(lambda: process.poll() is not None, PROGRAM_S):
            return None
        ended = time.time()
        _wait(lambda: not any("otel_rl" in command for _, command in self._started()), AGENT_S)
        self._ask("why")
        self._ask("top", "--once")
        return ended

    def _ask(self, *verb: str) -> None:
        command = [sys.executable, "-m", "otel_rl.cli", *verb, "--json"]
        done = subprocess.run(
            command, env=self._environment, cwd=self._place, capture_output=True, text=True, timeout=300, check=False
        )
        at = time.time()
        with (self._place / "answers.txt").open("a") as file:
            file.write(f"{' '.join(verb)} at {at}:\n{done.stdout}\n{done.stderr}\n")
        with contextlib.suppress(ValueError):
            answer: dict[str, Any] = json.loads(done.stdout)
            said = statements.of_why(answer, at) if verb[0] == "why" else statements.of_top(answer, at)
            self._said += said

    def _started(self) -> Iterator[tuple[int, str]]:
        """Return the processes that have this trial's variables, the agent included, with their command lines."""
        mine = f"{MARK}={self._mark}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mine in (place / "environ").read_bytes().split(b"\0"):
                    yield int(place.name), (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        for pid, _ in list(self._started()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        self._output.close()


def _wait(is_done: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
