"""`otel-rl watch`: agents for trainers that start none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.cli.verbs.watch import waiting
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import wait_for
from tests.processes import rows_of, run_python, start

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]
_TRAINER = """
import os, otel_rl, signal, time
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
run = otel_rl.init(project="p", id="watched", exporters=["jsonl"], quiet=True)
for n in range(5):
    run.log({"reward": n / 7}, step=n)
for _ in range(300):
    if WAITS and not agent_start.agent_is_alive(directories.at(run.dir)):
        time.sleep(0.1)
if DIES:
    os.kill(os.getpid(), signal.SIGKILL)
print(bool(run.finish(30)))
"""
_OFF = {"OTEL_RL_AGENT": "off", "OTEL_RL_IDLE_TIMEOUT": "2"}
_OFF |= {"OTEL_RL_HARDWARE_INTERVAL": "0.5", "OTEL_RL_HARDWARE_FLUSH_INTERVAL": "0.5"}


def trainer(*, dies: bool = False, waits: bool = False) -> str:
    """Return a trainer that kills itself at its end, or waits for an agent before it."""
    return _TRAINER.replace("DIES", str(dies)).replace("WAITS", str(waits))


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start([sys.executable, "-m", "otel_rl.cli", "watch", "runs", "--every", "0.2"], tmp_path)
    yield process
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)


def test_what_a_trainer_records_is_delivered(tmp_path: Path, watching: subprocess.Popen[str]) -> None:
    """And `finish` knows it, though the agent is not the trainer's."""
    output = run_python(trainer(waits=True), tmp_path, **_OFF)

    assert output.split() == ["True"]
    assert [row["step"] for row in rows_of(tmp_path / "runs" / "p" / "watched")] == list(range(5))


def test_a_trainer_that_was_killed_before(tmp_path: Path) -> None:
    """`watch` delivers the backlog of a killed trainer. The agent then ends, because no process is left to measure."""
    killed = start([sys.executable, "-c", trainer(dies=True)], tmp_path, **_OFF)
    killed.communicate(timeout=60)
    process = start([sys.executable, "-m", "otel_rl.cli", "watch", "runs", "--every", "0.2"], tmp_path)
    directory = tmp_path / "runs" / "p" / "watched"
    wait_for(lambda: len(rows_of(directory)) == 5, "the rows are not there", 60)
    wait_for(lambda: not agent_start.agent_is_alive(directories.at(directory)), "the agent does not end", 30)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=40)

    assert errors.count("otel-rl watch:") == 1, errors  # nothing is left to do, so nobody is started again


def test_a_machine_that_sends_to_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what its agent needs to know in a place of its own; it is found all the same."""
    monkeypatch.setenv("GROUP_RANK", "1")
    place = {"project": "p", "id": "sent", "rank": 1, "world_size": 2, "head": "127.0.0.1:4999"}
    run = otel_rl.init(**place, agent="off", exporters=[], quiet=True)  # type: ignore[arg-type] # as a mapping has it
    run.log({"reward": 1.0}, step=0)

    assert [directory.path for directory in waiting(tmp_path / "runs")] == [run.dir]


def test_agents_end_with_it(tmp_path: Path, watching: subprocess.Popen[str]) -> None:
    """A sidecar that receives SIGTERM ends its agents too."""
    script = trainer(waits=True).replace("print(bool(run.finish(30)))", "input()")
    killed = start([sys.executable, "-c", script], tmp_path, **_OFF)
    directory = tmp_path / "runs" / "p" / "watched"
    wait_for(lambda: len(rows_of(directory)) >= 4, "the rows are not there", 60)
    os.kill(watching.pid, signal.SIGTERM)
    watching.wait(40)

    assert not agent_start.agent_is_alive(directories.at(directory))
    killed.kill()
    killed.communicate()


def test_a_run_whose_agent_could_not_start(tmp_path: Path) -> None:
    """It is tried again, and said once; when the cause is gone, all is delivered."""
    killed = start([sys.executable, "-c", trainer(dies=True)], tmp_path, **_OFF)
    killed.communicate(timeout=60)
    directory = directories.at(tmp_path / "runs" / "p" / "watched")
    manifest = directory.manifest.read_bytes()
    directory.manifest.write_bytes(b"{")
    process = start([sys.executable, "-m", "otel_rl.cli", "watch", "runs", "--every", "0.2"], tmp_path)
    wait_for(lambda: directory.agent_log.exists() and "cannot start" in directory.agent_log.read_text(), "no try", 60)
    directory.manifest.write_bytes(manifest)
    wait_for(lambda: len(rows_of(directory.path)) == 5, "the rows are not there", 60)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=40)

    assert errors.count("will retry") == 1, errors
    assert "Traceback" not in directory.agent_log.read_text()


def test_a_run_that_somebody_has_put_there(tmp_path: Path) -> None:
    """Code that its manifest names is not imported: none of its processes lives, so no trainer has named it."""
    killed = start([sys.executable, "-c", trainer(dies=True)], tmp_path, **_OFF)
    killed.communicate(timeout=60)
    directory = directories.at(tmp_path / "runs" / "p" / "watched")
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass Exporter: pass\n")
    manifest = json.loads(directory.manifest.read_bytes())
    manifest["exporters"] = [["planted:Exporter", {}]]
    directory.manifest.write_text(json.dumps(manifest))
    process = start(
        [sys.executable, "-m", "otel_rl.cli", "watch", "runs", "--every", "0.2"], tmp_path, PYTHONPATH=str(tmp_path)
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)

    assert "run.json names code, planted:Exporter" in said
    assert not (tmp_path / "imported").exists()
    assert not directory.agent_log.exists()
