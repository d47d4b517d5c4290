"""Trajectories and their parts: their records, their spans, and the tickets that travel with them."""

from __future__ import annotations

import asyncio
import json
import math
from array import array
from pathlib import Path
from threading import Thread

import pytest

import otel_rl
from otel_rl import Run
from otel_rl.recorder.journal.ids import parse_traceparent
from otel_rl.recorder.journal.records import IDS, Consumed, Logged, Observed, Record, SpanStarted
from otel_rl.recorder.trainer.trajectories import Trajectory
from tests.recorder.trainer.reading import RecordsOf, begin, ended, refusals, started


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


def test_the_start_says_what_a_span_waits_for(recording: Run, records_of: RecordsOf) -> None:
    """Its group, version, tool, server and whom it names are known while it is open; the rest comes at its end."""
    with recording.trajectory(policy_version=3, prompt_id=37, task="x"), recording.phase("pull", awaits=["rank 0"]):
        pass
    with recording.trajectory() as trajectory, trajectory.part("tool", name="pytest", timeout=3):
        pass
    tracer = recording.tracer_provider.get_tracer("x")
    tracer.start_span("POST", attributes={"url.full": "http://a:b@engine:8000/?token=c" + "d" * 999, "x": 1}).end()
    with recording.phase("weight_sync", version=12), recording.phase("broadcast"):
        pass
    found = {one.name: one.awaits for one in records_of(recording) if isinstance(one, SpanStarted) and one.awaits}

    assert found.pop("POST", {})["url.full"][:32] == "http://a:[redacted]@engine:8000/"
    assert found == {
        "rl.trajectory": {"rl.policy.version": 3, "prompt_id": 37},
        "pull": {"awaits": ["rank 0"]},
        "rl.trajectory.tool": {"gen_ai.tool.name": "pytest"},
        "weight_sync": {"version": 12},
    }


