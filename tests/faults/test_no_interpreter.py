"""Programs that have Python inside: the agent is started by an interpreter, never by the program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.files import programs
from tests.processes import rows_of, run_python


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which an application that has this Python inside notes its starts."""
    program = tmp_path / "trainer"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started.$$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "_base_executable", str(program), raising=False)
    return tmp_path


@pytest.fixture
def without_interpreter(application: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the same, where no interpreter is installed."""
    for prefix in ("exec_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, prefix, str(application))
    return application


def record(place: Path, **settings: object) -> otel_rl.Run:
    run = otel_rl.init(dir=place, project="p", exporters=["jsonl"], hardware=False, quiet=True, **settings)  # type: ignore[arg-type]
    run.log({"loss": 1.0}, step=0)
    return run


def test_the_installed_interpreter_starts_the_agent(application: Path) -> None:
    """An application whose Python is installed next to it, as below uWSGI, has an agent, and is not started again."""
    run = record(application)

    assert run.finish(30)
    assert [row["step"] for row in rows_of(run.dir)] == [0]
    assert [*application.glob("started.*")] == []


def test_no_interpreter(without_interpreter: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without one nothing is started: one line says how to deliver, at once also at the end, and it is delivered so."""
    run = record(without_interpreter)
    session = run._session
    session.check()
    session.check()
    result = run.finish(300)

    assert [*without_interpreter.glob("started.*")] == []
    line, end = caplog.messages
    assert line == (
        f"there is no agent: {sys.executable} is not a Python interpreter, and there is no {sys.exec_prefix}/bin/python"
        f"{sys.version_info.major}.{sys.version_info.minor}; to deliver the run, run with an installed otel-rl: "
        f"otel-rl agent {run.dir} --once"
    )
    assert (result.delivered, result.missing) == (False, line)
    assert line in end
    run_agent(run.dir, once=True)
    assert [row["step"] for row in rows_of(run.dir)] == [0]


def test_strict(without_interpreter: Path) -> None:
    """A strict run raises then."""
    with pytest.raises(otel_rl.SettingsError, match="is not a Python interpreter"):
        record(without_interpreter, strict=True)


def test_a_frozen_application(without_interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyInstaller has frozen is not an interpreter, whatever its name is."""
    program = (without_interpreter / "trainer").rename(without_interpreter / "python3")
    monkeypatch.setattr(sys, "executable", str(program))
    before = programs.interpreter()
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    assert before == str(program)
    with pytest.raises(programs.NoPythonError):
        programs.interpreter()


def test_an_agent_inside_of_an_archive(application: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the agent's file is inside of the application, as in PyInstaller's archive, there is no agent."""
    monkeypatch.setattr(agent_start, "_SUPERVISOR", application / "app" / "__main__.py")

    assert "there is no agent" in record(application).finish(300).missing


@pytest.mark.parametrize("name", ["python", "Python", "python3.13t", "python3.11-dbg", "pypy3.10", "python3.exe"])
def test_names_of_interpreters(without_interpreter: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An interpreter is known by its name."""
    program = (without_interpreter / "trainer").rename(without_interpreter / name)
    monkeypatch.setattr(sys, "executable", str(program))

    assert programs.interpreter() == str(program)


def test_a_link_with_another_name(without_interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to an interpreter is one."""
    (without_interpreter / "python3.11").touch(0o755)
    (without_interpreter / "trainer-python").symlink_to(without_interpreter / "python3.11")
    monkeypatch.setattr(sys, "executable", str(without_interpreter / "trainer-python"))

    assert programs.interpreter() == sys.executable


_GONE = """
import os, otel_rl
os.mkdir("gone")
os.chdir("gone")
os.rmdir(os.path.abspath("."))
run = otel_rl.init(dir=os.environ["PLACE"], project="p", exporters=["jsonl"], hardware=False, quiet=True)
run.log({"loss": 1.0}, step=0)
print(bool(run.finish(30)))
"""


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    """`python -c` in a directory that is gone: the agent starts, and delivers."""
    assert run_python(_GONE, tmp_path, PLACE=str(tmp_path)) == "True\n"
