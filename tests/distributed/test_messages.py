"""Messages of a rollout worker that a trainer, in a process of its own, trains on: through their agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port, wait_for
from tests.faults.nodes import Nodes
from tests.faults.test_undelivered import ended, plain  # noqa: F401 - a fixture
from tests.processes import start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
_WORKER = """
import json, sys, otel_rl
run = otel_rl.init(role="rollout", exporters=[], hardware=False, quiet=True)
for line in sys.stdin:
    number = json.loads(line)
    with run.trajectory(policy_version=number, prompt_id=f"p{number % 2}", group_id=f"g{number}") as one:
        one.message("user", f"question {number}")
        with one.part("model"):
            one.generated(2)
        one.message("assistant", f"answer {number}", tokens=[number, 7], logprobs=[-0.5, -0.25], mask=[True, True])
        if number == 5:
            print("null", flush=True)  # it is killed inside of this trajectory
            sys.stdin.read()
        one.rewarded(number / 10, components={"verifier": number / 10})
    print(json.dumps(one.ticket()), flush=True)
run.finish(30)
"""


@pytest.mark.parametrize("kills_agent", [False, True])
def test_a_worker_and_a_trainer(tmp_path: Path, *, kills_agent: bool) -> None:
    """Each message is there once, with the step, the scores and the log-probabilities of the trainer.

    So it is if the agent is killed between the worker's records and the end of the step, and a worker in the middle of
    a trajectory.
    """
    run = otel_rl.init(dir=tmp_path / "runs", exporters=[], content=True, quiet=True, hardware=False)
    worker = start([sys.executable, "-c", _WORKER], tmp_path, stdin=subprocess.PIPE, **run.environment())
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for number in range(6):
            with run.step(number):
                worker.stdin.write(f"{number}\n")
                worker.stdin.flush()
                ticket = json.loads(worker.stdout.readline())
                if ticket is None:
                    worker.kill()
                    break
                if kills_agent and number == 3:
                    _kill_agent(run)
                scores = {"advantages": [0.5], "losses": [1.5], "logprobs": [[-1.0, -2.0]]}
                run.trained([ticket], policy_version=number + 1, **scores)
    assert run.finish(60), run.dir
    reader = otel_rl.open_run(run.dir)
    messages, trajectories = reader.messages(), reader.trajectories()
    both = "messages m JOIN trajectories t USING (trace_id, span_id)"
    joined = reader.sql(f"SELECT reward, m.step FROM {both} ORDER BY 2")

    assert [*zip(messages["step"], messages["author"], messages["text"], strict=True)] == [
        one for n in range(6) for one in ((n, "user", f"question {n}"), (n, "assistant", f"answer {n}"))
    ]
    assert set(messages["role"]) == {"rollout"}
    assert [list(one) for one in messages["trainer_logprobs"][1:-2:2]] == [[-1.0, -2.0]] * 5
    assert [list(one) for one in messages["tokens"][1::2]] == [[n, 7] for n in range(6)]
    assert [*zip(trajectories["prompt_id"], trajectories["group_id"], trajectories["loss"], strict=True)] == [
        (f"p{n % 2}", f"g{n}", 1.5) for n in range(5)
    ]
    assert [*joined["reward"]] == [n / 10 for n in range(5) for _ in range(2)]


def _kill_agent(run: otel_rl.Run) -> None:
    directory = directories.at(run.dir)
    wait_for(lambda: agent_start.read_status(directory).pid, "no agent")
    os.kill(agent_start.read_status(directory).pid, signal.SIGKILL)
    wait_for(lambda: not agent_start.agent_is_alive(directory), "the agent lives")


_MACHINE = """
import json, os, pathlib, time, otel_rl
os.environ.update(OTEL_RL_TOKEN="a-secret-of-the-tests", OTEL_RL_INSECURE="true")
place = dict(dir="runs", project="p", id="r", exporters=[], content=True, quiet=True, head=os.environ["HEAD"])
exchange, done = pathlib.Path("tickets.json"), pathlib.Path("done")
if os.environ["ME"] == "trainer":
    run = otel_rl.init(**place)
    while not exchange.exists():
        time.sleep(0.05)
    for number, ticket in enumerate(json.loads(exchange.read_text())):
        with run.step(number):
            run.trained([ticket], logprobs=[[-1.0, -2.0]])
    while not done.exists():
        time.sleep(0.05)
else:
    run = otel_rl.init(role="rollout", **place)
    tickets = []
    for number in range(5):
        with run.trajectory(group_id=f"g{number}") as one:
            one.message("user", f"question {number}")
            one.message("assistant", f"answer {number}", tokens=[number, 7], logprobs=[-0.5, -0.25])
        tickets.append(one.ticket())
    exchange.with_suffix(".draft").write_text(json.dumps(tickets))
    exchange.with_suffix(".draft").rename(exchange)
print(bool(run.finish(60)), flush=True)
done.touch()
"""


def test_a_worker_on_another_machine(plain: Nodes) -> None:  # noqa: F811 - a fixture
    """Its records travel to the head, which joins them with the steps; its own agent keeps none."""
    head = f"127.0.0.1:{free_port()}"
    started = [
        plain.start(host, _MACHINE, HEAD=head, ME=who, GROUP_RANK=number)
        for host, who, number in (("node1", "trainer", "0"), ("node2", "worker", "1"))
    ]
    for process in started:
        output, errors = process.communicate(timeout=100)
        assert (process.returncode, output) == (0, "True\n"), errors
    run_dir = plain.shared / "runs" / "p" / "r"
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived", 60)
    messages = otel_rl.open_run(run_dir).messages()

    assert [*zip(messages["step"], messages["text"], messages["machine"], strict=True)] == [
        one for n in range(5) for one in ((n, f"question {n}", "node1"), (n, f"answer {n}", "node1"))
    ]
    assert [list(one) for one in messages["trainer_logprobs"][1::2]] == [[-1.0, -2.0]] * 5
