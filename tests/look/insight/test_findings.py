"""The sentences of runs whose faults are known, and that a run that is well has few."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Environment, Row, Span
from otel_rl.look.insight import Facts, Finding, conclude, facts_of, findings
from otel_rl.look.insight.facts import Kind
from otel_rl.look.insight.findings.goodput import goodput
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.thinning import Thinner
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.archive.written import run_of
from otel_rl.recorder.facts.goodput import TRAINED
from tests.look.insight.played import BEGAN, GIB, PHASES, Played, Player, S, play

HOSTS = ("node1", "node1", "node2", "node2")
_SLOWER = 1.5


class Dice:
    """Times and values with noise; the same ones in each test."""

    def __init__(self) -> None:
        self._dice = random.Random(1)

    def about(self, value: float, noise: float = 0.03) -> float:
        return value * math.exp(self._dice.gauss(0, noise))

    def phases(self, **factors: Callable[[int, int], float]) -> Callable[[int, int], Mapping[str, float]]:
        """Return seconds of phases, each times what a function of step and rank says."""

        def of(step: int, rank: int) -> Mapping[str, float]:
            return {
                phase: self.about(seconds) * (factors[phase](step, rank) if phase in factors else 1)
                for phase, seconds in PHASES.items()
            }

        return of

    def values(self, **more: Callable[[int], float]) -> Callable[[int, int], Mapping[str, float]]:
        """Return metrics of a run that learns; those in `more` are as a function of the step says."""

        def of(step: int, _rank: int) -> Mapping[str, float]:
            seconds_of = {
                "reward": 0.3 + 0.5 * (1 - math.exp(-step / 60)) + self.about(0.02, 1.0) - 0.02,
                "loss": self.about(0.1),
                "kl": self.about(0.02),
                "entropy": self.about(0.5 + math.exp(-step / 200)),
                "grad_norm": self.about(1.0),
                "completions/mean_length": self.about(512),
            }
            return seconds_of | {name.replace("__", "/"): value(step) for name, value in more.items()}

        return of


def of_kind(facts: Facts, kind: str) -> list[Finding]:
    return [finding for finding in facts.findings if finding.kind == kind]


def only(facts: Facts, kind: str) -> Finding:
    (finding,) = of_kind(facts, kind)
    return finding


def test_a_run_that_is_well(tmp_path: Path) -> None:
    """It has a line for how it ended, the reward, where the time went, and goodput; nothing is a warning."""
    dice = Dice()
    run = play(tmp_path / "run", Played(ranks=4, hosts=HOSTS, phases=dice.phases(), values=dice.values()), 200)
    facts = facts_of(run)

    assert sorted(finding.kind for finding in facts.findings) == ["goodput", "learning", "outcome", "time"]
    assert {finding.severity for finding in facts.findings} <= {"good", "note"}
    assert only(facts, "outcome").sentence == "Finished after 2 h 17 min: 200 steps."
    assert only(facts, "time").sentence == "generate 59 %, update_actor 24 %, weight_sync 12 %, reward 5 %."
    assert facts.summary.step_seconds_before is None
    assert facts.metrics[:6] == ("reward", "loss", "kl", "entropy", "grad_norm", "completions/mean_length")


def test_steps_that_take_longer_with_longer_completions(tmp_path: Path) -> None:
    """The step, both times, the phase and the lengths are named."""
    dice = Dice()
    training = Played(
        ranks=2,
        phases=dice.phases(generate=lambda step, _: 1.6 if step >= 120 else 1),
        values=dice.values(completions__mean_length=lambda step: 1180.0 if step >= 120 else 512.0),
    )
    facts = facts_of(play(tmp_path / "run", training, 200))
    finding = only(facts, "change")

    assert finding.sentence.startswith("Steps take 55")
    assert finding.sentence.endswith(
        " s since step 120, 40.5 s before: generate grew with the length of completions (512 → 1,180 tokens)."
    )
    assert (finding.severity, finding.evidence.phases) == ("warning", ("generate",))
    assert "completions/mean_length" in finding.evidence.names
    assert finding.evidence.steps is not None
    assert finding.evidence.steps[0] < 120 < finding.evidence.steps[1]
    assert facts.summary.step_seconds_before == pytest.approx(40.6, rel=0.01)
    assert facts.summary.recent_step_seconds == pytest.approx(55, rel=0.02)


def test_steps_that_become_faster(tmp_path: Path) -> None:
    """It is good."""
    dice = Dice()
    training = Played(phases=dice.phases(update_actor=lambda step, _: 0.5 if step >= 60 else 1))
    finding = only(facts_of(play(tmp_path / "run", training, 120)), "change")

    assert (finding.severity, finding.advice) == ("good", "")
    assert "since step 60, " in finding.sentence
    assert "update_actor fell from 10" in finding.sentence


def test_completions_that_grew_too_little_are_no_reason(tmp_path: Path) -> None:
    """Lengths that grew by 15 % do not explain a phase that takes twice as long."""
    dice = Dice()
    training = Played(
        phases=dice.phases(generate=lambda step, _: 2 if step >= 60 else 1),
        values=dice.values(completions__mean_length=lambda step: 588.0 if step >= 60 else 512.0),
    )
    finding = only(facts_of(play(tmp_path / "run", training, 120)), "change")

    assert "generate grew from 24" in finding.sentence


def test_steps_that_were_slow_for_a_while(tmp_path: Path) -> None:
    """The finding says until when."""
    dice = Dice()
    slow = Played(phases=dice.phases(generate=lambda step, _: 1.5 if 100 <= step < 140 else 1))
    finding = only(facts_of(play(tmp_path / "run", slow, 300)), "change")

    assert ", 40.2 s before and after: generate grew from 24" in finding.sentence
    assert " from step 100 to 139, " in finding.sentence
    assert (finding.severity, finding.evidence.steps) == ("note", (100, 139))


def test_steps_that_become_slower_bit_by_bit(tmp_path: Path) -> None:
    """It is a trend, not a change at a step."""
    dice = Dice()
    training = Played(
        phases=dice.phases(generate=lambda step, _: 1 + step / 400),
        values=dice.values(completions__mean_length=lambda step: 512 * (1 + step / 400)),
    )
    finding = only(facts_of(play(tmp_path / "run", training, 400)), "change")

    assert finding.sentence.startswith("Steps became slower from step 1 to 399: 42")
    assert "s; generate grew with the length of completions (5" in finding.sentence
    assert (finding.severity, finding.evidence.steps) == ("warning", (1, 399))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_slow(tmp_path: Path, ranks: int) -> None:
    """It is named with its machine, its phase, the step since when, and what it costs; others are not."""
    dice, slow = Dice(), ranks - 1
    training = Played(
        ranks=ranks,
        hosts=HOSTS[-ranks:] if ranks == 4 else ("node1", "node2"),
        phases=dice.phases(generate=lambda step, rank: _SLOWER if rank == slow and step >= 60 else 1),
    )
    facts = facts_of(play(tmp_path / "run", training, 160))
    finding = only(facts, "change")

    assert finding.sentence.endswith(f" on rank {slow} (node2).")
    assert (finding.evidence.ranks, finding.evidence.phases) == ((slow,), ("generate",))
    (straggler,) = finding.also
    assert straggler.startswith(f"Rank {slow} (node2) made the others wait for ")
    assert straggler.endswith(" % of the time, in generate, since step 60.")


def test_a_rank_that_was_slow(tmp_path: Path) -> None:
    """The finding says until when, and is a note."""
    dice = Dice()
    training = Played(
        ranks=4,
        hosts=HOSTS,
        phases=dice.phases(generate=lambda step, rank: _SLOWER if rank == 2 and 40 <= step < 100 else 1),
    )
    finding = only(facts_of(play(tmp_path / "run", training, 200)), "change")

    assert finding.also[0].endswith("in generate, from step 40 to 100.")
    assert finding.severity == "note"


def test_memory_that_grows(tmp_path: Path) -> None:
    """The peak, the limit, the growth, and an interval for the step at which it is full."""
    training = Played(ranks=2, memory=lambda step, _rank: (20 + 0.2 * step) * GIB)
    finding = only(facts_of(play(tmp_path / "run", training, 60)), "memory")

    assert finding.sentence.startswith(
        "Peak 35.8 of 80 GiB in generate; it grows by 205 MiB a step in generate and is full "
    )
    assert "at about step 280 (" in finding.sentence
    assert (finding.severity, finding.sure) == ("warning", "likely")


def test_memory_that_does_not_grow(tmp_path: Path) -> None:
    """Nothing is said of a peak that is far from the limit; one that is near is worth a line."""
    far = play(tmp_path / "far", Played(memory=lambda _step, _rank: 20.0 * GIB), 20)
    near = play(tmp_path / "near", Played(memory=lambda _step, _rank: 74.0 * GIB), 20)

    assert of_kind(facts_of(far), "memory") == []
    assert only(facts_of(near), "memory").sentence == "Peak 74 of 80 GiB in generate."


def test_what_a_diverging_run_says(tmp_path: Path) -> None:
    """NaN, the KL, the reward and the entropy, each with the step; the worst come first."""
    dice = Dice()
    training = Played(
        values=dice.values(
            loss=lambda step: math.nan if step >= 180 else 0.1,
            kl=lambda step: dice.about(2.0) if step >= 150 else 0.02,
            reward=lambda step: dice.about(0.1) if step >= 150 else 0.3 + step / 300,
            entropy=lambda step: 0.02 if step >= 150 else 1.0,
        )
    )
    facts = facts_of(play(tmp_path / "run", training, 200))
    reported = [(finding.severity, finding.sentence) for finding in of_kind(facts, "learning")]

    assert reported[0] == ("bad", "loss is NaN since step 180.")
    assert reported[1][1].startswith("KL rose to 1.98 ")
    assert reported[1][1].endswith("since step 150 (0.02 before).")
    assert reported[2][1].startswith("Reward fell from 0.765 to 0.1")
    assert reported[3] == ("warning", "entropy is 0.02, below a tenth of its start of 1, since step 150.")
    assert [finding.severity for finding in facts.findings[:4]] == ["bad", "bad", "bad", "warning"]


@pytest.mark.parametrize(("rises", "is_named"), [(True, True), (False, False)])
def test_a_reward_that_falls_while_entropy_rises(tmp_path: Path, *, rises: bool, is_named: bool) -> None:
    """The metric that rose most before is named, with its levels; not one that stays."""
    dice = Dice()
    ramp = lambda step, begin, end: min(1.0, max(0.0, (step - begin) / (end - begin)))  # noqa: E731
    training = Played(
        values=dice.values(
            reward=lambda step: dice.about(0.42 - 0.17 * ramp(step, 120, 180), 0.02),
            entropy=lambda step: dice.about(0.3 + (1.8 * ramp(step, 80, 180) if rises else 0)),
        )
    )
    sentences = [one.sentence for one in of_kind(facts_of(play(tmp_path / "run", training, 200)), "learning")]
    (fallen,) = [sentence for sentence in sentences if sentence.startswith("Reward fell")]

    assert (", while entropy rose " in fallen) == is_named


@pytest.mark.parametrize(
    ("kl_until", "entropy_at", "named"),
    [(60, 150, "entropy"), (60, 153, "entropy"), (60, 80, ""), (60, 190, ""), (190, 150, "entropy"), (190, 80, "")],
    ids=["same step", "soon after", "long before", "long after", "kl still rises", "kl alone"],
)
def test_what_rose_while_a_reward_fell(tmp_path: Path, kl_until: int, entropy_at: int, named: str) -> None:
    """A rise that ended long before the fall, or begins after it, is none of its signs; nor is a KL that only drifts.

    The KL of a healthy run rises from 0, by more than any other metric.
    """
    dice = Dice()
    training = Played(
        values=dice.values(
            reward=lambda step: dice.about(0.6 if step < 150 else 0.3, 0.02),
            kl=lambda step: dice.about(0.001 + 0.3 * min(1.0, step / kl_until), 0.02),
            entropy=lambda step: dice.about(0.3 if step < entropy_at else 1.2, 0.02),
        )
    )
    sentences = [one.sentence for one in of_kind(facts_of(play(tmp_path / "run", training, 240)), "learning")]
    (fallen,) = [sentence for sentence in sentences if sentence.startswith("Reward fell")]

    assert fallen.partition(", while ")[2].partition(" rose ")[0] == named


def test_a_reward_that_is_flat_in_the_end(tmp_path: Path) -> None:
    """The sentence says since when."""
    dice = Dice()
    training = Played(values=dice.values(reward=lambda step: min(0.8, 0.3 + step / 200) + dice.about(0.01, 1) - 0.01))
    finding = only(facts_of(play(tmp_path / "run", training, 300)), "learning")

    assert finding.sentence.startswith("Reward 0.3")
    assert "→ 0.8" in finding.sentence
    assert finding.evidence.steps is not None
    assert 85 <= finding.evidence.steps[0] <= 130


@pytest.mark.parametrize(
    ("reward", "severity", "sentence"),
    [
        (lambda dice, _step: dice.about(0.4), "note", "Reward did not change in 200 steps: "),
        (lambda _dice, _step: 0.0, "warning", "reward is exactly 0, since step 0."),
        (
            lambda _dice, step: min(1.0, step / 100),
            "note",
            "Reward is exactly 1, the most it has been, since step 100.",
        ),
    ],
)
def test_a_reward_that_teaches_nothing(
    tmp_path: Path, reward: Callable[[Dice, int], float], severity: str, sentence: str
) -> None:
    """One that does not change may be hard, one that is its maximum is solved, and one that was never else is ill."""
    dice = Dice()
    training = Played(values=dice.values(reward=lambda step: reward(dice, step)))
    finding = only(facts_of(play(tmp_path / "run", training, 200)), "learning")

    assert finding.sentence.startswith(sentence)
    assert finding.severity == severity


def test_what_few_steps_say(tmp_path: Path) -> None:
    """Nothing of learning and changes: the evidence is thin."""
    dice = Dice()
    run = play(tmp_path / "run", Played(ranks=2, phases=dice.phases(), values=dice.values()), 4)

    assert sorted(finding.kind for finding in facts_of(run).findings) == ["outcome", "time"]


def test_data(tmp_path: Path) -> None:
    """Groups without a signal, staleness, dropped samples, and completions that were cut, in one finding."""
    ticket: dict[str, Any] = {"tokens": 5, "reward": 0.5}
    dice = Dice()
    training = Played(
        values=dice.values(frac_reward_zero_std=lambda _: 0.12, completions__clipped_ratio=lambda _: 0.18),
        tickets=lambda step: {
            "trained": [ticket | {"policy_version": max(0, step - 2)} for _ in range(97)],
            "stale": [ticket | {"policy_version": max(0, step - 8)} for _ in range(3)],
        },
    )
    finding = only(facts_of(play(tmp_path / "run", training, 60)), "data")

    assert finding.sentence == (
        "12 % of groups had no signal. Samples were 1.95 policy versions old."
        " 3 % of samples were dropped as too old. 18 % of completions were cut at the length limit."
    )
    assert finding.severity == "note"


def test_engine_and_trainer_that_differ(tmp_path: Path) -> None:
    """More than before."""
    dice = Dice()
    difference = dice.values(sampling__sampling_logp_difference__mean=lambda step: 0.08 if step >= 120 else 0.01)
    finding = only(facts_of(play(tmp_path / "run", Played(values=difference), 200)), "mismatch")

    assert finding.sentence == "Log-probabilities of engine and trainer differ by 0.08 since step 120 (0.01 before)."


@pytest.mark.parametrize(("last", "is_said"), [(0.06, True), (0.0012, False)])
def test_a_difference_that_grows_from_nearly_nothing(tmp_path: Path, last: float, *, is_said: bool) -> None:
    """It is found whatever its noise is near 0, where logarithms hide a rise; noise alone is not."""
    for seed in range(5):
        chance = random.Random(seed)
        rise = Dice().values(
            train__gen_kl_error=lambda step: 0.0012 + (last - 0.0012) * step / 300 + chance.gauss(0, 0.0008)  # noqa: B023
        )
        found = of_kind(facts_of(play(tmp_path / f"{seed}", Played(values=rise), 300)), "mismatch")

        assert len(found) == is_said, seed


def test_weights_that_differ(tmp_path: Path) -> None:
    """The first divergence, the number of other processes, and what it means for tickets; it needs somebody now."""
    message = "version 12 of rank 1 holds the weights of version 11: lm_head.weight is 0.1, and 0.2 in the trainer"
    attributes = {"rl.weights.message": message, "rl.policy.version": 12, "rl.weights.held_version": 11}
    happens = {12: [(1, semconv.EVENT_POLICY_DIVERGED, attributes), (2, semconv.EVENT_POLICY_DIVERGED, attributes)]}
    finding = only(facts_of(play(tmp_path / "run", Played(ranks=3, happens=happens), 20)), "mismatch")

    assert (finding.severity, finding.evidence.steps, finding.evidence.ranks) == ("bad", (12, 12), (1,))
    assert finding.sentence == f"V{message[1:]}; so it is with 1 other process."
    assert finding.advice.endswith(
        "Tickets that name version 12 were sampled by version 11: they are staler than shown."
    )


def test_a_step_time_that_leaves_time_out(tmp_path: Path) -> None:
    """The framework's own step time is compared with the wall."""
    dice = Dice()
    training = Played(values=dice.values(step_time=lambda _: 34.6), between=0.2)
    finding = only(facts_of(play(tmp_path / "run", training, 40)), "engines")

    assert finding.sentence == "The framework's own step time (step_time) leaves out 14 % of the wall."


