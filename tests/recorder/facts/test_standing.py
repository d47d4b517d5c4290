"""The state of a run: one rule over the signs that a run gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.facts.outcome import RunExtent, outcome_sentence
from otel_rl.recorder.facts.signs import AgentReport, AttemptEnd, KnownProcess, LastStart, RunSigns, Stalled
from otel_rl.recorder.facts.standing import Standing, down_before, outcome_of, standing

S = 1_000_000_000
AT = 1_800_000_000 * S


def rank(number: int = 0, **changes: Any) -> KnownProcess:
    """Return a rank that is in a phase."""
    usual: dict[str, Any] = {"attempt": 0, "role": "", "rank": number, "host": "a", "last_unix_nano": AT - 9 * S}
    return KnownProcess(**usual | changes)


def died(number: int = 0, **changes: Any) -> KnownProcess:
    """Return a rank that was killed inside a phase."""
    usual = {"outcome": "lost", "cause": "signal", "step": 7, "phase": "update_actor", "down_order": 1}
    return rank(number, **usual | changes)


def report(*processes: KnownProcess, age_s: float = 1, **changes: Any) -> AgentReport:
    """Return the report of an agent that wrote it a second ago."""
    return AgentReport(
        **{"time_unix_nano": AT - round(age_s * S), "has_ended": False, "processes": processes} | changes
    )


def start(attempt: int = 0, age_s: float = 1, *, lives_here: bool | None = None) -> LastStart:
    return LastStart(attempt, AT - round(age_s * S), lives_here)


@pytest.mark.parametrize(
    ("signs", "state", "reason"),
    [
        (RunSigns(), "empty", ""),
        (RunSigns(start=start(age_s=3600)), "lost", "no agent has read what it recorded"),
        (RunSigns(start=start()), "live", "no agent has written yet"),
        (RunSigns(start=start(lives_here=False)), "lost", "no agent has read what it recorded"),
        (RunSigns(start=start(age_s=3600, lives_here=True)), "live", "no agent has written yet"),
        (RunSigns((report(),)), "live", "no process has recorded anything yet"),
        (RunSigns((report(rank()),)), "live", ""),
        (
            RunSigns((report(rank(), age_s=40),), start=start(age_s=99, lives_here=True)),
            "live",
            "its agent has written",
        ),
        (
            RunSigns((report(rank(), age_s=40),), start=start(age_s=99)),
            "lost",
            "no end was recorded, and the agent has",
        ),
        (RunSigns((report(rank(), has_ended=True),), start=start(age_s=99)), "lost", "no end was recorded"),
        (RunSigns(has_steps=True), "lost", "no end was recorded"),
        (RunSigns(has_steps=True, start=start(1, lives_here=True)), "live", ""),
        (RunSigns((report(rank(outcome="finished")),)), "finished", ""),
        (RunSigns((report(died()),)), "lost", "rank 0 was killed by SIGKILL inside update_actor"),
        (RunSigns((report(rank(), age_s=40),), ends=(AttemptEnd(0, "failed", "it", AT),)), "failed", "it"),
        (RunSigns(ends=(AttemptEnd(0, "cancelled", "SIGTERM", AT),)), "cancelled", "SIGTERM"),
    ],
)
def test_states(signs: RunSigns, state: str, reason: str) -> None:
    """A run is lost only if its agent is silent, no end is known, and no process of it lives here."""
    stands = standing(signs, AT)

    assert stands.state == state
    assert stands.reason.startswith(reason)
    assert bool(stands.reason) == bool(reason)


@pytest.mark.parametrize("lives_here", [True, None])
def test_an_attempt_that_has_just_begun(*, lives_here: bool | None) -> None:
    """A run that is resumed is live before the agent of the new attempt has written: the end was another attempt's."""
    before = (report(died(), has_ended=True, age_s=3600),)

    assert standing(RunSigns(before, start=start(1, lives_here=lives_here)), AT).state == "live"
    assert standing(RunSigns(before, start=start(1, 3600, lives_here=lives_here)), AT).state == (
        "live" if lives_here else "lost"
    )
    assert standing(RunSigns(before, start=start(0, lives_here=lives_here)), AT).state == "lost"


def test_who_ended_badly_first() -> None:
    """The reason names the first one, the state is that of the first rank, whatever came of the others."""
    worker = died(2, role="rollout", down_order=1, phase="", step=None, last_unix_nano=AT - 60 * S)
    failed = rank(1, outcome="failed", error="ValueError: no data", down_order=2, step=7, phase="generate")
    crashed = rank(0, outcome="crashed", error="SIGSEGV", down_order=3)
    stands = standing(RunSigns((report(crashed, failed, worker),)), AT)

    assert (stands.state, stands.ranks, stands.role) == ("failed", (2,), "rollout")
    assert stands.reason == "rollout 2 was killed by SIGKILL, then 2 others"


def test_a_worker_that_died_in_a_run_that_finished() -> None:
    """The run has finished, and its sentence names the worker."""
    worker = died(2, role="rollout", phase="", step=None, last_unix_nano=AT - 60 * S)
    stands = standing(RunSigns((report(rank(outcome="finished"), worker),)), AT)

    assert (stands.state, stands.reason) == ("finished", "rollout 2 was killed by SIGKILL")
    assert outcome_sentence(stands, RunExtent(AT - 60 * S, AT, steps=3), AT) == (
        "Finished after 1 min: 3 steps; rollout 2 was killed by SIGKILL."
    )


