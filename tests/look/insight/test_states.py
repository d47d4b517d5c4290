"""The state of runs that were really recorded: live, finished, failed, crashed, lost, hung, empty."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.look.insight import Facts, facts_of
from otel_rl.recorder.archive.now import read_now
from tests.collector import wait_for
from tests.processes import run_python, start_python

_TRAINS = """
import os, signal, sys, time, otel_rl
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a script starts in the background
run = otel_rl.init(project="p", id="it", dir="runs", hardware=False, quiet=True, config={"max_steps": 40})
for step in range(int(sys.argv[1]), int(sys.argv[2])):
    with run.step(step):
        with run.phase("generate"):
            time.sleep(0.004)
        with run.phase("update_actor"):
            time.sleep(0.002)
            run.log({"reward": step / 10, "loss": 1.0})
            exec(sys.argv[3])
if sys.argv[3] == "pass":
    assert run.finish()
"""


def record(directory: Path, first: int, last: int, then: str = "pass") -> None:
    """Record steps in a process of its own; `then` is run in the second phase of each."""
    script = f"import sys; sys.argv = ['train.py', '{first}', '{last}', {then!r}]\n{_TRAINS}"
    if then == "pass":
        run_python(script, directory)
        return
    process = start_python(script, directory, OTEL_RL_IDLE_TIMEOUT="1")
    process.communicate()


def facts(directory: Path, at: int | None = None) -> Facts:
    return facts_of(otel_rl.open_run(directory / "runs" / "p" / "it"), at_unix_nano=at)


def ended(directory: Path) -> Facts:
    """Return the facts once the agent has ended."""
    run = directory / "runs" / "p" / "it"
    wait_for(lambda: bool(now := read_now(run)) and now[0].state == "ended", "the agent did not end", 100)
    return facts(directory)


def outcome(facts: Facts) -> str:
    (sentence,) = (finding.sentence for finding in facts.findings if finding.kind == "outcome")
    return sentence


def test_a_run_that_finished(tmp_path: Path) -> None:
    """Its summary has the steps, the process and the hyperparameter that says how many steps there are to be."""
    record(tmp_path, 0, 12)
    ended_run = ended(tmp_path)
    summary = ended_run.summary

    assert (summary.id, summary.project, summary.state, summary.reason) == ("it", "p", "finished", "")
    assert (summary.first_step, summary.last_step, summary.steps, summary.total_steps) == (0, 11, 12, 40)
    assert (summary.ranks, summary.attempts, summary.resumed_at) == (1, 1, ())
    assert summary.hosts == tuple(otel_rl.open_run(tmp_path / "runs" / "p" / "it").attempts["host"])
    assert outcome(ended_run).startswith("Finished after ")
    assert outcome(ended_run).endswith(": 12 steps.")
    assert {share.name for share in ended_run.shares} == {"generate", "update_actor", ""}


@pytest.mark.slow
def test_a_run_that_was_resumed(tmp_path: Path) -> None:
    """The steps of the last attempt count, and the summary says where it began."""
    record(tmp_path, 0, 8, "if step == 7: raise ValueError('no data')")
    ended(tmp_path)
    record(tmp_path, 5, 10)
    ended_run = ended(tmp_path)

    assert (ended_run.summary.attempts, ended_run.summary.resumed_at, ended_run.summary.steps) == (2, (5,), 10)
    assert outcome(ended_run).endswith(
        "10 steps, resumed once at step 5 (at step 7, rank 0 failed with ValueError: no data inside update_actor)."
    )


def test_a_run_that_failed(tmp_path: Path) -> None:
    """The exception, the rank, the step and the phase are named."""
    record(tmp_path, 0, 8, "if step == 5: raise ValueError('no data')")
    ended_run = ended(tmp_path)

    assert (ended_run.summary.state, ended_run.findings[0].severity) == ("failed", "bad")
    assert ended_run.summary.reason == "rank 0 failed with ValueError: no data inside update_actor"
    assert outcome(ended_run).startswith("Failed at step 5 after ")
    assert ended_run.findings[0].evidence.steps == (5, 5)
    assert ended_run.findings[0].evidence.phases == ("update_actor",)


def test_a_run_that_ran_out_of_memory(tmp_path: Path) -> None:
    """Whatever the framework calls the exception."""
    record(tmp_path, 0, 8, "if step == 5: raise MemoryError('1 TiB')")
    ended_run = ended(tmp_path)

    assert ended_run.summary.reason == "rank 0 ran out of memory inside update_actor"
    assert ended_run.findings[0].advice.startswith("Lower the micro-batch")


def test_a_run_that_was_stopped_by_a_signal(tmp_path: Path) -> None:
    """The signal is named."""
    record(tmp_path, 0, 8, "if step == 5: os.kill(os.getpid(), 2); time.sleep(9)")
    ended_run = ended(tmp_path)

    assert ended_run.summary.state == "cancelled"
    assert "SIGINT" in outcome(ended_run)


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    """The agent survives it, and knows the phase."""
    record(tmp_path, 0, 8, "if step == 5: os.kill(os.getpid(), 9)")
    ended_run = ended(tmp_path)

    assert ended_run.summary.state == "lost"
    assert ended_run.summary.reason in (  # older kernels do not say the signal
        "rank 0 was killed by SIGKILL inside update_actor",
        "rank 0 was killed or disappeared inside update_actor",
    )
    assert outcome(ended_run).startswith("Died at step 5 after ")


@pytest.mark.slow
def test_a_run_that_goes_on_then_hangs_then_has_no_agent(tmp_path: Path) -> None:
    """It is live at first, hangs when it has recorded nothing for long, and is lost if its agent is dead too."""
    script = (
        f"import sys; sys.argv = ['t', '0', '9', 'print(step, flush=True) or step < 8 or time.sleep(600)']\n{_TRAINS}"
    )
    process = start_python(script, tmp_path, OTEL_RL_STALLED_AFTER="40")
    assert process.stdout is not None
    while process.stdout.readline().strip() != "8":
        pass
    run = tmp_path / "runs" / "p" / "it"
    wait_for(lambda: any(p.step == 8 and p.phases for now in read_now(run) for p in now.processes), "not open", 60)
    wait_for(lambda: facts(tmp_path).summary.total_steps == 40 and facts(tmp_path).shares != (), "not archived", 60)
    live = facts(tmp_path)
    (now,) = read_now(run)
    wait_for(lambda: facts(tmp_path).summary.state == "hung", "it does not hang", 180)
    hangs = facts(tmp_path)
    os.kill(now.pid, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gone = facts(tmp_path, at=time.time_ns() + 3600 * 10**9)

    assert live.summary.state == "live"
    assert outcome(live).startswith("Running for ")
    assert " 8 steps of 40, " in outcome(live)
    assert hangs.summary.state == "hung"
    assert hangs.summary.reason.startswith("rank 0 is in update_actor for ")
    assert hangs.findings[0].evidence.ranks == (0,)
    assert f"`py-spy dump --pid {process.pid}`" in hangs.findings[0].advice
    assert any(" % hung" in finding.sentence for finding in hangs.findings if finding.kind == "goodput")
    assert gone.summary.state == "lost"
    assert "the agent has written nothing for" in gone.summary.reason


@pytest.mark.parametrize("kind", ["nothing", "started"])
def test_a_run_without_steps(tmp_path: Path, kind: str) -> None:
    """Nothing is concluded from nothing."""
    run = tmp_path / "runs" / "p" / "it"
    if kind == "nothing":
        run.mkdir(parents=True)
        (run / "run.json").write_text('{"id": "it", "project": "p", "name": "it"}')
        ended_run = facts(tmp_path)
        assert (ended_run.summary.state, outcome(ended_run)) == ("empty", "Nothing was recorded yet.")
    else:
        record(tmp_path, 0, 0)
        ended_run = ended(tmp_path)
        assert (ended_run.summary.state, ended_run.summary.steps) == ("finished", 0)
        assert outcome(ended_run).endswith(": 0 steps.")
    assert ended_run.metrics == ended_run.shares == ()
    assert [finding.kind for finding in ended_run.findings] == ["outcome"]


_RANKS = """
import os, sys, time, otel_rl
rank = int(os.environ["RANK"])
run = otel_rl.init(project="p", id="it", dir="runs", hardware=False, quiet=True)
for step in range(4):
    with run.step(step):
        with run.phase("generate"):
            if step == 3 and rank == 1:
                print("hangs", flush=True)
                time.sleep(600)
        with run.phase("weight_sync"):
            if step == 3:
                time.sleep(600)
