"""Messages of trajectories wait for the step that trains on them, wherever and whenever it says so."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import permutations

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl.export import Ended, Item, Message, Span, Trajectory
from otel_rl.recorder.agent.steps.message_buffer import MOST_WAITING, MessageBuffer
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import Journal, State
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent
from otel_rl.recorder.journal.record_events import Lost, from_event, to_event
from otel_rl.recorder.journal.records import (
    Consumed,
    Finished,
    Record,
    SpanEnded,
    SpanStarted,
    StepStarted,
    WrittenMessage,
    Wrote,
)
from otel_rl.recorder.trainer.tickets import GivenScores, consumed
from tests.recorder.agent.reducing import S, feed, reducing, started

WORKER, RANK = "rollout0", "rank0"


def wrote(n: int, *texts: str, group: str = "", ends: bool = True, number: int = 0, size: int = 0) -> Wrote:
    """Return the messages of trajectory `n`, by the user and the assistant in turns; each has two tokens."""
    pad = "x" * size
    said = [
        WrittenMessage(
            ("user", "assistant")[place % 2], f"{text}{pad}", tokens=array("i", [n, n]).tobytes(), pieces=("a", "b")
        )
        for place, text in enumerate(texts, number)
    ]
    return Wrote(n * S, n.to_bytes(16, "big"), n, group, number, said, ends)


def took(number: int, *which: int, outcome: str = "trained", **scores: Sequence[object]) -> list[Consumed]:
    """Return the records of a step that takes trajectories."""
    tickets = [{"traceparent": format_traceparent(SpanIds(n, n)), "reward": float(n)} for n in which]
    found = GivenScores(**scores)  # type: ignore[arg-type]
    return [*consumed(tickets, number, S, 1, outcome, pytest.fail, found)]


def messages(items: Sequence[Item]) -> list[Message]:
    return [item for item in items if isinstance(item, Message)]


def shown(items: Sequence[Item]) -> list[tuple[int, int, str]]:
    """Return step, trajectory and text of messages."""
    return [(one.step, int(one.trace_id, 16), one.text) for one in messages(items)]


@pytest.fixture
def reducer() -> Reducer:
    """A reducer of a rollout worker and a rank in step 3."""
    reducer = reducing()
    feed(reducer, WORKER, started(2, role="rollout"))
    feed(reducer, RANK, started(), StepStarted(3, S, b""))
    return reducer


def test_a_message_has_the_step_that_trained_on_it(reducer: Reducer) -> None:
    """It leaves with all that is known, when the step has closed."""
    logprobs = [array("d", [-0.5, -1.5]).tobytes()]
    feed(reducer, WORKER, wrote(1, "2 + 2?", "4"))
    early = feed(reducer, RANK, *took(3, 1, logprobs=logprobs, advantages=[0.25]))
    items = feed(reducer, RANK, StepStarted(4, 9 * S, b""))
    first, second = messages(items)
    (taken,) = (item for item in items if isinstance(item, Trajectory))

    assert messages(early) == []
    assert first == Message(
        *(0, 3, S, "rollout", 2, f"{1:032x}", f"{1:016x}", 0, "user"),
        text="2 + 2?",
        tokens=array("i", [1, 1]).tobytes(),
        pieces=("a", "b"),
    )
    assert (second.number, second.author, second.text, second.trainer_logprobs) == (1, "assistant", "4", logprobs[0])
    assert (taken.trace_id, taken.advantage, taken.reward) == (first.trace_id, 0.25, 1.0)
    assert reducer.state.written == {}


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_the_order_of_arrival_does_not_matter(reducer: Reducer, order: tuple[int, ...]) -> None:
    """Messages and the step that took them come from different processes, maybe of different machines."""
    logprobs = [array("d", [-0.5, -1.5]).tobytes()]
    parts: list[tuple[str, list[Record]]] = [
        (WORKER, [wrote(1, "q", "a", ends=False)]),
        (WORKER, [wrote(1, number=2)]),
        (RANK, [*took(3, 1, logprobs=logprobs)]),
    ]
    feed(reducer, WORKER, wrote(9, "another", "one"))  # so that the agent knows that there are texts
    for place in order:
        name, records = parts[place]
        feed(reducer, name, *records)
    found = feed(reducer, RANK, StepStarted(4, 9 * S, b""))

    assert shown(found) == [(3, 1, "q"), (3, 1, "a")]
    assert messages(found)[1].trainer_logprobs == logprobs[0]


def test_messages_that_come_after_their_step_has_closed(reducer: Reducer) -> None:
    """They leave with the next one that closes, and keep the number of their own."""
    feed(reducer, WORKER, wrote(9, "another", "one"))
    feed(reducer, RANK, *took(3, 1))
    between = [shown(feed(reducer, RANK, StepStarted(n, n * S, b""))) for n in range(4, 14)]
    feed(reducer, WORKER, wrote(1, "q", "a"))
    late = feed(reducer, RANK, StepStarted(14, 14 * S, b""))

    assert [some for some in between if some and some[0][1] == 1] == []
    assert shown(late) == [(3, 1, "q"), (3, 1, "a")]


def test_a_trajectory_is_not_torn(reducer: Reducer) -> None:
    """One whose messages have not all arrived waits for the others."""
    feed(reducer, WORKER, wrote(1, "q", ends=False))
    feed(reducer, RANK, *took(3, 1))
    between = feed(reducer, RANK, StepStarted(4, 9 * S, b""))
    feed(reducer, WORKER, wrote(1, "a", number=1))
    late = feed(reducer, RANK, StepStarted(5, 10 * S, b""))

    assert (shown(between), shown(late)) == ([], [(3, 1, "q"), (3, 1, "a")])


def test_the_span_of_a_trajectory_has_its_messages(reducer: Reducer) -> None:
    """From its end on, before a step trains on it; only those of its own."""
    for n in (1, 2):
        begun = SpanStarted(n, 0, n.to_bytes(16, "big"), None, "rl.trajectory", S, b"", kind=0)
        feed(reducer, WORKER, begun, *([wrote(1, "2 + 2?", "4")] if n == 1 else []))
    spans = [item for n in (1, 2) for item in feed(reducer, WORKER, SpanEnded(n, 2 * S, b"")) if isinstance(item, Span)]

    assert "2 + 2?" in str(spans[0].attributes["gen_ai.input.messages"])
    assert "4" in str(spans[0].attributes["gen_ai.output.messages"])
    assert not {"gen_ai.input.messages", "gen_ai.output.messages"} & spans[1].attributes.keys()


def test_a_completion_gets_a_span(reducer: Reducer) -> None:
    """It has its messages and its reward, so that a server of traces can show it; it takes no time."""
    (record,) = took(3, 1)
    feed(reducer, WORKER, wrote(1, "2 + 2?", "4"))
    feed(reducer, RANK, replace(record, have_spans=False))
    items = feed(reducer, RANK, StepStarted(4, 9 * S, b""))
    (span,) = (item for item in items if isinstance(item, Span) and item.name == "rl.completion")

    assert (span.trace_id, span.span_id, span.parent_id) == (f"{1:032x}", f"{1:016x}", "")
    assert (span.start_unix_nano, span.end_unix_nano) == (S, S)
    assert span.attributes.items() >= {"rl.loop.iteration": 3, "rl.trajectory.reward": 1.0, "rl.rank": 2}.items()
    assert "2 + 2?" in str(span.attributes["gen_ai.input.messages"])
    assert len(messages(items)) == 2


def test_where_no_traces_are_sent_spans_have_no_messages() -> None:
    """A completion has no span then."""
    state = State()
    buffer = MessageBuffer(state, in_spans=False)
    state.journals[RANK] = Journal(started())
    buffer.add(RANK, wrote(1, "2 + 2?", "4"))
    buffer.consume(0, replace(took(3, 1)[0], have_spans=False))

    assert buffer.attributes(f"{1:032x}", f"{1:016x}") == {}
    assert shown(found := buffer.leave_all(0)) == [(3, 1, "2 + 2?"), (3, 1, "4")]
    assert len(found) == 2


def test_trajectories_that_were_dropped_are_kept_too(reducer: Reducer) -> None:
    """Their step is the one that dropped them."""
    feed(reducer, WORKER, wrote(1, "q", "a"))
    feed(reducer, RANK, *took(3, 1, outcome="stale"))

    assert shown(feed(reducer, RANK, StepStarted(4, 9 * S, b""))) == [(3, 1, "q"), (3, 1, "a")]


def test_a_trajectory_that_no_step_takes(reducer: Reducer) -> None:
    """It leaves after four more steps, with the number of the open one: such as one of an evaluation."""
    feed(reducer, WORKER, wrote(1, "q", "a"))
    found = [shown(feed(reducer, RANK, StepStarted(n, n * S, b""))) for n in range(4, 10)]

    assert [number for number, some in enumerate(found, 4) if some] == [8]
    assert found[4] == [(8, 1, "q"), (8, 1, "a")]


@pytest.mark.parametrize("end", [Finished(9 * S), Lost(9 * S)])
def test_the_end_of_the_run(reducer: Reducer, end: Record) -> None:
    """All that still waits leaves before it, also of a worker that was killed in a trajectory."""
    feed(reducer, WORKER, wrote(1, "q", ends=False), end)
    found = feed(reducer, RANK, Finished(9 * S))

    assert shown(found) == [(3, 1, "q")]
    assert [type(item) for item in found].index(Message) < [type(item) for item in found].index(Ended)


@pytest.mark.parametrize("restart_at", range(4))
def test_an_agent_that_is_restarted(restart_at: int) -> None:
    """Nothing is there twice and nothing is missing, wherever the next one goes on from the checkpoint."""
    reducer = reducing()
    parts: list[tuple[str, list[Record]]] = [
        (WORKER, [started(2, role="rollout"), wrote(1, "q", ends=False)]),
        (RANK, [started(), StepStarted(3, S, b""), *took(3, 1, logprobs=[array("d", [-0.5, -1.5]).tobytes()])]),
        (WORKER, [wrote(1, "a", number=1)]),
        (RANK, [StepStarted(4, 9 * S, b"")]),
    ]
    found: list[Item] = []
    for place, (name, records) in enumerate(parts):
        if place == restart_at:
            saved = msgspec.msgpack.encode(reducer.state)
            reducer = reducing(state=msgspec.msgpack.decode(saved, type=State))
        found += feed(reducer, name, *records)

    assert shown(found) == [(3, 1, "q"), (3, 1, "a")]
    assert len(messages(found)[1].trainer_logprobs) == 16


def test_log_probabilities_of_other_tokens(reducer: Reducer, caplog: pytest.LogCaptureFixture) -> None:
    """They are left out, counted, and named once."""
    feed(reducer, WORKER, wrote(1, "q", "a"), wrote(2, "q", "a"))
    feed(reducer, RANK, *took(3, 1, 2, logprobs=[array("d", [-0.5] * 7).tobytes()] * 2))
    found = messages(feed(reducer, RANK, StepStarted(4, 9 * S, b"")))

    assert [one.trainer_logprobs for one in found] == [b""] * 4
    assert reducer.messages.mismatched == 2
    assert len([record for record in caplog.records if "log-probabilities" in record.message]) == 1


def test_log_probabilities_of_all_tokens(reducer: Reducer) -> None:
    """A trainer may give those of tools too."""
    feed(reducer, WORKER, wrote(1, "q", "a"))
    feed(reducer, RANK, *took(3, 1, logprobs=[array("d", [-1, -2, -3, -4]).tobytes()]))
    found = messages(feed(reducer, RANK, StepStarted(4, 9 * S, b"")))

    assert [array("d", one.trainer_logprobs).tolist() for one in found] == [[-1, -2], [-3, -4]]


def test_log_probabilities_without_tokens(reducer: Reducer) -> None:
    """The only message of the assistant has them, such as one whose tokens would spell a secret."""
    said = [WrittenMessage("user", "q"), WrittenMessage("assistant", "a")]
    feed(reducer, WORKER, Wrote(S, b"t" * 16, 1, "", 0, said, is_last=True))
    ticket = {"traceparent": format_traceparent(SpanIds(int.from_bytes(b"t" * 16, "big"), 1))}
    found = GivenScores(logprobs=[array("d", [-1, -2]).tobytes()])
    feed(reducer, RANK, *consumed([ticket], 3, S, 1, "trained", pytest.fail, found))
    both = messages(feed(reducer, RANK, StepStarted(4, 9 * S, b"")))

    assert [array("d", one.trainer_logprobs).tolist() for one in both] == [[], [-1, -2]]
    assert reducer.messages.mismatched == 0


def test_a_step_keeps_four_mebibytes(reducer: Reducer) -> None:
    """Of more, a sample of whole groups is kept, and the others are counted; the trajectories are all listed."""
    for n in range(1, 65):
        feed(reducer, WORKER, wrote(n, "q", "a", group=f"g{n // 4}", size=50_000))
    feed(reducer, RANK, *took(3, *range(1, 65)))
    items = feed(reducer, RANK, StepStarted(4, 9 * S, b""))
    kept = {number for _, number, _ in shown(items)}

    assert 3 << 20 < sum(len(one.text) for one in messages(items)) <= 4 << 20
    assert reducer.messages.left_out == 64 - len(kept)
    assert all({n for n in range(1, 65) if n // 4 == group // 4} <= kept for group in kept)
    assert len([item for item in items if isinstance(item, Trajectory)]) == 64


def test_what_waits_is_bounded(reducer: Reducer) -> None:
    """A worker that nobody trains on fills no checkpoint; what stays is the same sample, in whole groups."""
    for n in range(1, 2001):
        feed(reducer, WORKER, wrote(n, "q", group=f"g{n // 4}", size=20_000))
        if n % 500 == 0:
            assert len(msgspec.msgpack.encode(reducer.state)) < 1.1 * MOST_WAITING
    of_group: dict[str, int] = {}
    for one in reducer.state.written.values():
        of_group[one.group] = of_group.get(one.group, 0) + 1
    found = feed(reducer, RANK, *took(3, *range(1, 2001)), StepStarted(4, 9 * S, b""))

    assert len(of_group) > 50
    assert set(of_group.values()) - {3, 1} == {4}
    assert len(messages(found)) + reducer.messages.left_out == 2000


def test_trajectories_without_texts_wait_for_nothing(reducer: Reducer) -> None:
    """A run that records no texts has nothing in its checkpoint."""
    feed(reducer, RANK, *took(3, *range(1, 100)))

    assert reducer.state.written == {}


def test_an_agent_that_sends_to_a_head_keeps_none() -> None:
    """The head has the records of all machines."""
    reducer = reducing(messages=False)
    feed(reducer, RANK, started(), StepStarted(3, S, b""), wrote(1, "q", "a"))
    found = feed(reducer, RANK, *took(3, 1, logprobs=[b"\0" * 16]), StepStarted(4, 9 * S, b""))

    assert (messages(found), reducer.state.written, reducer.messages.left_out) == ([], {}, 0)
    assert len([item for item in found if isinstance(item, Trajectory)]) == 1


def test_records_travel_to_a_head() -> None:
    """Messages and scores are the same after a way through OTLP."""
    for record in (wrote(1, "q\0", "a", group="g"), *took(3, 1, logprobs=[b"\0" * 16], advantages=[0.5], losses=[2.0])):
        assert from_event(*to_event(record)) == record


@pytest.mark.parametrize(
    "bad",
    [
        Wrote(S, b"short", 1, "", 0, []),
        Wrote(S, b"t" * 16, 1, "", 0, [WrittenMessage("user", "x", tokens=b"123")]),
        Wrote(S, b"t" * 16, 1, "", 0, [WrittenMessage("user", "x", tokens=b"1234", logprobs=b"1" * 16)]),
        Wrote(S, b"t" * 16, 1, "", 0, [WrittenMessage("user", "x", tokens=b"1234", pieces=("a", "b"))]),
    ],
)
def test_invalid_records_are_put_into_quarantine(reducer: Reducer, bad: Wrote) -> None:
    """Everything else goes on."""
    feed(reducer, WORKER, bad, wrote(1, "q", "a"))

    assert reducer.quarantine.count == 1
    assert len(reducer.state.written) == 1


def test_a_long_trajectory_waits_until_it_ends(reducer: Reducer) -> None:
    """An agent may work for many steps of the trainer: its messages stay together, whatever closes meanwhile."""
    feed(reducer, WORKER, wrote(1, "q", ends=False))
    between = [shown(feed(reducer, RANK, StepStarted(n, n * S, b""))) for n in range(4, 14)]
    feed(reducer, WORKER, wrote(1, "a", number=1))
    feed(reducer, RANK, *took(13, 1))
    late = feed(reducer, RANK, StepStarted(14, 14 * S, b""))

    assert between == [[]] * 10
    assert shown(late) == [(13, 1, "q"), (13, 1, "a")]


def test_a_trajectory_that_is_trained_on_twice(reducer: Reducer) -> None:
    """Such as in each epoch of PPO: the log-probabilities of the last call that has some count, once."""
    logprobs = [[array("d", [-value] * 2).tobytes()] for value in (1.0, 2.0)]
    feed(reducer, WORKER, wrote(1, "q", "a"))
    for found in logprobs:
        feed(reducer, RANK, *took(3, 1, logprobs=found))
    feed(reducer, RANK, *took(3, 1))
    found = messages(feed(reducer, RANK, StepStarted(4, 9 * S, b"")))

    assert [one.trainer_logprobs for one in found] == [b"", logprobs[1][0]]


def test_trajectories_that_are_all_of_one_group(reducer: Reducer) -> None:
    """A group that is larger than what may wait is sampled, not dropped."""
    for n in range(1, 1001):
        feed(reducer, WORKER, wrote(n, "q", group="train", size=20_000))
    found = feed(reducer, RANK, *took(3, *range(1, 1001)), StepStarted(4, 9 * S, b""))

    assert 3 << 20 < sum(len(one.text) for one in messages(found)) <= 4 << 20
    assert len(messages(found)) + reducer.messages.left_out == 1000


def test_trajectories_whose_messages_never_come(reducer: Reducer) -> None:
    """A worker may record a few only: the others do not fill the checkpoint."""
    feed(reducer, WORKER, wrote(1, "q", "a"))
    for n in range(4, 30):
        feed(reducer, RANK, *took(n - 1, *range(2000 * n, 2000 * n + 2000)), StepStarted(n, n * S, b""))

    assert len(msgspec.msgpack.encode(reducer.state.written)) < MOST_WAITING
    assert f"{2000 * 29:032x}{2000 * 29:016x}" in reducer.state.written
