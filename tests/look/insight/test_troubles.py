"""One trouble is one line, and nothing green contradicts another line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Event, Hang
from otel_rl.look.insight import Facts, Finding, facts_of
from otel_rl.look.insight.troubles import ordered
from tests.look.insight.played import Played, Player, S, play
from tests.look.insight.test_findings import Dice, of_kind, only


def said(severity: Any, subject: str = "", **more: Any) -> Finding:
    more = {"sentence": f"{severity} {subject}"} | more
    return Finding(kind="learning", severity=severity, subject=subject, **more)


def test_findings_of_one_subject_are_one_line() -> None:
    """The surest one is said, as the worst of them matters, and the others are its evidence."""
    likely = said("bad", "metric:kl", sure="likely", sentence="It grew.", advice="Look.")
    certain = said("warning", "metric:kl", sentence="It is 9.")

    (finding,) = ordered([likely, certain])
    assert (finding.sentence, finding.severity, finding.advice) == ("It is 9.", "bad", "Look.")
    assert finding.also == ("It grew.",)


def test_a_finding_that_says_more_covers_the_others() -> None:
    """Of equally sure ones, the one that accounts for most is said; what it does not cover stays."""
    whole = said("warning", "cut", covers=("metric:length", "metric:clipped"))
    parts = [said("warning", "metric:length"), said("note", "metric:clipped"), said("note", "metric:kl")]

    assert [finding.subject for finding in ordered([*parts, whole])] == ["cut", "metric:kl"]


def test_findings_without_a_subject_stay_apart() -> None:
    """They are about nothing that another one could be about."""
    assert len(ordered([said("note"), said("note"), said("note", "a")])) == 3


@pytest.mark.parametrize("trouble", ["memory", "memory:rank 3", "run"])
def test_what_is_contradicted_is_not_good(trouble: str) -> None:
    """By a warning about what it needs, or by how the run ended."""
    good = said("good", "peak", needs=("memory",))

    assert [finding.severity for finding in ordered([good, said("warning", trouble)])] == ["warning", "note"]


def test_nothing_is_advised_as_if_all_were_well() -> None:
    """A flat reward gets no advice to stop while engine and trainer differ."""
    flat = said("note", "reward", advice="If it is as good as it can be, stop here.", needs=("engine gap",))

    assert {finding.advice for finding in ordered([flat, said("warning", "engine gap")])} == {""}
    assert ordered([flat])[0].advice


def test_notes_and_other_subjects_contradict_nothing() -> None:
    """Nor does a subject that begins with the same letters."""
    good = said("good", "peak", needs=("memory",))
    others = [said("note", "memory"), said("bad", "memory growth"), said("bad", covers=("disk",))]

    assert "good" in [finding.severity for finding in ordered([good, *others])]


def test_newest_trouble_comes_first() -> None:
    """Within equally severe and sure findings; how it ended is one of them."""
    early, late = said("bad", "a", since_unix_nano=1), said("bad", "b", since_unix_nano=2)
    unsure, note = said("bad", "c", since_unix_nano=3, sure="likely"), said("note", "d", since_unix_nano=4)

    assert [finding.subject for finding in ordered([note, unsure, early, late])] == ["b", "a", "c", "d"]


def of_anomaly(kind: str, metric: str, value: float, evidence: str) -> tuple[int, str, dict[str, Any]]:
    attributes = {
        semconv.ANOMALY_KIND: kind,
        semconv.METRIC_NAME: metric,
        semconv.ANOMALY_VALUE: value,
        semconv.ANOMALY_USUAL: value,
        semconv.ANOMALY_EVIDENCE: evidence,
    }
    return 0, semconv.EVENT_TRAINING_ANOMALY, attributes


def test_completions_at_their_limit_are_one_line(tmp_path: Path) -> None:
    """The share that was cut is said; length and ratio at their maximum are its evidence."""
    dice = Dice()
    values = dice.values(completions__mean_length=lambda _: 1024.0, completions__clipped_ratio=lambda _: 0.9)
    happens = {
        40: [
            of_anomaly("bound", "completions/mean_length", 1024, "is at its maximum, 1,024, for 20 steps"),
            of_anomaly("bound", "completions/clipped_ratio", 0.9, "is 0.9 of at most 0.9 for 20 steps"),
        ]
    }
    facts = facts_of(play(tmp_path / "run", Played(values=values, happens=happens), 60))
    finding = only(facts, "data")

    assert "90 % of completions were cut at the length limit." in finding.sentence
    assert len(finding.also) == 2
    assert {kind.sentence[:6] for kind in of_kind(facts, "learning")} == {"Reward"}


def test_a_loss_that_is_not_a_number_is_one_line(tmp_path: Path) -> None:
    """Loss and gradient norm, and the framework that shows 0 instead."""
    dice = Dice()
    values = dice.values(
        loss=lambda step: math.nan if step >= 50 else 0.1, grad_norm=lambda step: math.nan if step >= 50 else 1.0
    )
    hidden = of_anomaly("hidden_nan", "loss", 0.0, "is shown as 0 where the gradient is not finite")
    facts = facts_of(play(tmp_path / "run", Played(values=values, happens={55: [hidden]}), 60))
    finding = of_kind(facts, "learning")[0]

    assert facts.findings[0] == finding
    assert (finding.sentence[:11], finding.severity, len(finding.also)) == ("loss is NaN", "bad", 1)
    assert only(facts, "outcome").severity == only(facts, "goodput").severity == "note"


def test_events_of_one_moment_have_an_order(tmp_path: Path) -> None:
    """Of ranks whose loss broke at the same time, the first one is named, in whatever order their files are read."""
    player = Player(tmp_path / "run", Played(ranks=3))
    player.start()
    player.steps(range(8))
    for rank in (2, 0, 1):
        attributes = {semconv.METRIC_NAME: "loss", semconv.VALUE: "nan"}
        player.add(Event(semconv.EVENT_NUMERICS_NONFINITE, player.now, {**attributes}, step=4, rank=rank))
    player.finish()

    assert of_kind(facts_of(player.open()), "learning")[0].sentence == "loss was NaN in step 4 on rank 0."


def test_a_reward_that_rises_while_a_part_falls(tmp_path: Path) -> None:
    """The part is the news, with both courses; no line is green about it."""
    dice = Dice()
    values = dice.values(
        rewards__accuracy__mean=lambda step: 0.6 - step / 400 + dice.about(0.01, 1.0),
        rewards__format__mean=lambda step: 0.2 + step / 150 + dice.about(0.01, 1.0),
    )
    facts = facts_of(play(tmp_path / "run", Played(values=values), 120))
    finding = only(facts, "learning")

    assert finding.severity == "warning"
    assert finding.sentence.startswith("Reward 0.3")
    assert "while rewards/accuracy/mean fell 0.6" in finding.sentence
    assert finding.also == ()  # the course of the reward is in the sentence


def test_a_death_for_lack_of_memory_is_one_line(tmp_path: Path) -> None:
    """How the run ended, the exhausted device, and the rank that sent nothing since."""
    player = Player(tmp_path / "run", Played(ranks=2))
    player.start()
    player.steps(range(8))
    exhausted = {semconv.PHASE: "update_actor", semconv.MEMORY_OF: "device"}
    player.training.happens = {8: [(1, semconv.EVENT_MEMORY_EXHAUSTED, exhausted)]}
    player.step(8)
    player.finish("failed", ("OutOfMemoryError", "CUDA out of memory"))
    facts = facts_of(player.open())
    bad = [finding for finding in facts.findings if finding.severity in ("bad", "warning")]

    assert [finding.kind for finding in bad] == ["outcome"], [finding.sentence for finding in bad]
    assert "ran out of memory" in bad[0].sentence
    assert "good" not in {finding.severity for finding in facts.findings}


class TestHangs:
    """Hangs that have ended."""

    def played(self, directory: Path, *hangs: Hang) -> Facts:
        player = Player(directory, Played(ranks=2, hosts=("node1", "node2")))
        player.start()
        player.steps(range(30))
        player.add(*(_moved(hang, player.now) for hang in hangs))
        player.now += 900 * S
        player.steps(range(30, 40))
        player.finish()
        return facts_of(player.open())

    def test_one_that_ended_is_said(self, tmp_path: Path) -> None:
        """With its length, its step, and who was where; the others, which wait for it, are not named."""
        facts = self.played(tmp_path / "run", _hang(1, "generate", 0, 900), _hang(0, "weight_sync", 20, 900))
        finding = only(facts, "hang")

        assert finding.sentence.startswith("Hung for 15 min at step 30 (")
        assert finding.sentence.endswith("): rank 1 (node2) was in generate.")
        assert (finding.severity, finding.evidence.ranks, finding.evidence.steps) == ("warning", (1,), (30, 30))

    def test_the_cause_is_said_if_it_is_known(self, tmp_path: Path) -> None:
        """Of any process of the hang."""
        hang = _hang(0, "generate", 0, 900, cause="dead", culprits=("rollout 3",))
        finding = only(self.played(tmp_path / "run", hang), "hang")

        assert finding.sentence.endswith(": rank 0 (node1) was in generate; rollout 3 was dead.")

    def test_others_are_not_said(self, tmp_path: Path) -> None:
        """Neither one that lasts, which is the state of the run, nor a silent machine."""
        hangs = [_hang(0, "generate", 0, None), _hang(1, "generate", 0, 900, kind="silent")]

        assert of_kind(self.played(tmp_path / "run", *hangs), "hang") == []

    def test_many_are_counted(self, tmp_path: Path) -> None:
        """The three longest are said, the others together."""
        hangs = [_hang(0, "generate", begin, begin + 10 + begin // 100) for begin in range(0, 500, 100)]
        facts = self.played(tmp_path / "run", *hangs)

        assert [finding.severity for finding in of_kind(facts, "hang")] == ["note"] * 4
        assert of_kind(facts, "hang")[-1].sentence == "2 shorter hangs took 21 s in all."


def _hang(rank: int, phase: str, began: int, ended: int | None, **more: Any) -> Hang:
    """Return a hang by its seconds."""
    return Hang(
        attempt=0,
        role="",
        rank=rank,
        host=f"node{rank + 1}",
        pid=100 + rank,
        step=30,
        phase=phase,
        part="",
        started_unix_nano=began * S,
        time_unix_nano=(ended or 600) * S,
        ended_unix_nano=None if ended is None else ended * S,
        ending="" if ended is None else "resumed",
        **{"kind": "hung", "scope": "job"} | more,
    )


def _moved(hang: Hang, origin: int) -> Hang:
    """Return a hang at its time in a run."""
    ended = None if hang.ended_unix_nano is None else hang.ended_unix_nano + origin
    began, at = hang.started_unix_nano + origin, hang.time_unix_nano + origin
    return replace(hang, started_unix_nano=began, time_unix_nano=at, ended_unix_nano=ended)