"""


@pytest.mark.slow
def test_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    """Of three ranks that all record nothing, the one that is at another place hangs; the others wait in a phase."""
    settings = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "OTEL_RL_STALLED_AFTER": "5"}
    ranks = [start_python(_RANKS, tmp_path, RANK=str(n), LOCAL_RANK=str(n), **settings) for n in range(3)]
    run = tmp_path / "runs" / "p" / "it"

    def places() -> list[str]:
        return [
            process.phases[-1].name
            for now in read_now(run)
            for process in now.processes
            if process.step == 3 and process.phases
        ]

    wait_for(lambda: sorted(places()) == ["generate", "weight_sync", "weight_sync"], "they do not hang", 60)
    wait_for(lambda: len(facts(tmp_path).shares) > 1 and facts(tmp_path).summary.steps == 3, "not archived", 60)
    wait_for(lambda: facts(tmp_path).summary.state == "hung", "they do not hang", 60)
    (now,) = read_now(run)
    run_facts = facts(tmp_path)
    for process in ranks:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    os.kill(now.pid, signal.SIGTERM)

    assert run_facts.summary.state == "hung"
    assert re.fullmatch(r"rank 1 is in generate for [\d.]+ s; the others wait in weight_sync", run_facts.summary.reason)
    assert outcome(run_facts) == f"Hangs at step 3: {run_facts.summary.reason}."
    assert (run_facts.findings[0].evidence.ranks, run_facts.findings[0].evidence.phases) == ((1,), ("generate",))
    assert run_facts.findings[0].severity == "bad"


_FAILS = """
import time, otel_rl, failing
run = otel_rl.init(project="p", id="it", dir="runs", hardware=False, quiet=True, exporters=["jsonl", failing.Failing])
for step in range(30):
    with run.step(step):
        run.log({"loss": 1.0, "train": {"a": object()}})
