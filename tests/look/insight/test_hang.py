"""Whether a run hangs, from what its agents wrote last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import otel_rl
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.owed import owed
from otel_rl.look.terminal.listing import table
from otel_rl.recorder.archive.autopsies import FOLDER, Autopsy, Verdict
from otel_rl.recorder.archive.now import PhaseNow, ProcessNow, read_now
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.reports import reports_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.signs import Stalled
from otel_rl.recorder.facts.standing import gone, hang
from tests.look.terminal.nows import S, process, wait, written

AT = 1_800_000_000 * S


def stalled(rank: int = 0, **changes: Any) -> Stalled:
    """Return a rank that hangs for 300 s, like all others."""
    usual: dict[str, Any] = {"kind": "hung", "scope": "job", "rank": rank, "host": "node0", "phase": "weight_sync"}
    return Stalled(**usual | {"since_unix_nano": AT - 300 * S, "deadline_s": 60.0} | changes)


@pytest.mark.parametrize(
    ("verdicts", "hangs"),
    [
        ((stalled(),), True),
        ((stalled(kind="slow"),), False),
        ((stalled(scope="process"),), False),
        ((stalled(role="rollout", scope="process"), stalled()), True),
        ((), False),
    ],
)
def test_which_verdicts_make_a_run_hang(tmp_path: Path, verdicts: tuple[Stalled, ...], *, hangs: bool) -> None:
    """One of the agent on the whole job: a slow run and one process are not a run that hangs."""
    place = written(tmp_path, stalled=verdicts, time_unix_nano=AT)

    assert (hang(reports_of(read_now(place.path)), AT) is not None) is hangs


def test_a_verdict_of_an_agent_that_is_dead(tmp_path: Path) -> None:
    """It says nothing about the present."""
    place = written(tmp_path, stalled=(stalled(),), time_unix_nano=AT)

    assert hang(reports_of(read_now(place.path)), AT + 40 * S) is None


def test_all_viewers_say_the_same(tmp_path: Path) -> None:
    """The list, the terminal and the report have the state and the reason of one rule."""
    last = AT - 300 * S
    ranks = [
        process(rank, phases=(PhaseNow("generate" if rank else "weight_sync", last),), last_unix_nano=last)
        for rank in range(3)
    ]
    place = written(tmp_path / "r", processes=ranks, stalled=(stalled(),), time_unix_nano=AT)
    shown = present_of(place, AT)
    summary = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT).summary

    assert shown.reason == summary.reason == "rank 0 is in weight_sync for 5 min; the others wait in generate"
    assert shown.state == summary.state == "hung"


def test_what_to_do_is_what_the_autopsy_of_this_hang_says(tmp_path: Path) -> None:
    """Until there is one, and of one that is about an earlier moment, it is how to ask, with the run's name."""
    broken = wait("rank 1", "ticket", "take", ("rollout 3",), cause="dead", culprits=("rollout 3",))
    broken = msgspec.structs.replace(broken, since_unix_nano=AT - 200 * S)
    place = written(tmp_path, stalled=(stalled(),), waits=(broken,), processes=[process(0)], time_unix_nano=AT)
    run = otel_rl.open_run(place.path)

    def advice() -> str:
        return " ".join(finding.advice for finding in facts_of(run, at_unix_nano=AT).findings)

    def examine(sentence: str, seconds: int) -> None:
        verdict = Verdict(kind="sleeps", sentence=sentence, advice="Wake it.")
        made = Autopsy(run=str(place.path), time_unix_nano=AT - seconds * S, verdict=verdict)
        (place.path / FOLDER).mkdir(exist_ok=True)
        (place.path / FOLDER / f"{1000 - seconds:04}.json").write_bytes(msgspec.json.encode(made))

    examine("Rank 0 slept in an earlier hang.", 900)
    assert f"`otel-rl why {place.path}` shows all waits; `otel-rl autopsy {place.path}` shows the stacks." in advice()
    assert "earlier" not in advice()

    place = written(tmp_path, stalled=(stalled(),), processes=[process(0)], time_unix_nano=AT)
    examine("Rank 0 sleeps at train.py:7.", 100)
    clock = wording.clock(AT - 100 * S)
    expected = f"Autopsy of {clock}: Rank 0 sleeps at train.py:7. Wake it. All of it: `otel-rl why {place.path}`."
    assert facts_of(run, at_unix_nano=AT).findings[0].advice == expected


def lost(rank: int = 1, **changes: Any) -> Any:
    return process(rank, host="node0", phases=(), **{"outcome": "lost", "cause": "signal"} | changes)


def test_a_run_that_lacks_a_rank(tmp_path: Path) -> None:
    """All viewers name it at once, and a hang is not blamed on those who wait for it."""
    place = written(tmp_path / "live", processes=[process(0, last_unix_nano=AT), lost()], time_unix_nano=AT)
    facts = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT)
    first = facts.findings[0]
    stuck = written(tmp_path / "hung", processes=[process(0), lost()], stalled=(stalled(),), time_unix_nano=AT)
    hung = facts_of(otel_rl.open_run(stuck.path), at_unix_nano=AT).summary

    assert (facts.summary.state, first.kind, first.severity) == ("live", "outcome", "bad")
    assert re.match(r"Rank 1 was killed by SIGKILL at [\d:]+, and has not come back: 812 steps", first.sentence)
    assert facts.summary.reason == present_of(place, AT).reason
    assert re.match(r"rank 1 was killed .*; rank 0 is in weight_sync for 5 min", hung.reason)
    assert hung.reason == present_of(stuck, AT).reason