def test_the_span_and_the_ticket(recording: Run, records_of: RecordsOf) -> None:
    """Both have tokens, reward, and the versions if the weights changed on the way; the ticket is plain JSON."""
    with recording.trajectory(policy_version=3, task="gsm8k") as trajectory:
        trajectory.generated(100)
        trajectory.generated(20, policy_version=4)
        trajectory.rewarded(0.5)
        inside = otel_rl.carrier()
    ticket = json.loads(json.dumps(trajectory.ticket()))

    assert ticket == {"policy_version": [3, 4], "tokens": [100, 20], "reward": 0.5, **inside}
    assert ended(records_of(recording), "rl.trajectory").attributes == {
        "rl.policy.version": 3,
        "task": "gsm8k",
        "rl.trajectory.tokens": 120,
        "rl.trajectory.reward": 0.5,
        "rl.policy.versions": [3, 4],
    }


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
    [
        *("text", {"reward": "high"}, {"policy_version": [1, 2], "tokens": [5]}, {"tokens": "many"}, None),
        *({"parts": {"tol": 1.0}}, {"parts": {"tool": -1}}, {"parts": 3}, {"parts": {"tool": "x"}}),
        {"tools": {"search": 1}},
    ],
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
    """`OTEL_SDK_DISABLED` switches traces off, not the staleness and the times."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = begin(tmp_path)
    with run.rollout(policy_version=3), run.trajectory(policy_version=3) as trajectory:
        trajectory.generated(100)
    with run.trajectory() as with_a_part, with_a_part.part("tool", name="search"):
        pass
    with run.step(0):
        run.trained([trajectory.ticket()], policy_version=4)
    records = records_of(run)

    assert trajectory.ticket() == {"policy_version": [3], "tokens": [100]}
    assert with_a_part.ticket()["tools"]["search"][0] == 1
    assert [record for record in records if isinstance(record, SpanStarted)] == []
    assert list(array("q", consumed(records)[0].segments)) == [0, 3, 100]


def test_a_queue(recording: Run, records_of: RecordsOf) -> None:
    """How much is in it, and how long one waited: samples, so that a step may say it often."""
    with recording.step(0):
        recording.queue("rollouts", depth=3, waited=0.5)
    (record,) = (record for record in records_of(recording) if isinstance(record, Logged | Observed))

    assert isinstance(record, Observed)
    assert record.values.keys() == {"queue/rollouts/depth@mean", "queue/rollouts/wait@sum"}


def test_a_part_is_inside_its_trajectory(recording: Run, records_of: RecordsOf) -> None:
    """It has a span with the name of the tool, and the attributes that were given."""
    with recording.trajectory() as trajectory, trajectory.part("tool", name="search", query_tokens=7):
        pass
    records = records_of(recording)
    spans = started(records)

    assert spans["rl.trajectory.tool"].parent_id == spans["rl.trajectory"].span_id
    assert spans["rl.trajectory.tool"].trace_id == spans["rl.trajectory"].trace_id
    assert ended(records, "rl.trajectory.tool").attributes == {
        "gen_ai.tool.name": "search",
        "query_tokens": 7,
    }


def test_a_part_in_a_thread_is_inside_its_trajectory(recording: Run, records_of: RecordsOf) -> None:
    """A new thread has no current span."""
    with recording.trajectory() as trajectory:

        def call() -> None:
            with trajectory.part("tool", name="search"):
                pass

        thread = Thread(target=call)
        thread.start()
        thread.join()
    spans = started(records_of(recording))

    assert spans["rl.trajectory.tool"].parent_id == spans["rl.trajectory"].span_id


def test_the_kinds_add_up_to_the_duration(recording: Run, records_of: RecordsOf) -> None:
    """Also if parts are inside others: time counts for the one that began last."""
    with recording.trajectory() as trajectory:
        with trajectory.part("model"):
            pass
        with trajectory.part("verifier"), trajectory.part("model", name="judge"):
            pass
    records = records_of(recording)
    nanoseconds = ended(records, "rl.trajectory").time - started(records)["rl.trajectory"].time
    parts = trajectory.ticket()["parts"]

    assert parts.keys() == {"model", "verifier", "other"}
    assert sum(parts.values()) == pytest.approx(nanoseconds / 1e9)


def test_a_ticket_with_parts_is_plain_json(recording: Run) -> None:
    """Each tool has its calls, their seconds, and those of the longest call."""
    with recording.trajectory() as trajectory:
        for tool in ("search", "search", "python"):
            with trajectory.part("tool", name=tool):
                pass
        with trajectory.part("environment", name="sandbox"):
            pass
    ticket = json.loads(json.dumps(trajectory.ticket()))

    assert {tool: calls for tool, (calls, _, _) in ticket["tools"].items()} == {"search": 2, "python": 1}
    assert ticket["tools"]["search"][1] >= ticket["tools"]["search"][2] > 0
    assert ticket["parts"].keys() == {"tool", "environment", "other"}


def test_a_step_has_the_time_of_its_trajectories(recording: Run, records_of: RecordsOf) -> None:
    """The record has the sums, and the longest call of each tool."""
    tickets = [
        {"parts": {"model": 1.0, "tool": 2, "other": 0.5}, "tools": {"search": [1, 4.0, 4.0]}},
        {"parts": {"model": 0.5}, "tools": {"search": [2, 2.0, 1.5]}},
        {"policy_version": 3},
    ]
    with recording.step(0):
        recording.trained(tickets)
    (record,) = consumed(records_of(recording))

    assert record.parts == {"model": 1.5, "tool": 2.0, "other": 0.5}
    assert record.tools == {"search": (3, 6.0, 4.0)}


def test_a_ticket_names_a_limited_number_of_tools(recording: Run) -> None:
    """The calls of all others are added up."""
    with recording.trajectory() as trajectory:
        for n in range(100):
            with trajectory.part("tool", name=f"tool {n}"):
                pass
    tools = trajectory.ticket()["tools"]

    assert len(tools) == 65
    assert tools["other"][0] == 36


@pytest.mark.parametrize("kind", ["tol", "", None, 3, ["tool"]])
def test_an_unknown_kind_is_refused(recording: Run, records_of: RecordsOf, kind: object) -> None:
    """The block runs, its time is that of no part, and the call is counted."""
    ran = False
    with recording.trajectory() as trajectory, trajectory.part(kind):  # type: ignore[arg-type]
        ran = True
    records = records_of(recording)

    assert ran
    assert "parts" not in trajectory.ticket()
    assert refusals(records) == {"part": 1}
    assert [one.name for one in records if isinstance(one, SpanStarted)] == ["rl.trajectory"]


def test_other_arguments_are_refused(recording: Run, records_of: RecordsOf) -> None:
    """A second argument by position is counted, and the part is recorded."""
    with recording.trajectory() as trajectory, trajectory.part("tool", "search"):  # type: ignore[arg-type]
        pass
    records = records_of(recording)

    assert refusals(records) == {"part": 1}
    assert "rl.trajectory.tool" in started(records)


def test_a_part_outside_of_its_trajectory_is_refused(recording: Run, records_of: RecordsOf) -> None:
    """Before the trajectory begins, and after it has ended."""
    trajectory = recording.trajectory()
    with trajectory.part("tool"):
        pass
    with trajectory:
        pass
    with trajectory.part("tool"):
        pass

    assert refusals(records_of(recording)) == {"part": 2}


def test_an_exception_passes_through_a_part(recording: Run, records_of: RecordsOf) -> None:
    """The span has the error, and the time still counts."""
    with recording.trajectory() as trajectory, pytest.raises(TimeoutError), trajectory.part("tool", name="search"):
        raise TimeoutError("no answer")

    assert ended(records_of(recording), "rl.trajectory.tool").error == ("TimeoutError", "no answer")
    assert trajectory.ticket()["tools"]["search"][0] == 1


def test_trajectories_at_the_same_time_have_their_own_parts(recording: Run, records_of: RecordsOf) -> None:
    """Two tasks take turns inside their parts; each span is in the trace of its own trajectory."""

    async def roll_out(tool: str) -> dict[str, object]:
        with recording.trajectory() as trajectory, trajectory.part("tool", name=tool):
            await asyncio.sleep(0)
        return trajectory.ticket()

    async def both() -> list[dict[str, object]]:
        return await asyncio.gather(roll_out("search"), roll_out("python"))

    tickets = asyncio.run(both())
    spans = [record for record in records_of(recording) if isinstance(record, SpanStarted)]
    wholes = {span.trace_id: span.span_id for span in spans if span.name == "rl.trajectory"}
    parts = [span for span in spans if span.name == "rl.trajectory.tool"]

    assert [list(ticket["tools"]) for ticket in tickets] == [["search"], ["python"]]  # type: ignore[call-overload]
    assert len(wholes) == 2
    assert [span.parent_id for span in parts] == [wholes[span.trace_id] for span in parts]


def test_tools_at_the_same_time_do_not_exceed_the_duration(recording: Run, records_of: RecordsOf) -> None:
    """The seconds of the kinds add up; the calls of tools overlap."""

    async def call(trajectory: Trajectory, tool: str) -> None:
        with trajectory.part("tool", name=tool):
            await asyncio.sleep(0.01)

    async def both() -> Trajectory:
        with recording.trajectory() as trajectory:
            await asyncio.gather(call(trajectory, "search"), call(trajectory, "python"))
        return trajectory

    ticket = asyncio.run(both()).ticket()
    records = records_of(recording)
    nanoseconds = ended(records, "rl.trajectory").time - started(records)["rl.trajectory"].time

    assert sum(ticket["parts"].values()) == pytest.approx(nanoseconds / 1e9)
    assert ticket["tools"].keys() == {"search", "python"}
