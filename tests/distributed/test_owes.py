"""The waits of a run of real processes: a trainer, two rollout workers and an HTTP engine, some of them killed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.recorder.archive.now import Wait, read_now
from tests.collector import answers, free_port, wait_for
from tests.processes import items_of, start, start_python

pytestmark = [pytest.mark.timeout(200), pytest.mark.slow]

_ENGINE = """
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        time.sleep(600)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["ENGINE"])), Handler).serve_forever()
"""
_TRAINER = """
import os, sys, time, otel_rl
run = otel_rl.init(id="owes", project="p", dir="runs", hardware=False, quiet=True, exporters=[])
print("ready", flush=True)
for line in sys.stdin:
    step, phase, attributes = eval(line)
    with run.step(step), run.phase(phase, **attributes):
        print("waits", flush=True)
        sys.stdin.readline()
run.finish(30)
"""
_WORKER = """
import http.client, os, sys, time, otel_rl
run = otel_rl.init(role="rollout", id="owes", project="p", dir="runs", hardware=False, quiet=True, exporters=[])
with run.trajectory(policy_version=0):
    pass
print("ready", flush=True)
port = int(os.environ["ENGINE"])
for line in sys.stdin:
    what, attributes = eval(line)
    with run.trajectory(policy_version=0, **attributes) as trajectory:
        if what == "request":
            where = {"server.address": "127.0.0.1", "server.port": port}
            with trajectory.part("model", name="policy", **where):
                print("waits", flush=True)
                while True:  # as a client that retries
                    try:
                        connection = http.client.HTTPConnection("127.0.0.1", port)
                        connection.request("POST", "/generate", "{}")
                        connection.getresponse()
                    except OSError:
                        time.sleep(0.05)
        elif what == "tool":
            with trajectory.part("tool", name="pytest"):
                print("waits", flush=True)
                sys.stdin.readline()
        else:
            with run.phase(what, awaits="rank 0"):
                print("waits", flush=True)
                sys.stdin.readline()
    print("done", flush=True)
