"""`otel-rl ls` and `otel-rl top` in a real terminal, and without one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import otel_rl
from otel_rl.cli import main
from otel_rl.look.insight.facts import Facts, Summary
from otel_rl.look.insight.run_values import RunValues
from otel_rl.look.terminal.listing import facts_by_path, first_sentences
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of
from tests.collector import wait_for
from tests.look.terminal.nows import S, hanging, process, progress, written
from tests.processes import run

CLI = (sys.executable, "-m", "otel_rl.cli")


class Tty:
    """A program in a pseudo-terminal of 80 x 24 cells, with everything that it has written."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(CLI[0], [*CLI, *arguments], os.environ | {"TERM": "xterm-256color"} | environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.written = b""

    def read_until(self, done: Callable[[bytes], bool], seconds: float = 60) -> bytes:
        """Read until a condition holds, or the program has ended."""
        deadline = time.monotonic() + seconds
        poll = select.poll()  # `select` fails if the tests before left a thousand descriptors open
        poll.register(self._fd, select.POLLIN)
        while not done(self.written) and time.monotonic() < deadline:
            if poll.poll(100):
                try:
                    chunk = os.read(self._fd, 65536)
                except OSError:  # the program has ended
                    break
                if not chunk:
                    break
                self.written += chunk
        return self.written

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def end(self) -> int:
        """Return the exit code of the program."""
        self.read_until(lambda _: False, 20)
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs in every state."""
    now = time.time_ns()
    directory = tmp_path / "runs" / "grpo"
    written(directory / "live")
    written(directory / "hung", processes=[process(0, last_unix_nano=now - 4000 * S)], stalled=hanging())
    ended = {"state": "ended", "time_unix_nano": now - 3000 * S}
    for number, outcome in enumerate(("finished", "failed", "crashed", "lost")):
        last = now - (5000 + 1000 * number) * S
        written(directory / outcome, processes=[process(0, outcome=outcome, last_unix_nano=last)], **ended)
    written(directory / "empty", processes=[], progress=progress(curves=(), recent_shares=()), **ended)
    (directory / "damaged").mkdir()
    (directory / "damaged" / "run.json").write_text("{")
    return tmp_path / "runs"


def test_runs_are_listed(runs: Path) -> None:
    """Each has its state, those with a recent sign of life come first, and a damaged one is there too."""
    rows = run([*CLI, "ls", str(runs), "--text"], runs, COLUMNS="80").splitlines()
    states = {row.split()[0].partition("/")[2]: row.split()[2] for row in rows[1:]}

    assert [row.split()[0] for row in rows[1:3]] == ["grpo/live", "grpo/empty"]
    assert states["hung"] == "hung"
    assert {name: states[name] for name in ("finished", "failed", "crashed", "lost")} == {
        name: name for name in ("finished", "failed", "crashed", "lost")
    }
    assert states["damaged"] == "empty"
    assert max(len(row) for row in rows) <= 80


def test_what_is_read_first_of_a_run(tmp_path: Path) -> None:
    """How a run stands, where there is no time for its verdict, nothing is to be found in it, or it is gone."""
    known = [present_of(written(tmp_path / name)) for name in ("late", "gone")]
    shutil.rmtree(tmp_path / "gone")
    nothing = replace(known[0], path=str(tmp_path / "nothing"), sentence="Nothing was recorded.")
    values = [RunValues(run, time.time_ns()) for run in known]
    in_time = facts_by_path(values[1:])

    assert (facts_by_path(values, most_seconds=0), in_time) == ({}, {})
    assert all(run.sentence for run in known)
    assert first_sentences(
        [*known, nothing], {nothing.path: Facts(summary=Summary(id="", project="", name="", state="empty"))}
    ) == {run.path: run.sentence for run in (*known, nothing)}


def test_runs_as_json(runs: Path) -> None:
    """Programs get the values themselves, also those of metrics."""
    result = CliRunner().invoke(main, ["ls", str(runs)])
    answer = {run["name"]: run for run in msgspec.json.decode(result.output)["runs"]}

    assert (answer["live"]["steps"], answer["live"]["total_steps"], answer["live"]["recent_longest_phase"]) == (
        812,
        1200,
        "generate",
    )
    assert answer["live"]["metrics"]["time/step"] == 54.8
    assert answer["damaged"]["state"] == "empty"


@pytest.mark.parametrize("command", ["ls", "top"])
def test_no_run(command: str) -> None:
    """The error says how to record one."""
    result = CliRunner().invoke(main, [command, "--text"])

    assert result.exit_code == 1
    assert "otel-rl demo" in result.output


def test_neither_loads_textual(runs: Path) -> None:
    """Neither `ls` nor `top --once` does."""
    script = f"""