@pytest.mark.parametrize(
    "others",
    [[process(1, pid=7)], [process(1, pid=7, outcome="finished", last_unix_nano=AT)]],
    ids=["runs", "finished"],
)
def test_a_rank_that_came_back(tmp_path: Path, others: list[ProcessNow]) -> None:
    """It is not missing: another process has its place."""
    place = written(tmp_path, processes=[process(0), lost(last_unix_nano=AT - 9 * S), *others], time_unix_nano=AT)

    assert gone(reports_of(read_now(place.path))) == []


def quiet(rank: int, **changes: Any) -> Stalled:
    return stalled(rank, kind="silent", host="node1", phase="gen", silent_since_unix_nano=AT - 99 * S, **changes)


def test_a_rank_of_a_silent_machine(tmp_path: Path) -> None:
    """While others go on the run is live; all viewers name the machine, and say that the rank may be well."""
    ranks = [process(0, host="node0", last_unix_nano=AT), process(1, host="node1", last_unix_nano=AT - 99 * S)]
    place = written(tmp_path, processes=ranks, stalled=(quiet(1, scope="process"),), time_unix_nano=AT, waits=())
    first = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT).findings[0]
    shown = present_of(place, AT)
    reason = f"nothing arrives from node1 since {wording.clock(AT - 99 * S)}; rank 1 may be well"

    assert (shown.state, shown.reason) == ("live", reason)
    assert (first.severity, first.evidence.ranks) == ("warning", (1,))
    assert first.sentence.startswith(f"N{reason[1:]}: 812 steps of 1,200 in")
    assert "agent.log" in first.advice
    assert owed(place, AT).sentences[0] == f"N{reason[1:]}."


def test_ranks_that_wait_for_a_silent_machine(tmp_path: Path) -> None:
    """The run hangs if all others wait; if no rank is heard, nothing is known."""
    ranks = [process(rank, host=f"node{rank}") for rank in range(2)]
    waits = written(tmp_path / "a", processes=ranks, stalled=(quiet(1),), time_unix_nano=AT)
    alone = written(tmp_path / "b", processes=ranks[1:], stalled=(quiet(1),), time_unix_nano=AT)

    assert re.fullmatch(
        r"nothing arrives from node1 since .*; the others wait in generate", present_of(waits, AT).reason
    )
    assert (present_of(waits, AT).state, present_of(alone, AT).state) == ("hung", "live")


def test_a_silent_machine_and_a_rank_that_is_gone(tmp_path: Path) -> None:
    """Both are named, and the severity and the advice are those of the rank that is gone."""
    ranks = [process(0, host="node0", last_unix_nano=AT), process(1, host="node1"), lost(2)]
    place = written(tmp_path, processes=ranks, stalled=(quiet(1, scope="process"),), time_unix_nano=AT)
    first = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT).findings[0]

    assert (first.severity, first.evidence.ranks) == ("bad", (2,))
    assert re.match(r"Nothing arrives from node1 .*; rank 2 .* was killed .*, and has not come back", first.sentence)
    assert "otel-rl why" in first.advice


def test_the_list_marks_a_run_that_lacks_a_rank(tmp_path: Path) -> None:
    """A run that goes on with all of its ranks has no mark, nor one whose processes have not recorded anything."""
    lacks = present_of(written(tmp_path / "a", processes=[process(0), lost()], time_unix_nano=AT), AT)
    whole = present_of(written(tmp_path / "b", processes=[process(0)], time_unix_nano=AT), AT)
    empty = present_of(written(tmp_path / "c", processes=[], time_unix_nano=AT), AT)
    _, *rows = ["".join(span.text for span in row) for row in table([lacks, whole, empty], 80, AT)]

    assert ["● live !" in row for row in rows] == [True, False, False]
    assert ["● live" in row for row in rows] == [True, True, True]


def test_a_wait_that_can_never_end_is_a_finding(tmp_path: Path) -> None:
    """In the words of `otel-rl why`, as long as the run goes on."""
    vain = wait("rank 0", "request", "POST", ("engine:8000",), cause="dead", culprits=("engine:8000",))
    place = written(tmp_path, waits=(vain,), time_unix_nano=AT)
    run = otel_rl.open_run(place.path)

    assert [finding.sentence for finding in facts_of(run, at_unix_nano=AT).findings if finding.kind == "wait"] == [
        verdict.replace("rank", "Rank", 1) for verdict in owed(place, AT).verdicts
    ]
    assert not [finding for finding in facts_of(run, at_unix_nano=AT + 60 * S).findings if finding.kind == "wait"]


def test_what_was_lost_is_a_finding(tmp_path: Path) -> None:
    """Items that were lost are a warning, values that were refused a note; a step that is not over lost nothing."""
    counts = {"outbox_full": 3, "refused_types": 2, "unfinished": 1}
    run = otel_rl.open_run(written(tmp_path, lost=counts, exporters=[], time_unix_nano=AT).path)
    facts = facts_of(run, at_unix_nano=AT)

    assert [(each.severity, each.sentence) for each in facts.findings if "(" in each.sentence] == [
        ("warning", "3 items were lost (outbox full 3)."),
        ("note", "2 values were refused (refused types 2)."),
    ]
