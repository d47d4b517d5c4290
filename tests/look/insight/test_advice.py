"""Advice of findings: each where it helps, since it goes once somebody follows it, and where nothing is to be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Row
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import PhaseShare
from otel_rl.look.insight.findings.change_cause import cause_of
from otel_rl.look.insight.findings.goodput import goodput
from otel_rl.look.insight.findings.outcome import outcome
from otel_rl.look.insight.findings.step_change import Change
from otel_rl.look.insight.findings.time_spent import time_spent
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.samples.remarks.faulty_texts import faults
from otel_rl.look.insight.shifts import Shift
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.facts.goodput import TRAINED
from otel_rl.recorder.facts.outcome import RunExtent
from otel_rl.recorder.facts.standing import Standing
from tests.look.insight.played import BEGAN, GIB, PHASES, Played, S, play
from tests.look.insight.test_text_rules import _samples as texts_of

STEPS = 24
HALF = STEPS // 2


def logs(values: Mapping[str, float], **more: Any) -> Played:
    """Return a training that logs the same values in each step."""
    return Played(values=lambda _step, _rank: values, **more)


def ages(age: int, stale: int) -> Played:
    """Return a training on samples of an age, of which so many of 100 are dropped."""
    tickets = lambda step, number: [{"tokens": 5, "policy_version": max(0, step - age)}] * number  # noqa: E731
    return Played(tickets=lambda step: {"trained": tickets(step, 100 - stale), "stale": tickets(step, stale)})


def signs(kind: str, course: Callable[[int], float], value: float, usual: float, metric: str = "policy/x") -> Played:
    """Return a training in which the agent found something in the course of a metric, at the half."""
    attributes = {
        semconv.ANOMALY_KIND: kind,
        semconv.METRIC_NAME: metric,
        semconv.ANOMALY_VALUE: value,
        semconv.ANOMALY_USUAL: usual,
        semconv.ANOMALY_EVIDENCE: f"went from {usual} to {value}",
    }
    happens = {HALF: [(0, semconv.EVENT_TRAINING_ANOMALY, attributes)]}
    return Played(values=lambda step, _rank: {metric: course(step)}, happens=happens)


def until(change: int, before: float, after: float) -> Callable[[int], float]:
    """Return a course that changes once."""
    return lambda step: before if step < change else after


def rounds(*events: str) -> Played:
    """Return a training with events about its weights."""
    message = "version 3 of rank 0: samples of the weights are equal to those of version 2"
    happens = {3: [(0, event, {"rl.weights.message": message}) for event in events]}
    return Played(happens=happens)


class Case(NamedTuple):
    """An advice, a training that gets it, and the same one after somebody followed it."""

    advice: str
    given: Played
    followed: Played


CASES = [
    Case("Draw prompts", logs({"frac_reward_zero_std": 0.8}), logs({"frac_reward_zero_std": 0.1})),
    Case("Sync weights more often", ages(8, 0), ages(1, 0)),
    Case("Allow older samples", ages(1, 40), ages(3, 1)),
    Case("Raise the limit", logs({"completions/clipped_ratio": 0.5}), logs({"completions/clipped_ratio": 0.01})),
    Case("Send fewer requests", logs({"engine/preemptions": 9.0}), logs({"engine/preemptions": 0.0})),
    Case(
        "More engines",
        logs({"vllm/num_requests_waiting": 90.0, "vllm/num_requests_running": 8.0}),
        logs({"vllm/num_requests_waiting": 1.0, "vllm/num_requests_running": 64.0}),
    ),
    Case(
        "The policy no longer explores",
        signs("collapse", until(HALF, 0.6, 0.01), 0.01, 0.6),
        signs("collapse", lambda step: 0.01 if step == HALF else 0.6, 0.01, 0.6),
    ),
    Case("Its coefficient is above 0", signs("constant", lambda _: 0.2, 0.2, 0.2), signs("constant", float, 0.2, 0.2)),
    Case(
        "Look at samples: the verifier",
        signs("constant", lambda _: 0.5, 0.5, 0.5, "reward"),
        signs("constant", float, 0.5, 0.5, "reward"),
    ),
    Case(
        "Look at samples: completions",
        signs("bound", until(HALF, 0.5, 1.0), 1.0, 1.0),
        signs("bound", lambda step: 1.0 if step == HALF else 0.5, 1.0, 1.0),
    ),
    Case(
        "Compare samples from before",
        signs("rise", until(HALF, 1.0, 5.0), 5.0, 1.0),
        signs("rise", lambda step: 5.0 if step == HALF else 1.0, 5.0, 1.0),
    ),
    Case(
        "Take the checkpoint before",
        signs("regression", until(HALF, 0.9, 0.2), 0.2, 0.9, "eval/x"),
        signs("regression", lambda step: 0.2 if step == HALF else 0.9, 0.2, 0.9, "eval/x"),
    ),
    Case("The metric is not what its name says", signs("outside", lambda _: 1.4, 1.4, 1.0), logs({"policy/x": 0.4})),
    Case("Check the weights", signs("sum", lambda _: 0.9, 0.9, 0.4, "reward"), logs({"reward": 0.4})),
    Case("Set logging_nan_inf_filter", signs("hidden_nan", lambda _: 0.0, 0.0, 0.1, "loss"), logs({"loss": 0.1})),
    Case("A longer batch may", Played(memory=lambda *_: 79.5 * GIB), Played(memory=lambda *_: 72.0 * GIB)),
    Case("Samples cannot prove", rounds(semconv.EVENT_POLICY_ROUNDED), rounds()),
    Case("Look at the weight sync of this tensor", rounds(semconv.EVENT_POLICY_DIVERGED), rounds()),
]


def advice_for(place: Path, training: Played) -> list[str]:
    """Return all advice that a training gets."""
    return [finding.advice for finding in facts_of(play(place, training, STEPS)).findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.advice)
def test_advice_that_helps(case: Case, tmp_path: Path) -> None:
    """It is given, and no longer after somebody followed it."""
    given, followed = advice_for(tmp_path / "given", case.given), advice_for(tmp_path / "followed", case.followed)

    assert any(advice.startswith(case.advice) for advice in given), given
    assert not any(advice.startswith(case.advice) for advice in followed), followed


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Return a training of which nothing is wrong."""
    return RecordedRun(play(tmp_path_factory.mktemp("well") / "run", Played(), STEPS))