def test_a_run_without_steps(tmp_path: Path) -> None:
    """It is not well, although it finished."""
    player = Player(tmp_path / "run", Played())
    player.start()
    player.finish()
    finding = only(facts_of(player.open()), "outcome")

    assert (finding.severity, finding.advice) == ("warning", "Call `run.step` and `run.log`.")


def test_ranks_that_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A rank that is half a step ahead of the other one is not outside of phases meanwhile."""
    (tmp_path / "run.json").write_text("{}")
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    for step in range(10):
        trace, root, begins = f"{step + 1:032x}", f"{step + 1:016x}", BEGAN + step * 10 * S
        of_step = {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: 0}
        writer.add(Span("rl.loop", trace, root, "", begins, begins + 15 * S, of_step))
        for rank, late in enumerate((0, 5 * S)):
            phase = {semconv.LOOP_ITERATION: step, semconv.RANK: rank, semconv.PHASE: "generate"}
            span = f"{rank + 1:08x}{step:08x}"
            writer.add(Span("rl.sample", trace, span, root, begins + late, begins + late + 10 * S, phase))
        writer.add(Row(step, begins + 15 * S, {"time/step": 10.0}, measured=("time/step",)))
    writer.save(seals=True)

    assert only(facts_of(otel_rl.open_run(tmp_path)), "time").sentence == "generate 100 %."


def test_goodput_of_a_resumed_run(tmp_path: Path) -> None:
    """Repeated steps and the time between the attempts are lost, and all adds up."""
    player = Player(tmp_path / "run", Played(ranks=2, hosts=("node1", "node2")))
    player.start()
    player.steps(range(100))
    player.step(100, dies={1: "update_actor"})
    player.lose(0, 1)
    player.training = Played(ranks=2, hosts=("node1", "node7"))
    player.start(after=400)
    player.steps(range(80, 200))
    player.finish()
    facts = facts_of(player.open())

    assert (facts.summary.resumed_at, facts.summary.steps, facts.summary.attempts) == ((80,), 200, 2)
    assert facts.summary.hosts == ("node1", "node7")
    assert only(facts, "outcome").sentence == (
        "Finished after 2 h 34 min: 200 steps, resumed once at step 80"
        " (at step 100, rank 0 (node1) was killed or disappeared inside weight_sync)."
    )
    assert only(facts, "goodput").sentence == (
        "78 % of the time trained. Lost: 9 % repeated after a resume, 9 % synchronizing weights,"
        " 4 % down between attempts."
    )


def test_goodput_of_an_attempt_without_a_step(tmp_path: Path) -> None:
    """The time before it began is down, not the end of the attempt before it."""
    player = Player(tmp_path / "run", Played(ranks=2))
    player.start()
    player.steps(range(30))
    player.lose(0, 1)
    player.start(after=4000)

    assert facts_of(player.open()).goodput["down"] > 0.5


def test_a_run_that_hung_until_it_was_killed(tmp_path: Path) -> None:
    """The time in the step that did not end is that of the phase in which the ranks were, until they died."""
    player = Player(tmp_path / "run", Played(ranks=2))
    player.start()
    player.steps(range(30))
    player.step(30, dies={1: "update_actor"})
    player.lose(1)
    player.now += 9000 * S
    player.lose(0)
    sentence = only(facts_of(player.open()), "goodput").sentence

    assert "synchronizing weights" in sentence
    assert "between steps" not in sentence


def test_a_step_that_takes_long(tmp_path: Path) -> None:
    """The time of the step that is open is not lost: how much of it trains is known when it ends."""
    recorded = RecordedRun(play(tmp_path / "run", Played(), steps=30))
    (found,) = goodput(recorded, {TRAINED: 0.18, "start": 0.08, "none": 0.01, "open": 0.73})

    assert (found.severity, found.advice) == ("good", "")
    assert found.sentence == (
        "18 % of the time trained. Lost: 8 % before the first step, 1 % outside of phases."
        " The step that is open has 73 %."
    )


@pytest.mark.parametrize(
    ("checkpoints", "severity"),
    [({20: 4000.0}, "good"), ({10: 4000.0, 20: 4000.0}, "warning"), ({5: 100.0, 10: 100.0, 20: 4000.0}, "good")],
)
def test_a_first_checkpoint(tmp_path: Path, checkpoints: dict[int, float], severity: str) -> None:
    """One that is long says nothing of the time that checkpoints will cost; two do, and then the advice is given."""
    phases = lambda step, _: {"checkpoint": checkpoints[step], **PHASES} if step in checkpoints else PHASES  # noqa: E731
    found = only(facts_of(play(tmp_path / "run", Played(phases=phases), steps=30)), "goodput")

    assert (found.severity, found.advice != "") == (severity, severity == "warning")
    assert "checkpoints" in found.sentence


def test_the_first_of_several_dead_ranks(tmp_path: Path) -> None:
    """The one that died first is named, with its machine and its phase; the rest is counted."""
    player = Player(tmp_path / "run", Played(ranks=4, hosts=HOSTS))
    player.start()
    player.steps(range(30))
    player.step(30, dies={3: "update_actor"})
    player.lose(3)
    player.now += 5 * S
    player.lose(0, 1, 2)
    facts = facts_of(player.open())

    assert facts.summary.reason == "rank 3 (node2) was killed or disappeared inside update_actor, then 3 others"
    assert facts.findings[0].evidence.ranks[0] == 3
    assert of_kind(facts, "recording") == []


def test_a_damaged_archive(tmp_path: Path) -> None:
    """The file and what is missing are named; everything else is said without it."""
    run = play(tmp_path / "run", Played(ranks=2), 200)
    path = files.of_table(tmp_path / "run" / "archive" / "local", "rows")[1].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    facts = facts_of(otel_rl.open_run(run.place.path))
    finding = only(facts, "recording")

    assert (
        finding.sentence
        == f"1 file of the archive cannot be read (rows/{path.name}); the archive lacks 64 items of rows."
    )
    assert facts.summary.steps == 200
    assert only(facts, "time").sentence.startswith("generate 60 %")


def test_a_thinned_archive(tmp_path: Path) -> None:
    """Shares and changes are those of the steps whose spans are all left, and the finding says how many are."""
    dice, slower = Dice(), lambda step, _rank: 1.5 if step >= 300 else 1.0
    player = Player(tmp_path / "run", Played(ranks=4, phases=dice.phases(update_actor=slower)), 1 << 60)
    player.start()
    player.steps(range(600))
    player.finish()
    whole = facts_of(player.open())
    writer = ArchiveWriter(tmp_path / "run" / "archive" / "local", 1 << 60)
    writer.save(seals=True)
    limit = sum(path.stat().st_size for path in (tmp_path / "run" / "archive").rglob("*.parquet")) * 3 // 4
    place = tmp_path / "run" / "archive" / "local"
    Thinner(place, limit, run_of(place)).thin()
    thinned = facts_of(otel_rl.open_run(tmp_path / "run"))

    assert "spans: old steps were thinned." in only(thinned, "recording").sentence
    assert {share.name: share.share for share in thinned.shares} == pytest.approx(
        {share.name: share.share for share in whole.shares}, abs=0.03
    )
    assert only(thinned, "change").sentence.split(":")[0] == only(whole, "change").sentence.split(":")[0]
    assert ": update_actor grew from 10" in only(thinned, "change").sentence


def test_a_notebook_shows_the_findings(tmp_path: Path) -> None:
    """As a table, in which texts of the run are escaped."""
    player = Player(tmp_path / "run", Played())
    player.start()
    player.step(0, dies={0: "update_actor"})
    player.finish("failed", ("ValueError", "<b>&"), 1)
    table = facts_of(player.open())._repr_html_()

    assert "<caption>grpo · baseline · failed</caption>" in table
    assert "Failed at step 0 after " in table
    assert ": rank 0 failed with ValueError: &lt;b&gt;&amp; inside update_actor." in table


def test_rows_of_windows(tmp_path: Path) -> None:
    """Steps are counted, not rows."""
    player = Player(tmp_path / "run", Played())
    player.add(*(Row(n, BEGAN + n * S, {"reward": 0.5}, begins=n - 9) for n in range(9, 100, 10)))

    assert facts_of(player.open()).summary.steps == 100


def test_each_finding_is_listed_and_documented() -> None:
    """A file of findings has a line in the table of all, and a kind has a row in the docs."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "findings.md").read_text()
    section = page.partition("## The findings")[2].partition("\n## ")[0]
    of_others = {"change_cause", "engine_load", "policy_signs", "step_change", "trajectory_times"}
    of_others |= {"work_amount", "worker_load"}
    parts = {"__init__", "anomalies", *of_others}

    kinds, rows = {*get_args(Kind)}, {*re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)}
    files = {path.stem for path in Path(findings.__file__).parent.glob("*.py")} - parts
    assert rows ^ kinds == set(), "not both in the table of docs/reference/findings.md and in `Kind` of facts.py"
    assert files ^ conclude._FINDINGS.keys() == set(), "not both a file of findings and in `_FINDINGS` of conclude.py"


