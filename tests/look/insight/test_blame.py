"""Samples that are to blame: for a loss that is not a number, for a spike, for tokens that differ."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_rl import semconv
from otel_rl.export import Event, Item, Message, Trajectory
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.samples.remarks.loss_shares import LossShare, blame_of, blamed, remark_of, sentence_of
from otel_rl.look.insight.samples.remarks.token_mismatch import TokenScope, ages, mismatch, tokens
from otel_rl.look.reader.runs import RunReader
from tests.look.insight.played import Played, Player

NAN = math.nan


def _trace(number: int) -> str:
    return f"{number + 1:04x}" * 8


def _trained(step: int, number: int, **known: float) -> Trajectory:
    return Trajectory(
        *(0, step, 0, 0, "trained", 7, _trace(number), f"{number + 1:016x}", known.get("reward", 0.5), 4, (), number),
        advantage=known.get("advantage", NAN),
        loss=known.get("loss", NAN),
    )


def _said(
    step: int,
    number: int,
    engine: Sequence[float],
    trainer: Sequence[float],
    *,
    version: int = 7,
    mask: Sequence[bool] = (),
    turn: int = 1,
) -> Message:
    return Message(
        *(0, step, 0, "", 0, _trace(number), f"{number + 1:016x}", turn, "assistant", "", "text", 0, "", version),
        logprobs=array("d", engine).tobytes(),
        trainer_logprobs=array("d", trainer).tobytes(),
        mask=bytes(mask),
    )


def _run(place: Path, *items: Item, steps: int = 4, events: Sequence[Event] = ()) -> RunReader:
    player = Player(place, Played())
    player.start()
    player.steps(range(steps))
    player.add(*items, *events)
    player.finish()
    return player.open()


def _parts(*losses: float) -> list[LossShare]:
    return [
        LossShare(name=f"sample {n}", place="", reward=None, numbers={"loss": loss}) for n, loss in enumerate(losses)
    ]


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ([1, -8, 1, 1, 1], "The loss of step 812 came to 67 % from one of 5 samples: sample 1, loss -8."),
        ([1, NAN, 1, math.inf], "The loss of step 812 is not finite in 2 of 4 samples: sample 1 and sample 3."),
        ([1] * 50, "The loss of step 812 came from all samples: the largest of 50 samples made 2 %."),
    ],
)
def test_what_a_loss_is_made_of(losses: list[float], sentence: str) -> None:
    """One sample, samples that are not finite, or none."""
    blame = blamed(812, "loss", _parts(*losses))

    assert blame is not None
    assert sentence_of(blame) == sentence


def test_ten_samples_that_stand_out_together() -> None:
    """The ten largest are listed with their shares."""
    blame = blamed(3, "loss", _parts(*[10.0] * 10, *[1.0] * 90))

    assert blame is not None
    assert blame.stands_out
    assert len(blame.top) == 10
    assert sentence_of(blame).startswith("The loss of step 3 came to 53 % from 10 of 100 samples: sample 0 (5 %), ")


@pytest.mark.parametrize("losses", [[], [1.0, 2.0], [0.0] * 10])
def test_nothing_to_blame(losses: list[float]) -> None:
    """Too few samples, or no loss at all."""
    assert blamed(1, "loss", _parts(*losses)) is None


def test_a_missing_loss_is_not_a_number_if_others_were_recorded(tmp_path: Path) -> None:
    """An unknown loss is NaN in the archive; of a rank that recorded some, one that is NaN is the loss itself."""
    items = [_trained(2, n, loss=NAN if n == 3 else 0.1) for n in range(8)]
    run = _run(tmp_path, *items, _said(2, 3, [-0.1], [-0.2]))
    blame = blame_of(run, 2)

    assert blame is not None
    assert (blame.by, blame.broken, blame.samples) == ("loss", 1, 8)
    assert remark_of(blame).advice == f"Read otel-rl samples --trajectory {_trace(3)[:12]}."


def test_advantages_where_no_loss_was_recorded(tmp_path: Path) -> None:
    """Then samples are blamed by these, and by the gap of their log-probabilities without these."""
    run = _run(
        tmp_path,
        *(_trained(1, n, advantage=-4.0 if n == 2 else 0.1) for n in range(6)),
        *(_trained(3, n) for n in range(6)),
        *(_said(3, n, [-1.0], [-9.0 if n == 4 else -1.01]) for n in range(6)),
    )
    blames = [blame_of(run, step) for step in (1, 2, 3)]

    assert [blame and (blame.by, blame.top[0].name) for blame in blames] == [
        ("advantage", f"trajectory {_trace(2)[:12]}"),
        None,
        ("gap", f"trajectory {_trace(4)[:12]}"),
    ]


def test_the_verdict_names_the_sample_of_a_spike(tmp_path: Path) -> None:
    """At a spike that the agent reported, the finding says which sample made the loss of that step."""
    spike = {semconv.ANOMALY_KIND: "spike", semconv.METRIC_NAME: "loss", semconv.ANOMALY_EVIDENCE: "was 9"}
    player = Player(tmp_path, Played(values=lambda step, _: {"loss": 9.0 if step == 12 else 0.1}))
    player.start()
    player.steps(range(20))
    player.add(*(_trained(12, n, loss=71.0 if n == 5 else 29 / 9) for n in range(10)))
    player.add(Event(semconv.EVENT_TRAINING_ANOMALY, 1, {**spike, semconv.ANOMALY_VALUE: 9.0}, 13))
    player.finish()

    (sentence,) = [finding.sentence for finding in facts_of(player.open()).findings if "came to" in finding.sentence]
    assert sentence == (
        f"The loss of step 12 came to 71 % from one of 10 samples: trajectory {_trace(5)[:12]}, reward 0.5, loss 71."
    )


def test_a_burst_of_kl_is_blamed_on_gaps(tmp_path: Path) -> None:
    """Its step is the one of the last ten that is the farthest; KL is made of probabilities, not of losses."""
    burst = {semconv.ANOMALY_KIND: "burst", semconv.METRIC_NAME: "kl", semconv.ANOMALY_VALUE: 3.0}
    player = Player(tmp_path, Played(values=lambda step, _: {"kl": 3.0 if step == 14 else 0.01}))
    player.start()
    player.steps(range(20))
    player.add(*(_trained(14, n, loss=1.0) for n in range(6)))
    player.add(*(_said(14, n, [-1.0], [-6.0 if n == 2 else -1.1]) for n in range(6)))
    player.add(Event(semconv.EVENT_TRAINING_ANOMALY, 1, burst, 17))
    player.finish()

    (sentence,) = [finding.sentence for finding in facts_of(player.open()).findings if "came to" in finding.sentence]
    assert sentence == (
        "The divergence of trainer and engine in step 14 came to 99 % from one of 6 samples: "
        f"trajectory {_trace(2)[:12]}, reward 0.5, loss 1."
    )


def test_the_verdict_names_the_sample_of_a_nan(tmp_path: Path) -> None:
    """Also without any test: a loss that is not a number is an event of the agent."""
    player = Player(tmp_path, Played(values=lambda step, _: {"loss": NAN if step == 2 else 0.1}))
    player.start()
    player.steps(range(4))
    player.add(*(_trained(2, n, loss=NAN if n == 1 else 0.1) for n in range(64)))
    player.finish()

    sentences = [finding.sentence for finding in facts_of(player.open()).findings]
    assert f"The loss of step 2 is not finite in 1 of 64 samples: trajectory {_trace(1)[:12]}." in sentences


HALF = math.log(0.5)


def test_tokens_of_the_newest_version_that_differ(tmp_path: Path) -> None:
    """Step, trajectory, turn, token and both probabilities are named; old, masked and improbable tokens are not."""
    run = _run(
        tmp_path,
        *(_trained(2, n) for n in range(5)),
        _said(2, 0, [-0.1, math.log(0.9), -0.1], [-0.1, math.log(0.02), -0.1], turn=3),
        _said(2, 1, [-0.1], [-5.0], version=5),
        _said(2, 2, [-0.1], [-5.0], mask=[False]),
        _said(2, 3, [HALF - 0.01, HALF], [-9.0, HALF - 1.99]),
        _said(2, 4, [NAN, -0.1], [-9.0, NAN]),
    )

    (token,) = tokens(run, TokenScope([2]))
    assert token[:4] == (2, _trace(0), 3, 1)
    assert token[4:] == pytest.approx((0.9, 0.02))
    (remark,) = mismatch(run, TokenScope([0, 1, 2, 3]))
    assert remark.sentence == (
        "Engine and trainer of the same version disagree about 1 token in 1 trajectory since step 2: token 1 of turn 3 "
        f"of trajectory {_trace(0)[:12]} in step 2 has a probability of 0.9 in the engine, 0.02 in the trainer."
    )
    assert (remark.severity, remark.sure) == ("bad", "certain")
    assert remark.advice.startswith(f"Read otel-rl samples --trajectory {_trace(0)[:12]}.")


def test_tokens_without_versions_are_less_certain(tmp_path: Path) -> None:
    """A run that records no version can have sampled with any."""
    run = _run(tmp_path, _said(2, 0, [-0.1], [-math.inf], version=-1))

    (remark,) = mismatch(run, TokenScope([2]))
    assert (remark.severity, remark.sure) == ("warning", "likely")
    assert "0 in the trainer" in remark.sentence


def test_the_worth_of_old_tokens(tmp_path: Path) -> None:
    """The effective sample size of each age; only a small one is worth a line."""
    same = [-1.0] * 2_000
    apart = [-1.0 if n % 10 else -4.0 for n in range(2_000)]
    run = _run(
        tmp_path, *(_trained(2, n) for n in range(2)), _said(2, 0, same, same), _said(2, 1, apart, same, version=4)
    )

    worth = {age.age: age.worth for age in ages(run, TokenScope([2]))}
    assert worth == pytest.approx({0: 1.0, 3: (math.exp(3) + 9) ** 2 / 10 / (math.exp(6) + 9)})
    assert mismatch(run, TokenScope([1])) == []
    assert [remark.sentence for remark in mismatch(run, TokenScope([2]))] == [
        f"Effective sample size of tokens by age in versions: 100 % at 0 and {100 * worth[3]:.0f} % at 3."
    ]