@pytest.mark.parametrize(
    ("loss", "advice"),
    [
        ("repeated", "Write checkpoints more often."),
        ("down", "Restart failed jobs automatically."),
        ("between", "Look at what the trainer does between two steps."),
        (
            "sync",
            "Look at what the sync waits for: a timer, busy engines, or the transfer of tensors.",
        ),
        ("waiting", "Balance rollout workers and trainers: one waits for the other."),
        ("evaluation", "Evaluate less often, or on fewer prompts."),
        ("checkpoint", "Write checkpoints asynchronously."),
        ("none", "Mark the rest of the step with `run.phase`."),
    ],
)
def test_the_largest_loss_of_time(recorded: RecordedRun, loss: str, advice: str) -> None:
    """Its advice is given; not where it is small, and not where another loss is larger."""
    (large,) = goodput(recorded, {TRAINED: 0.4, loss: 0.6})
    (small,) = goodput(recorded, {TRAINED: 0.9, loss: 0.1})
    (second,) = goodput(recorded, {TRAINED: 0.2, loss: 0.3, "end": 0.5})

    assert (large.advice, small.advice, second.advice) == (advice, "", "")


def test_time_in_no_phase() -> None:
    """Phases are asked for where a quarter of the time is in none."""
    shares = [
        [
            PhaseShare(name="gen", category="rollout", seconds=1, share=1 - rest),
            PhaseShare(name="", category="none", seconds=1, share=rest),
        ]
        for rest in (0.4, 0.1)
    ]

    assert [time_spent(each)[0].advice.partition(",")[0] for each in shares] == [
        "Mark the rest of the step with `run.phase`",
        "",
    ]


