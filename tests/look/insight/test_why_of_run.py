"""Why a run is slow, stuck or dead: the answer for a run in each state, as the command and programs get it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Row
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.why.answer import Why
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.insight.why.logged_times import slow_by_logged
from otel_rl.look.insight.why.of_run import why
from otel_rl.recorder.archive.autopsies import FOLDER, Autopsy, StackGroup, Verdict
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.facts.signs import Stalled
from tests.look.insight.played import BEGAN, Played, play
from tests.look.recorded import STARTED, Shape, record
from tests.look.terminal.nows import S, hanging, process, wait, written

DEAD = "127.0.0.1:8000"


def asked(directory: Path) -> Why:
    return why(otel_rl.open_run(directory))


def examined(run: Path, at: int, sentence: str) -> None:
    """Put an autopsy of this time into a run directory."""
    verdict = Verdict(kind="lock", sentence=sentence, sure="likely", advice="Release it.")
    groups = (StackGroup(who=("rank 0",), does="waits", stack=("train.py:1 step",)),)
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    autopsy = Autopsy(run=str(run), time_unix_nano=at, hosts=("node0",), verdict=verdict, groups=groups)
    (folder / f"{at}.json").write_bytes(msgspec.json.encode(autopsy))


def stuck(directory: Path, host: str = "node0", stalled: tuple[Stalled, ...] | None = None) -> Path:
    """Return a run that hangs: rank 1 waits for rank 0, which waits for nobody."""
    ranks = [process(0, host=host), process(1, host=host)]
    waits = (wait("rank 1", "collective", "update_actor", ("rank 0",), age_s=400, step=812),)
    stalled = hanging() if stalled is None else stalled
    return written(directory, processes=ranks, stalled=stalled, waits=waits).path


def test_a_run_that_hangs(tmp_path: Path) -> None:
    """The answer says that it hangs, who is awaited and since when, and how to make an autopsy."""
    answer = asked(stuck(tmp_path / "a run"))

    assert answer.state == "hung"
    assert answer.sentences[0].startswith("Hangs at step 812")
    assert answer.sentences[1].startswith("rank 1 (step 812) waits for rank 0 in update_actor, since ")
    assert answer.advice == (f"Look at the stacks on node0: otel-rl autopsy '{tmp_path / 'a run'}'",)
    assert answer.owed is not None
    assert [one.debtors for one in answer.owed.waits] == [("rank 0",)]


def test_the_machine_of_the_autopsy(tmp_path: Path) -> None:
    """On the machine of the run, the command is enough."""
    assert asked(stuck(tmp_path / "run", socket.gethostname())).advice == (
        f"Look at the stacks: otel-rl autopsy {tmp_path / 'run'}",
    )


def test_the_autopsy_of_a_hang(tmp_path: Path) -> None:
    """The verdict of the newest autopsy takes the place of the command; its stacks stay in its file."""
    run = stuck(tmp_path / "run")
    examined(run, process().last_unix_nano, "Rank 0 waits for a lock.")
    answer = asked(run)

    assert answer.advice == ()
    assert answer.sentences[-1].startswith("Autopsy of ")
    assert answer.sentences[-1].endswith(": Rank 0 waits for a lock.")
    assert answer.autopsy is not None
    assert (answer.autopsy.verdict.advice, answer.autopsy.groups) == ("Release it.", ())


def test_an_autopsy_of_an_earlier_hang(tmp_path: Path) -> None:
    """An autopsy that is older than the last step is about another hang."""
    run = record(tmp_path / "run", Shape(steps=20, ends="crashed", error="boom"))
    examined(run, STARTED + S, "Rank 0 waits for a lock.")
    before = asked(run)
    examined(run, STARTED + 10_000 * S, "Rank 1 is stopped.")

    assert before.autopsy is None
    assert asked(run).sentences[-1].endswith(": Rank 1 is stopped.")


def test_a_wait_that_can_never_end(tmp_path: Path) -> None:
    """It is the first sentence as soon as it is known, before any deadline, and it is said once."""
    waits = (
        wait("rollout 0", "request", "policy", (DEAD,), cause="dead", culprits=(DEAD,)),
        wait("rank 0", "tool", "tool pytest"),
    )
    run = written(tmp_path / "run", waits=waits).path
    answer = asked(run)
    text = CliRunner().invoke(main, ["why", str(run), "--text"]).output

    assert answer.state == "live"
    assert answer.sentences[0].startswith("Rollout 0 waits in vain for policy from")
    assert "rank 0 waits for tool pytest" in answer.sentences[1]
    assert text.count("waits in vain") == 1
    assert "otel-rl why" not in text


def test_a_phase_that_is_unusual(tmp_path: Path) -> None:
    """Before any deadline, how unusual it is comes first, then what the newest autopsy says, or how to make one."""
    run = written(tmp_path / "run", processes=[process(usual_s=0.2)]).path
    before = asked(run)
    examined(run, process().last_unix_nano, "Rank 0 waits for a lock.")
    after = asked(run)

    assert before.sentences[0].endswith("times its usual time (200 ms).")
    assert before.advice[-1].startswith("Look at the stacks on node0: otel-rl autopsy")
    assert after.sentences[1].endswith(": Rank 0 waits for a lock.")
    assert (after.autopsy is not None, after.advice) == (True, ())


def test_a_rank_that_is_gone(tmp_path: Path) -> None:
    """While others go on, the answer says how it ended, and who waits for it."""
    lost = process(2, outcome="lost", cause="signal")
    answer = asked(written(tmp_path / "run", processes=[process(0), lost], waits=(wait("rank 0", "tool", "x"),)).path)

    assert answer.sentences[0].startswith("Rank 2 was killed ")
    assert "rank 0 waits for x" in answer.sentences[1]


@pytest.mark.parametrize("ends", ["failed", "crashed", "lost"])
def test_a_run_that_ended_badly(tmp_path: Path, ends: str) -> None:
    """The answer begins with how and why it ended, in the words of the findings, and explains no steps."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=20, ends=ends, error="RuntimeError: boom")))
    answer = why(run)

    assert answer.state == ends
    assert answer.sentences[0] == facts_of(run).findings[0].sentence
    assert answer.findings[0].kind == "outcome"
    assert answer.steps is None


