"""Records of trajectories in the journal, and the tickets that travel with them."""

from __future__ import annotations

import json
import math
from array import array
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.journal.ids import parse_traceparent
from otel_rl.journal.records import IDS, Consumed, Logged, Observed, Record, SpanStarted
from tests.trainer.reading import begin, ended, refusals, started

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl import Run

    RecordsOf = Callable[..., list[Record]]


def consumed(records: list[Record]) -> list[Consumed]:
    return [record for record in records if isinstance(record, Consumed)]


def test_a_trajectory_has_a_trace_of_its_own(recording: Run, records_of: RecordsOf) -> None:
    """Also inside a step: another one may train on it. Phases inside are in its trace."""
    with recording.step(0), recording.trajectory(policy_version=3), recording.phase("tool_call"):
        pass
    spans = started(records_of(recording))

    assert spans["rl.trajectory"].parent_id == 0
    assert spans["tool_call"].parent_id == spans["rl.trajectory"].span_id
    assert spans["tool_call"].trace_id == spans["rl.trajectory"].trace_id != spans.get("rl.loop")


def test_trajectories_link_to_their_rollout(recording: Run, records_of: RecordsOf) -> None:
    """The batch has a trace of its own too."""
    with recording.rollout(policy_version=3) as rollout, recording.trajectory(policy_version=3):
        pass
    records = records_of(recording)
    here = rollout.get_span_context()

    assert ended(records, "rl.trajectory").links == [(here.trace_id.to_bytes(16, "big"), here.span_id)]
    assert ended(records, "rl.rollout").attributes == {"rl.policy.version": 3}


def test_what_is_told_is_on_the_span(recording: Run, records_of: RecordsOf) -> None:
    """Tokens, reward, and the versions if the weights changed on the way."""
    with recording.trajectory(policy_version=3, task="gsm8k") as trajectory:
        trajectory.generated(100)
        trajectory.generated(20, policy_version=4)
        trajectory.rewarded(0.5)

    assert ended(records_of(recording), "rl.trajectory").attributes == {
        "rl.policy.version": 3,
        "task": "gsm8k",
        "rl.trajectory.tokens": 120,
        "rl.trajectory.reward": 0.5,
        "rl.policy.versions": [3, 4],
    }


def test_a_ticket_is_plain_json(recording: Run) -> None:
    """It goes through any queue, and names the trajectory's span."""
    with recording.trajectory(policy_version=3) as trajectory:
        trajectory.generated(100)
        trajectory.generated(20, policy_version=4)
        trajectory.rewarded(0.5)
        inside = otel_rl.carrier()
    ticket = json.loads(json.dumps(trajectory.ticket()))

    assert ticket == {"policy_version": [3, 4], "tokens": [100, 20], "reward": 0.5, **inside}


def test_what_a_step_took(recording: Run, records_of: RecordsOf) -> None:
    """Trajectories by ticket, or by what is known of them; what was dropped, with the reason."""
    with recording.trajectory(policy_version=3) as trajectory:
        trajectory.generated(100)
    ids = parse_traceparent(trajectory.ticket()["traceparent"])
    with recording.step(7):
        recording.trained([trajectory.ticket(), {"policy_version": 4, "tokens": 5, "reward": 1}], policy_version=5)
        recording.dropped([{"policy_version": 1}], reason="stale")
    trained, dropped = consumed(records_of(recording))

    assert (trained.step, trained.outcome, trained.policy_version) == (7, "trained", 5)
    assert ids is not None
    assert list(IDS.iter_unpack(trained.ids)) == [(ids.trace_id.to_bytes(16, "big"), ids.span_id), (bytes(16), 0)]
    rewards = array("d", trained.rewards)
    assert math.isnan(rewards[0])
    assert rewards[1] == 1.0
    assert list(array("q", trained.segments)) == [0, 3, 100, 1, 4, 5]
    assert (dropped.outcome, dropped.policy_version, list(array("q", dropped.segments))) == ("stale", -1, [0, 1, 0])


def test_many_are_several_records(recording: Run, records_of: RecordsOf) -> None:
    """No record becomes larger than the journal likes."""
    with recording.step(0):
        recording.trained([{"policy_version": 1, "tokens": n} for n in range(2500)])

    assert [len(array("d", record.rewards)) for record in consumed(records_of(recording))] == [1000, 1000, 500]


@pytest.mark.parametrize(
    "ticket",
    ["text", {"reward": "high"}, {"policy_version": [1, 2], "tokens": [5]}, {"tokens": "many"}, None],
)
def test_what_is_no_ticket_is_refused(recording: Run, records_of: RecordsOf, ticket: object) -> None:
    """It is counted, and never raises into the trainer."""
    with recording.step(0):
        recording.trained([ticket])  # type: ignore[list-item]

    assert refusals(records_of(recording)) == {"trained": 1}


def test_outside_of_steps_it_is_refused(recording: Run, records_of: RecordsOf) -> None:
    """It belongs to no step then."""
    recording.dropped([{"policy_version": 1}], reason="stale")

    assert refusals(records_of(recording)) == {"step": 1}


def test_without_spans_the_numbers_are_there(
    tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OTEL_SDK_DISABLED` switches traces off, not the staleness."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = begin(tmp_path)
    with run.rollout(policy_version=3), run.trajectory(policy_version=3) as trajectory:
        trajectory.generated(100)
    with run.step(0):
        run.trained([trajectory.ticket()], policy_version=4)
    records = records_of(run)

    assert trajectory.ticket() == {"policy_version": [3], "tokens": [100]}
    assert [record for record in records if isinstance(record, SpanStarted)] == []
    assert list(array("q", consumed(records)[0].segments)) == [0, 3, 100]


def test_a_queue(recording: Run, records_of: RecordsOf) -> None:
    """How much is in it, and how long one waited: samples, so that a step may say it often."""
    with recording.step(0):
        recording.queue("rollouts", depth=3, waited=0.5)
    (record,) = (record for record in records_of(recording) if isinstance(record, Logged | Observed))

    assert isinstance(record, Observed)
    assert record.values.keys() == {"queue/rollouts/depth@mean", "queue/rollouts/wait@sum"}