import sys
from otel_rl.cli import main
main({["ls", str(runs / "grpo" / "live")]}, standalone_mode=False)
print([name for name in ("textual", "opentelemetry.sdk") if name in sys.modules])
main({["top", str(runs / "grpo" / "live"), "--once"]}, standalone_mode=False)
print([name for name in ("textual",) if name in sys.modules])
"""
    lines = run([sys.executable, "-c", script], runs).splitlines()

    assert lines.count("[]") == 2


def test_once(runs: Path) -> None:
    """A pipe gets the screen of `--once` as plain text, without escape sequences, with all of 40 ranks."""
    written(runs / "grpo" / "wide", processes=[process(rank) for rank in range(40)])
    text = run([*CLI, "top", str(runs / "grpo" / "wide"), "--once"], runs, COLUMNS="80")

    assert "\x1b" not in text
    assert "39  node4" in text
    assert run([*CLI, "top", str(runs / "grpo" / "wide"), "--ascii"], runs).isascii()


def test_once_in_a_terminal(runs: Path) -> None:
    """It prints one screen with colors and ends; `NO_COLOR` leaves them out."""
    colored = Tty("top", str(runs / "grpo" / "live"), "--once")
    assert colored.end() == 0
    assert b"\x1b[38;5;" in colored.written
    assert b"\x1b[?1049h" not in colored.written

    plain = Tty("top", str(runs / "grpo" / "live"), "--once", NO_COLOR="1")
    assert plain.end() == 0
    assert b"\x1b" not in plain.written


def test_top_in_a_terminal(runs: Path) -> None:
    """A first screen is there before Textual is loaded, keys work, and the terminal is given back."""
    top = Tty("top", str(runs / "grpo" / "live"))
    first = top.read_until(lambda text: b"quit" in text)
    assert b"812 of 1,200 steps" in first
    assert b"\x1b[?1000h" not in first  # the mouse, which Textual asks for
    top.read_until(lambda text: b"\x1b[?1000h" in text)
    top.press("?")
    top.read_until(lambda text: b"Colors and marks" in text)
    top.press("q")

    assert top.end() == 0
    assert top.written.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h"))


def test_a_recorded_run_says_how_to_look_at_it(tmp_path: Path) -> None:
    """The last line of a training is the command that shows it."""
    script = """
import otel_rl
run = otel_rl.init(project="p", id="one", dir="runs", hardware=False)
with run.step(0):
    run.log({"reward": 1.0})
run.finish()
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    last = done.stderr.splitlines()[-1]

    place = f"{tmp_path}/runs/p/one"

    assert last == f"otel-rl: recorded up to step 0; rows: {place}/rows.jsonl; to look at it: otel-rl top {place}"
    assert "step 0" in run([*CLI, *last.rpartition("otel-rl ")[2].split(), "--once"], tmp_path)


def test_the_list_has_what_was_recorded(tmp_path: Path) -> None:
    """Steps, the usual time of a step and last values are those of the run."""
    recorded = otel_rl.init(
        project="p", name="base", dir=str(tmp_path), hardware=False, quiet=True, config={"max_steps": 3}
    )
    for step in range(3):
        with recorded.step(step), recorded.phase("generate"):
            recorded.log({"reward": step / 2})
    assert recorded.finish()
    wait_for(lambda: present_of(place_of(recorded.dir)).is_over, "the agent did not end", 60)
    result = CliRunner().invoke(main, ["ls", str(tmp_path)])
    (answer,) = msgspec.json.decode(result.output)["runs"]
    times = otel_rl.open_run(recorded.dir).rows("time/step")["value"].tolist()

    assert (answer["steps"], answer["total_steps"], answer["state"]) == (3, 3, "finished")
    assert answer["metrics"]["reward"] == 1.0
    assert answer["recent_step_seconds"] == pytest.approx(sorted(times)[1])
    assert answer["recent_longest_phase"] == "generate"