def test_a_lasting_change(tmp_path: Path) -> None:
    """Without a slow step, it says since when steps take longer, and which phase grew, as the findings do."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=60, slower_from=30)))
    (changed,) = [finding for finding in facts_of(run).findings if finding.kind == "change"]
    answer = why(run)

    assert changed in answer.findings
    assert changed.sentence in answer.sentences
    assert "generate" in changed.sentence


def test_what_is_wrong_comes_before_what_is_slow(tmp_path: Path) -> None:
    """Whoever asks about a run that diverged gets that first, with what to do, whatever its steps took."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=60, nan_from=30, slower_from=40)))
    answer = why(run)
    wrong = [finding for finding in facts_of(run).findings if finding.severity in ("bad", "warning")]

    assert wrong[0].sentence.startswith("loss is NaN since step 30")
    assert answer.sentences[: len(wrong)] == tuple(finding.sentence for finding in wrong)
    assert answer.findings[0].advice


def test_slow_steps(tmp_path: Path) -> None:
    """They are explained, and the answer for programs has the same."""
    played = Played(phases=lambda step, _: {"generate": 60.0 if step == 3 else 10.0})
    play(tmp_path / "run", played, 8)
    result = CliRunner().invoke(main, ["why", str(tmp_path / "run"), "--json"])
    answer = msgspec.json.decode(result.output, type=Why)

    assert answer.steps is not None
    assert (answer.steps.steps, answer.steps.parts[0].name) == ((3,), "generate")
    assert "Step 3 took 1 min, usually 10 s." in answer.sentences
    assert answer.advice == ()