run.finish(30)
"""


class Pipeline:
    """The processes of a run, each of which does what a line says."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "runs" / "p" / "owes"
        port = str(free_port())
        self.address = f"127.0.0.1:{port}"
        self.engine = start_python(_ENGINE, directory, ENGINE=port)
        wait_for(lambda: answers(int(port)), "the engine does not listen")
        ranks = [{"RANK": str(n), "WORLD_SIZE": "2", "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": "2"} for n in range(2)]
        self.trainer = self._start(_TRAINER, directory)
        self.workers = [self._start(_WORKER, directory, ENGINE=port, **of_rank) for of_rank in ranks]
        self.all = [self.engine, self.trainer, *self.workers]

    def _start(self, script: str, directory: Path, **environment: str) -> subprocess.Popen[str]:
        started = start([sys.executable, "-c", script], directory, stdin=subprocess.PIPE, **environment)
        self.heard(started, "ready")
        return started

    def heard(self, process: subprocess.Popen[str], what: str) -> None:
        """Wait until a process has said something."""
        assert process.stdout is not None
        assert process.stdout.readline().strip() == what

    def tell(self, process: subprocess.Popen[str], *what: Any, answer: str = "waits") -> None:
        """Tell a process what to do, and wait until it does it."""
        assert process.stdin is not None
        process.stdin.write(f"{what!r}\n" if what else "\n")
        process.stdin.flush()
        if answer:
            self.heard(process, answer)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What `now.json` says."""
        return tuple(wait for now in read_now(self.run) for wait in now.waits)

    def has(self, **fields: Any) -> bool:
        """Return whether somebody waits so."""
        return any(all(getattr(one, name) == value for name, value in fields.items()) for one in self.waits)

    def events(self, name: str) -> list[Any]:
        """Return the culprits in the events of a name."""
        return [item.attributes["rl.wait.culprits"] for item in items_of(self.run) if getattr(item, "name", "") == name]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    found = Pipeline(tmp_path)
    yield found
    for process in found.all:
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()


def said(pipeline: Pipeline) -> str:
    """Return what `otel-rl owes` prints on a terminal, after checking that a pipe gets the same as JSON."""
    text = CliRunner().invoke(main, ["owes", str(pipeline.run), "--text"]).output
    answer = json.loads(CliRunner().invoke(main, ["owes", str(pipeline.run)]).output)
    assert all(one in text for one in (*answer["verdicts"], *answer["sentences"]))
    return text


def test_an_engine_is_killed(pipeline: Pipeline) -> None:
    """The verdicts of the worker and of the trainer name the engine. Before, there are none."""
    pipeline.tell(pipeline.trainer, 812, "generate", {})
    for n, worker in enumerate(pipeline.workers):
        pipeline.tell(worker, "request", {"prompt_id": 37 + n})
    wait_for(lambda: pipeline.has(kind="request", debtors=(pipeline.address,)), "no request is seen")
    time.sleep(1.5)
    assert not any(one.cause for one in pipeline.waits)
    assert "step 812 is owed 2 of 2 groups: prompt 37, rollout 0, model policy, since" in said(pipeline)

    pipeline.engine.kill()
    wait_for(lambda: pipeline.has(kind="request", cause="dead", culprits=(pipeline.address,)), "no verdict")
    assert pipeline.has(kind="queue", waiter="rank 0", cause="dead", culprits=(pipeline.address,))
    assert f"nobody listens at {pipeline.address}" in said(pipeline)
    assert pipeline.events("rl.wait.broken") == [[pipeline.address]]


def test_a_worker_is_killed(pipeline: Pipeline) -> None:
    """Its trajectory never comes. The verdict is withdrawn when the trainer goes on."""
    pipeline.tell(pipeline.trainer, 3, "generate", {})
    pipeline.tell(pipeline.workers[0], "tool", {"prompt_id": 37})
    pipeline.tell(pipeline.workers[1], "tool", {"prompt_id": 38})
    wait_for(lambda: pipeline.has(kind="group", subject="prompt 37", doing="tool pytest"), "no group is seen")
    assert not any(one.cause for one in pipeline.waits)

    pipeline.workers[0].send_signal(signal.SIGKILL)
    wait_for(lambda: pipeline.has(kind="group", cause="dead", culprits=("rollout 0",)), "no verdict")
    assert "rank 0 (step 3) waits in vain for prompt 37 from rollout 0" in said(pipeline)

    pipeline.tell(pipeline.trainer, answer="")
    wait_for(lambda: pipeline.events("rl.wait.resumed") == [["rollout 0"]], "the verdict is not withdrawn")
    assert pipeline.events("rl.wait.broken") == [["rollout 0"]]


def test_two_processes_wait_for_each_other(pipeline: Pipeline) -> None:
    """Both are alive, and neither can go on."""
    pipeline.tell(pipeline.trainer, 3, "take_tickets", {"awaits": "rollout 1"})
    pipeline.tell(pipeline.workers[1], "pull_weights", {})
    wait_for(lambda: pipeline.has(cause="circle", culprits=("rank 0", "rollout 1")), "no verdict")

    assert "rank 0 and rollout 1 wait for each other in a circle" in said(pipeline)


def test_an_asynchronous_barrier(pipeline: Pipeline) -> None:
    """A worker that waits for the trainer by design, while it trains or waits for the other worker, gets no verdict."""
    pipeline.tell(pipeline.workers[0], "wait_for_version", {})
    pipeline.tell(pipeline.workers[1], "tool", {})
    for step, phase in enumerate(("update_actor", "actor_dequeue")):
        pipeline.tell(pipeline.trainer, step, phase, {})
        wait_for(lambda: pipeline.has(waiter="rollout 0", kind="ticket"), "no wait is seen")
        time.sleep(2)
        assert not any(one.cause for one in pipeline.waits)
        pipeline.tell(pipeline.trainer, answer="")
    assert pipeline.events("rl.wait.broken") == []


def test_a_run_that_has_ended(pipeline: Pipeline) -> None:
    """Nothing is owed; of a run that died, what was open."""
    for process in (*pipeline.workers, pipeline.trainer):
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    wait_for(lambda: "The run has ended (finished); nothing is owed." in said(pipeline), "it has not ended", 60)