def test_a_finding_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are there, and the log has its name."""

    def memory(_recorded: object) -> list[Finding]:
        raise RuntimeError("no")

    monkeypatch.setattr(conclude, "memory", memory)
    run = play(tmp_path / "run", Played(), 3)

    assert [finding.kind for finding in facts_of(run).findings] == ["outcome", "time"]
    assert ["'memory'" in message for message in caplog.messages] == [True]


def test_the_environment_since_the_last_run(tmp_path: Path) -> None:
    """Packages, the commit, machines and hyperparameters that differ; not those of another project."""
    older, newer = Player(tmp_path / "older", Played()), Player(tmp_path / "newer", Played(hosts=("node7",)))
    for player, version, commit in ((older, "2.12", "1" * 40), (newer, "2.13", "1a2b3c4" + "0" * 33)):
        values = {"package.torch": version, "source.commit": commit, "source.dirty": "true", "command": version}
        player.add(Environment(0, BEGAN, "node1", values))
        player.start()
        player.steps(range(3))
        player.finish()
    older.open()
    facts = facts_of(newer.open())

    assert only(facts, "environment").sentence == (
        "Since the last run of this project (older): commit 1a2b3c4 with local changes, torch 2.12 → 2.13,"
        " node7 instead of node1."
    )


def test_values_without_steps(tmp_path: Path) -> None:
    """A trainer that only logs has steps, a reward and their times, and nothing about phases."""
    player = Player(tmp_path / "run", Played())
    player.add(*(Row(n, BEGAN + n * 7 * S, {"reward": n / 50}) for n in range(50)))
    facts = facts_of(player.open())

    assert (facts.summary.steps, facts.summary.recent_step_seconds, facts.shares) == (50, 7.0, ())
    assert facts.summary.state == "lost"
    assert {finding.kind for finding in facts.findings} == {"outcome", "learning"}