def test_the_first_step_is_a_warm_up(tmp_path: Path) -> None:
    """A first step that compiles does not make a run slow."""
    answer = why(play(tmp_path / "run", Played(phases=lambda step, _: {"generate": 10.0 + 50.0 * (step == 0)}), 12))

    assert answer.steps is None
    assert answer.advice == ("No step stands out. To explain one: otel-rl why --steps STEP",)


def test_a_run_that_is_well(tmp_path: Path) -> None:
    """The answer is its verdict: the first three findings."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=60)))
    answer = why(run)

    assert answer.sentences == tuple(finding.sentence for finding in facts_of(run).findings[:3])
    assert answer.findings == facts_of(run).findings[:3]


@pytest.mark.parametrize(("age_s", "is_named"), [(50, False), (100, False), (200, True)])
def test_the_waits_of_a_run_that_goes_on(tmp_path: Path, age_s: int, *, is_named: bool) -> None:
    """One that lasts three steps is named, here of 54.8 s; shorter ones are everyday life."""
    answer = asked(written(tmp_path / "run", waits=(wait("rank 0", "tool", "pytest", age_s=age_s),)).path)

    assert answer.state == "live"
    assert any("waits for pytest" in sentence for sentence in answer.sentences) is is_named


def test_steps_that_were_asked_for(tmp_path: Path) -> None:
    """The answer is about them alone; one step is named by its number, as `--steps 5` or as earlier versions did."""
    run = play(tmp_path / "run", Played(), 12)
    explained = explained_steps(run, (5, 5))
    answers = [
        json.loads(CliRunner().invoke(main, ["why", str(tmp_path / "run"), *options]).output)
        for options in (["--steps", "5"], ["5"], ["--from", "5", "--to", "5"])
    ]

    assert why(run, (5, 5)).steps == explained
    assert why(run, (5, 5)).sentences == (*explained.sentences, *explained.notes)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["steps"]["steps"] == [5]


def test_a_run_without_spans(tmp_path: Path) -> None:
    """Steps that were asked for cannot be explained: the error says how to record them."""
    run = otel_rl.init(dir=tmp_path, agent="off", exporters=[], quiet=True, id="one")
    run.log({"loss": 1.0}, step=0)
    run.finish(0)
    refused = CliRunner().invoke(main, ["why", str(tmp_path), "--steps", "0"])

    assert refused.exit_code == 1
    assert "give the trainer steps with run.step" in refused.output


@pytest.mark.parametrize(("of_phase", "is_named"), [(9.0, True), (1.0, False)])
def test_slow_steps_by_logged_times(tmp_path: Path, of_phase: float, *, is_named: bool) -> None:
    """Without spans, a phase is named whose logged time makes up most of what a step takes longer."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    (tmp_path / "run.json").write_text("{}")
    for step in range(40):
        is_slow = step in (20, 30)
        values = {"time/step": 14.0 if is_slow else 5.0, "timing_s/load": of_phase if is_slow else 0.1}
        writer.add(Row(step, BEGAN + step * S, {**values, "timing_s/gen": 4.0}, measured=("time/step",)))
    writer.save(seals=True)
    sentence = "Steps 20 and 30 took 14 s, usually 5 s: timing_s/load took 9 s, usually 100 ms."

    found = slow_by_logged(RecordedRun(otel_rl.open_run(tmp_path)))

    assert [finding.sentence for finding in found] == ([sentence] if is_named else [])


def test_an_empty_run(tmp_path: Path) -> None:
    """The answer says that nothing was recorded, and how to record."""
    answer = asked(written(tmp_path / "run", processes=[], state="ended", time_unix_nano=1).path)

    assert answer.sentences
    assert answer.steps is None


def test_owes_is_a_part_of_why(tmp_path: Path) -> None:
    """The earlier verb prints the sentences about waits that `why` prints."""
    run = stuck(tmp_path / "run")
    earlier = json.loads(CliRunner().invoke(main, ["owes", str(run)]).output)
    now = json.loads(CliRunner().invoke(main, ["why", str(run)]).output)

    assert earlier["sentences"][-1] in now["sentences"]
    assert earlier["waits"] == now["owed"]["waits"]