def test_a_worker_that_its_creator_stopped() -> None:
    """It is not missing: a pool of workers shrinks while ranks go on."""
    worker = rank(2, role="rollout", outcome="cancelled", error="SIGTERM")

    assert standing(RunSigns((report(rank(), worker),)), AT) == Standing("live")


def test_a_rank_whose_place_another_process_has() -> None:
    """It is not missing, and a run that ended with its successor ended well."""
    lost, successor = died(0, last_unix_nano=AT - 60 * S), rank(0)

    assert standing(RunSigns((report(lost, successor),)), AT) == Standing("live")
    assert standing(RunSigns((report(lost, rank(0, outcome="finished")),)), AT).state == "finished"


def test_a_machine_that_took_part_in_an_earlier_attempt_alone() -> None:
    """Its last report says nothing about the run now."""
    earlier, now = report(died(3), has_ended=True, age_s=3600), report(rank(attempt=1))

    assert standing(RunSigns((now, earlier)), AT) == Standing("live")


def test_a_run_that_lacks_several() -> None:
    """The worst is said: a process that died rather than a machine from which nothing arrives."""
    since = AT - 60 * S
    late = {"since_unix_nano": since, "silent_since_unix_nano": since, "deadline_s": 60.0}
    quiet = Stalled(kind="silent", scope="process", rank=1, host="b", **late)
    whole = report(rank(0), rank(1, host="b"), stalls=(quiet,))
    part = report(rank(0), rank(1, host="b"), died(2), stalls=(quiet,))

    assert standing(RunSigns((whole,)), AT).lacks == "machine"
    assert standing(RunSigns((part,)), AT).lacks == "process"


OUTCOMES = st.sampled_from(["finished", "failed", "cancelled", "crashed", "lost"])


@given(st.permutations(range(5)), st.lists(OUTCOMES, min_size=5, max_size=5))
def test_the_order_in_which_processes_are_listed_does_not_matter(order: list[int], outcomes: list[Any]) -> None:
    """The same processes in another order are the same run."""
    processes = [
        rank(n, outcome=outcome, down_order=0 if outcome == "finished" else n + 1) for n, outcome in enumerate(outcomes)
    ]
    mixed = [processes[n] for n in order]

    assert standing(RunSigns((report(*mixed),)), AT) == standing(RunSigns((report(*processes),)), AT)
    assert outcome_of(mixed) == next((outcome for outcome in outcomes if outcome != "finished"), "finished")


def test_the_attempt_before() -> None:
    """The first process that ended badly in the last earlier attempt in which one did."""
    first, second = died(0, attempt=0), died(1, attempt=2, down_order=1)
    others = [died(0, attempt=2, down_order=2), rank(0, attempt=3, outcome="finished"), died(0, attempt=4)]

    assert down_before([first, second, *others], 4) == second
    assert down_before([first, *others], 2) == first
    assert down_before([first], 0) is None


@pytest.mark.parametrize(
    ("stands", "sentence"),
    [
        (Standing("empty"), "Nothing was recorded yet."),
        (
            Standing("finished"),
            "Finished after 2 min: 1,200 steps, resumed once at step 640 (at step 7, rank 1 was killed",
        ),
        (Standing("live"), "Running for 3 min: 1,200 steps of 2,000, 41 s each in the last 20 steps, resumed once"),
        (
            Standing("live", "it is gone", lacks="process"),
            "It is gone, and has not come back: 1,200 steps of 2,000 in 3 min.",
        ),
        (Standing("live", "no agent has written yet", lacks="report"), "Resumes: no agent has written yet."),
        (Standing("hung", "rank 0 is in a", 7), "Hangs at step 7: rank 0 is in a."),
        (Standing("cancelled", "rank 0 was", 1234), "Cancelled at step 1,234 after 2 min: rank 0 was."),
        (Standing("lost", "no end"), "Died after 1,200 steps in 2 min: no end."),
    ],
)
def test_sentences(stands: Standing, sentence: str) -> None:
    """How it ended, when, and why; or how far it is."""
    before = died(1)
    extent = RunExtent(
        AT - 180 * S, AT - 60 * S, 0, 1199, 1200, 2000, resumed_at=(640,), recent_step_seconds=41.0, before=before
    )

    assert outcome_sentence(stands, extent, AT).startswith(sentence)


def test_sentences_of_a_run_without_steps() -> None:
    """Nothing is said of steps that are not there."""
    begun = RunExtent(AT - 3 * S, AT)

    assert outcome_sentence(Standing("finished"), RunExtent(), AT) == "Finished."
    assert outcome_sentence(Standing("finished"), RunExtent(steps=30), AT) == "Finished: 30 steps."
    assert outcome_sentence(Standing("live"), begun, AT) == "Running for 3 s, before its first step."
    assert outcome_sentence(Standing("failed", "it"), begun, AT) == "Failed before its first step: it."
    assert outcome_sentence(Standing("live", "no agent has written yet", lacks="report"), RunExtent(), AT) == (
        "Starts: no agent has written yet."
    )
