"""A trainer that fails before its run begins is a run, with what it printed; other programs that fail are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.look.reader.result import lines_of
from tests.processes import start

_RUN = (sys.executable, "-m", "otel_rl.cli", "run", "--")
_FAILS = "import sys\nprint('loads the model')\nimport a_package_that_is_missing\n"
_MISSING = "ModuleNotFoundError: No module named 'a_package_that_is_missing'"

pytestmark = pytest.mark.slow


def launched(directory: Path, *command: str, **environment: str) -> str:
    """Run a command below `otel-rl run`, which must fail; return what it printed to standard error."""
    process = start([*_RUN, *command], directory, OTEL_RL_HARDWARE="false", **environment)
    _, errors = process.communicate(timeout=100)
    assert process.returncode != 0, errors
    return errors


def recorded(directory: Path) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return of each run how it ended, and its lines with their ranks; those of otel-rl itself are left out."""
    runs = [otel_rl.open_run(path.parent) for path in sorted(directory.glob("runs/*/*/run.json"))]
    outcome = "SELECT any_value(outcome) FROM attempts"
    lines = "SELECT rank, text FROM logs WHERE NOT starts_with(text, 'otel-rl') ORDER BY number"
    return [(str(lines_of(run.sql(outcome))[0][0]), lines_of(run.sql(lines))) for run in runs]


def _script(directory: Path, text: str, name: str = "train.py") -> str:
    (directory / name).write_text(text)
    return name


@pytest.mark.parametrize("is_file", [False, True])
def test_a_missing_package(tmp_path: Path, *, is_file: bool) -> None:
    """The run has what was printed before and the traceback, whether it went to a pipe or to a file."""
    command = [*_RUN, sys.executable, "-u", _script(tmp_path, _FAILS)]
    with (tmp_path / "output.txt").open("w") as file:
        streams = file if is_file else subprocess.PIPE
        subprocess.run(command, cwd=tmp_path, stdout=streams, stderr=streams, timeout=100, check=False)
    ((outcome, lines),) = recorded(tmp_path)

    assert outcome == "failed"
    assert lines[0] == (0, "loads the model")
    assert lines[-1] == (0, _MISSING)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [("sys.exit('no such model')", "failed"), ("sys.exit(3)", "failed"), ("raise KeyboardInterrupt", "")],
)
def test_other_ends(end: str, outcome: str, tmp_path: Path) -> None:
    """A status that says failure is one; a trainer that the user interrupts has no run."""
    launched(tmp_path, sys.executable, _script(tmp_path, f"import sys\n{end}\n"))

    assert [how for how, _ in recorded(tmp_path)] == [outcome] * bool(outcome)


def test_a_program_that_is_none(tmp_path: Path) -> None:
    """A tool that a trainer starts and that fails, and a child that it forks, are not recorded; the trainer is."""
    _script(tmp_path, "raise ValueError('of the tool')", "tool.py")
    text = "import os, subprocess, sys\nif not os.fork(): raise ValueError('of the child')\nos.wait()\n"
    text += "subprocess.run([sys.executable, 'tool.py'])\nraise ValueError('of the trainer')\n"
    launched(tmp_path, sys.executable, _script(tmp_path, text), RANK="0", WORLD_SIZE="1")

    ((_, lines),) = recorded(tmp_path)
    assert lines[-1] == (0, "ValueError: of the trainer")


def test_a_script_of_the_shell(tmp_path: Path) -> None:
    """A Python program that fails in a script is not known to train."""
    _script(tmp_path, _FAILS)
    launched(tmp_path, "bash", "-c", f"{sys.executable} train.py; exit 1")

    assert recorded(tmp_path) == []


def test_ranks(tmp_path: Path) -> None:
    """The ranks of a launcher that fail are one run, with the lines of each, and the launcher is none."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29711")
    launched(tmp_path, *torchrun, _script(tmp_path, _FAILS), PYTHONUNBUFFERED="1")
    ((outcome, lines),) = recorded(tmp_path)

    assert outcome == "failed"
    assert {line for line in lines if line[1] == _MISSING} <= {(0, _MISSING), (1, _MISSING)}
    assert any(text == _MISSING for _, text in lines)


def test_a_run_that_begins(tmp_path: Path) -> None:
    """Lines that were printed before `init` are its first ones; a failure behind its end begins no other run."""
    text = "import otel_rl\nprint('before')\nrun = otel_rl.init()\nprint('after')\nrun.finish(60)\nraise ValueError\n"
    launched(tmp_path, sys.executable, "-u", _script(tmp_path, text))

    assert recorded(tmp_path) == [("finished", [(0, "before"), (0, "after")])]


def test_init_that_fails(tmp_path: Path) -> None:
    """A script whose `init` has a wrong setting is a failed run, with the settings of the environment."""
    launched(tmp_path, sys.executable, _script(tmp_path, "import otel_rl\notel_rl.init(exporters=['nope'])\n"))
    ((outcome, lines),) = recorded(tmp_path)

    assert outcome == "failed"
    assert "unknown exporter 'nope'" in lines[-1][1]


def test_a_wrong_setting(tmp_path: Path) -> None:
    """Where no run can begin, one line says so, and the traceback of the trainer is the only one."""
    errors = launched(tmp_path, sys.executable, _script(tmp_path, _FAILS), OTEL_RL_ROWS_EVERY="x")

    assert recorded(tmp_path) == []
    assert errors.count("Traceback") == 1
    assert "is not recorded: invalid OTEL_RL_ROWS_EVERY" in errors


def test_output_that_is_not_wanted(tmp_path: Path) -> None:
    """With `OTEL_RL_OUTPUT=0`, the run has none of the lines."""
    launched(tmp_path, sys.executable, _script(tmp_path, _FAILS), OTEL_RL_OUTPUT="0")

    assert [lines for _, lines in recorded(tmp_path)] == [[]]


def test_secrets_of_the_settings(tmp_path: Path) -> None:
    """Patterns that were not known when a line was printed, or an exception logged, are removed from both."""
    text = "import logging\nprint('key ACME-123456')\ntry: raise ValueError('ACME-123456')\n"
    text += f"except ValueError: logging.getLogger('my').exception('ACME-123456')\n{_FAILS}"
    launched(tmp_path, sys.executable, _script(tmp_path, text), OTEL_RL_REDACT_PATTERNS=r"ACME-\d{6}")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "train.py"]
    ((_, lines),) = recorded(tmp_path)

    assert [text for _, text in lines if text.startswith("key")] == ["key [redacted]"]
    assert [path for path in files if b"ACME-123456" in path.read_bytes()] == []