run.finish(timeout=2)
"""


def test_an_exporter_that_fails(tmp_path: Path) -> None:
    """It is named, with its last error and how far it is behind."""
    (tmp_path / "failing.py").write_text(
        "class Failing:\n"
        "    def __init__(self, run): pass\n"
        "    def export(self, items): raise ConnectionError('429 Too Many Requests')\n"
        "    def shutdown(self): pass\n"
    )
    process = start_python(_FAILS, tmp_path, OTEL_RL_IDLE_TIMEOUT="1", PYTHONPATH=str(tmp_path))
    process.communicate()
    sentences = [finding.sentence for finding in facts(tmp_path).findings if finding.kind == "recording"]

    assert any("items behind (" in sentence and "429 Too Many Requests" in sentence for sentence in sentences), (
        sentences
    )


_NESTS = """
import time, otel_rl
run = otel_rl.init(project="p", id="it", dir="runs", hardware=False, quiet=True)
for step in range(6):
    with run.step(step), run.phase("update_actor"):
        with run.phase("update_actor"):
            time.sleep(0.003)
            with run.phase("optimizer_step"):
                time.sleep(0.006)
assert run.finish()
"""


def test_phases_inside_phases(tmp_path: Path) -> None:
    """Each moment counts for the innermost phase alone."""
    run_python(_NESTS, tmp_path)
    run_facts = facts(tmp_path)
    spans = otel_rl.open_run(tmp_path / "runs" / "p" / "it").sql(
        """SELECT phase, sum(outer_ns)::DOUBLE / 1e9 AS s FROM (
            SELECT phase, max(duration_ns) AS outer_ns FROM spans WHERE phase IS NOT NULL GROUP BY phase, step
        ) GROUP BY phase"""
    )
    took = dict(zip(spans["phase"].tolist(), spans["s"].tolist(), strict=True))
    shares = {share.name: share for share in run_facts.shares}
    named = next(finding for finding in run_facts.findings if finding.kind == "time").evidence.phases

    assert shares["optimizer_step"].seconds == pytest.approx(took["optimizer_step"])
    assert shares["update_actor"].seconds == pytest.approx(took["update_actor"] - took["optimizer_step"])
    assert sum(share.share for share in run_facts.shares) == pytest.approx(1)
    assert named[0] == run_facts.shares[0].name