def test_a_driver_that_became_slower(recorded: RecordedRun) -> None:
    """Its phases are asked for where none of those that are known grew."""
    change = Change(recorded, Shift(10, 40.0, 60.0, 0, 20), (0, 9), (10, 20), is_sudden=True)
    gone = change._replace(shift=Shift(10, 40.0, 40.0, 0, 20))

    assert cause_of(change, []).advice.startswith("Give the driver's own work phases")
    assert cause_of(gone, []).advice == ""


def test_a_rank_that_became_slower_alone(tmp_path: Path) -> None:
    """It is compared with the others where no finding says how much they wait for it, and not where all are slower."""

    def cause(slower: tuple[int, ...]) -> str:
        phases = lambda step, rank: {**PHASES, "generate": 48 if step >= HALF and rank in slower else 24}  # noqa: E731
        run = RecordedRun(play(tmp_path / str(len(slower)), Played(ranks=4, phases=phases), STEPS))
        shift = Shift(HALF, 40.0, 64.0, 0, STEPS - 1)
        return cause_of(Change(run, shift, (0, HALF - 1), (HALF, STEPS - 1), is_sudden=True), []).advice

    assert cause((1,)).startswith("Compare rank 1 with the others: its samples")
    assert cause((0, 1, 2, 3)).startswith("Look at generate in the timeline")


@pytest.mark.parametrize(
    ("standing", "advice"),
    [
        (Standing("lost", "no end was recorded"), "Look at the kernel log"),
        (Standing("crashed", "rank 0 failed with ValueError: x"), "Start it again with the same id"),
        (Standing("failed", "OutOfMemoryError: CUDA out of memory"), "Lower the micro-batch"),
        (Standing("failed", "rank 0 was killed for lack of host memory"), "Give the job more host memory"),
        (Standing("lost", "no agent has read what it recorded", lacks="report"), "Deliver it with"),
        (Standing("live", lacks="agent"), "A trainer starts it again"),
        (Standing("live", lacks="machine"), "See whether it is up"),
        (Standing("live", lacks="process"), "`otel-rl why"),
        (Standing("live"), ""),
        (Standing("finished"), ""),
        (Standing("cancelled"), ""),
    ],
)
def test_how_a_run_ended(recorded: RecordedRun, standing: Standing, advice: str) -> None:
    """Each bad end has its own advice, and a good one has none."""
    (found,) = outcome(recorded, facts_of(recorded.run).summary, standing, RunExtent())

    assert found.advice.startswith(advice) if advice else found.advice == ""


def test_ranks_without_values(tmp_path: Path) -> None:
    """It is said whose values a row has, if a rank sent none in more than one step."""

    def advice(missing: int) -> list[str]:
        place = tmp_path / str(missing)
        place.mkdir()
        (place / "run.json").write_text("{}")
        writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
        for step in range(STEPS):
            lacks = (1,) if step >= STEPS - missing else ()
            writer.add(Row(step, BEGAN + step * S, {"reward": 0.1 * step}, missing_ranks=lacks))
        writer.save(seals=True)
        return [finding.advice for finding in facts_of(otel_rl.open_run(place)).findings]

    assert "The values of these steps are those of the other ranks." in advice(9)
    assert "The values of these steps are those of the other ranks." not in advice(1)


def test_completions_that_copy_their_prompt() -> None:
    """The verifier is named if they begin to; a task that asks for copies gets them from the first step on."""
    prompt = "Anna has seven apples and gives three of them to her brother, who eats one. How many are left in all? "
    own = (f"She gives {n} away, and her brother eats one, so that she has {7 - n % 5}. " * 2 for n in iter(int, 1))
    copies = (prompt * 2 for _ in iter(int, 1))
    late = texts_of((next(copies if n >= 400 else own) for n in range(600)), 30, prompt=prompt)
    always = texts_of(copies, 30, prompt=prompt)

    (fault,) = faults(late)
    assert fault.advice.endswith("Check that the verifier does not find the answer in a copy of the question.")
    assert faults(always) == []
