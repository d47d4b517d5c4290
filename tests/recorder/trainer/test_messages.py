"""Messages and scores of trajectories, as a trainer and a rollout worker record them."""

from __future__ import annotations

import json
import math
import struct
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_rl import Run
from otel_rl.recorder.journal.records import IDS, Consumed, Record, SpanStarted, WrittenMessage, Wrote
from otel_rl.recorder.trainer.messages import TRAJECTORY_BYTES
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf, begin, refusals

KEY = "hf_abcdefghijKLMNOPQRSTuvwxyz01234567"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that records texts."""
    return begin(tmp_path, content=True)


def written(records: list[Record]) -> list[WrittenMessage]:
    return [message for one in records if isinstance(one, Wrote) for message in one.messages]


def consumed(records: list[Record]) -> list[Consumed]:
    return [record for record in records if isinstance(record, Consumed)]


def test_a_conversation(run: Run, records_of: RecordsOf) -> None:
    """Each message has its author, text, tool, calls and version, under the ids of the trajectory's span."""
    calls = [{"id": "1", "function": {"name": "pytest", "arguments": '{"path": "tests"}'}}]
    with run.trajectory(policy_version=7, group_id="g-3") as one:
        one.message("user", [{"type": "text", "text": "2 + 2?"}, {"type": "image"}])
        one.generated(3, policy_version=8)
        one.message("assistant", "4", tokens=[1, 2], logprobs=[-0.5, -1.5], mask=[True, False], tool_calls=calls)
        one.message("tool", "ok", name="pytest")
    records = records_of(run)
    first, second, third = written(records)
    wrote = [record for record in records if isinstance(record, Wrote)]
    here = one.get_span_context()

    assert (first.author, first.text, first.policy_version) == ("user", "2 + 2?\n<image>", 7)
    assert (second.text, second.policy_version, json.loads(second.calls)) == ("4", 8, calls)
    assert (array("i", second.tokens).tolist(), array("d", second.logprobs).tolist()) == ([1, 2], [-0.5, -1.5])
    assert (list(second.mask), third.author, third.name, third.text) == ([1, 0], "tool", "pytest", "ok")
    assert {(one.trace_id, one.span_id, one.group_id) for one in wrote} == {
        (here.trace_id.to_bytes(16, "big"), here.span_id, "g-3")
    }
    assert [(one.number, one.is_last) for one in wrote] == [(0, False), (1, False), (2, False), (3, True)]


def test_texts_of_tokens(run: Run, records_of: RecordsOf) -> None:
    """They are kept if there is one for each token; long ones are cut, and lone surrogates escaped."""
    with run.trajectory() as one:
        one.message("assistant", "4 ok", tokens=[1, 2, 3], pieces=["4", " o", "k"])
        one.message("assistant", "4", tokens=[1, 2], pieces=["\ud800", "x" * 1000])
        one.message("assistant", "4", tokens=[1, 2], pieces=["4"])
        one.message("assistant", "4", tokens=[1], pieces=4)
        one.message("assistant", "4", pieces=["4"])

    records = records_of(run)
    found = [list(message.pieces) for message in written(records)]
    assert refusals(records)["message"] == 3
    assert found == [["4", " o", "k"], ["\\ud800", "x" * 256], [], [], []]


@pytest.mark.parametrize(
    ("text", "pieces", "calls"),
    [
        (f"It is {KEY}.", ["It", " is ", KEY[:9], KEY[9:], "."], None),
        ("It is secret.", ["It is secret.", KEY[:9], KEY[9:]], None),
        ("", ["{", KEY[:9], KEY[9:], "}"], None),
        ("", ['{"password":', ' "hunter2"}'], [{"function": {"name": "f", "arguments": '{"password": "hunter2"}'}}]),
    ],
)
def test_texts_of_tokens_do_not_spell_a_secret(
    run: Run, records_of: RecordsOf, text: str, pieces: list[str], calls: object
) -> None:
    """Neither one of the text, nor one that the text does not have, such as one in a tool call."""
    with run.trajectory() as one:
        one.message("assistant", text, tokens=[*range(len(pieces))], pieces=pieces, tool_calls=calls)
    (message,) = written(records_of(run))

    assert (message.pieces, message.tokens) == ((), b"")
    assert "".join(pieces) not in str(message)


def test_texts_of_the_tokens_of_a_batch(run: Run, records_of: RecordsOf) -> None:
    """Each completion has its own; those of a conversation are divided like its tokens."""
    turns = [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}]
    run.completions(
        ["?"],
        [["ok", turns]],
        tokens=[[1, 2], [3, 4]],
        masks=[[1, 1], [1, 0]],
        pieces=[["o", "k"], ["a", "b"]],
        step=0,
    )

    assert [list(one.pieces) for one in written(records_of(run)) if one.author != "user"] == [["o", "k"], ["a"], ["b"]]


def test_a_message_is_durable_at_once(run: Run, records_of: RecordsOf) -> None:
    """A worker that is killed in a tool call leaves what led to it."""
    with run.trajectory() as one:
        one.message("user", "rm -rf /")

        assert [message.text for message in written(records_of(run))] == ["rm -rf /"]


def test_texts_need_to_be_asked_for(recording: Run, records_of: RecordsOf) -> None:
    """Without `content=True` there is no record, whatever is given; a ticket and its scores have numbers alone."""
    with recording.trajectory() as one:
        one.message("user", "a text", tokens=object(), logprobs="x")
    recording.completions(["p"], [["a"]], tokens=[[1]], step=0)
    recording.trained([one.ticket()], advantages=[0.5], logprobs=[[-0.25]], step=0)
    records = records_of(recording)
    (taken,) = consumed(records)

    assert (written(records), taken.logprobs, recording.refused) == ([], [], {})
    assert array("d", taken.advantages).tolist() == [0.5]


ARRAYS = [
    (lambda values: values, "list"),
    (tuple, "tuple"),
    (np.asarray, "NumPy"),
    (lambda values: np.asarray(values, np.float32).tolist(), "float32 list"),
    (lambda values: np.asarray(values, np.float32), "float32"),
]


@pytest.mark.parametrize("make", [make for make, _ in ARRAYS], ids=[name for _, name in ARRAYS])
def test_log_probabilities_are_kept_bit_for_bit(run: Run, records_of: RecordsOf, make: Any) -> None:
    """Of each kind of list, NaN and infinities included."""
    values = make([-0.1, -1e-30, math.nan, -math.inf, -0.0])
    with run.trajectory() as one:
        one.message("assistant", "x", tokens=np.arange(5), logprobs=values)
    (message,) = written(records_of(run))

    assert message.logprobs == struct.pack("5d", *map(float, values))
    assert array("i", message.tokens).tolist() == [0, 1, 2, 3, 4]


@needs("torch")
def test_tensors_of_the_host_are_read_and_others_are_refused(run: Run, records_of: RecordsOf) -> None:
    """A tensor on a device is not waited for: the text stays, and the refusal is counted."""
    import torch

    with run.trajectory() as one:
        one.message("assistant", "a", tokens=torch.arange(2), mask=torch.tensor([True, False]))
        one.message("assistant", "b", logprobs=torch.zeros(2, device="meta"))
        one.message("assistant", "c", logprobs=torch.full((1,), -0.5, dtype=torch.bfloat16, requires_grad=True))
    run.trained([one.ticket()], losses=torch.zeros(1, device="meta"), step=0)
    records = records_of(run)
    first, second, third = written(records)

    assert (array("i", first.tokens).tolist(), list(first.mask)) == ([0, 1], [1, 0])
    assert (second.text, second.logprobs, array("d", third.logprobs).tolist()) == ("b", b"", [-0.5])
    assert refusals(records) == {"message": 1, "trained": 1}
    assert len(consumed(records)) == 1


@pytest.mark.parametrize(
    "lists",
    [
        {"tokens": "text"},
        {"tokens": [1.5]},
        {"tokens": [1 << 40]},
        {"tokens": [[1]]},
        {"logprobs": [None]},
        {"tokens": [1, 2], "logprobs": [-1.0]},
        {"tokens": [1, 2], "mask": [True]},
    ],
)
def test_lists_that_are_not_of_the_tokens_are_refused(run: Run, records_of: RecordsOf, lists: Any) -> None:
    """The text stays, and nothing raises."""
    with run.trajectory() as one:
        one.message("assistant", "x", **lists)
    records = records_of(run)

    assert ([message.text for message in written(records)], refusals(records)) == (["x"], {"message": 1})


def test_secrets_are_redacted(run: Run, records_of: RecordsOf) -> None:
    """In texts and tool calls; the tokens of a text with a secret spell it, so that they are left out."""
    with run.trajectory() as one:
        one.message("assistant", f"my key is {KEY}", tokens=[1, 2], logprobs=[-1.0, -2.0])
        one.message("assistant", None, tool_calls=[{"arguments": f'{{"key": "{KEY}"}}', "password": "hunter2hunter2"}])
    records = records_of(run)
    first, second = written(records)

    assert (first.text, first.tokens, len(first.logprobs)) == ("my key is [redacted]", b"", 16)
    assert json.loads(second.calls) == [{"arguments": '{"key": "[redacted]"}', "password": "[redacted]"}]
    assert KEY not in repr(records)


def test_what_is_too_long_is_cut_and_counted(run: Run, records_of: RecordsOf) -> None:
    """A text keeps 65,536 characters, a trajectory 4 MiB; ten megabytes of one character cost no more."""
    with run.trajectory() as one:
        one.message("tool", "x" * 10_000_000)
        for _ in range(80):
            one.message("tool", "y" * 65_536)
    records = records_of(run)
    messages = written(records)

    assert (len(messages[0].text), messages[0].cut) == (65_536, 10_000_000 - 65_536)
    assert TRAJECTORY_BYTES - 65_536 < sum(len(message.text) for message in messages) <= TRAJECTORY_BYTES
    assert refusals(records).keys() == {"message_limits"}


def test_hostile_texts_are_recorded(run: Run, records_of: RecordsOf) -> None:
    """Lone surrogates are escaped; escape sequences and NUL are texts."""
    with run.trajectory() as one:
        one.message(
            "assistant", "\ud800\x1b[2J\0<script>", name="\udcff", tool_calls=["\ud800", object(), {1: math.nan}]
        )
    (message,) = written(records_of(run))

    assert message.text == "\\ud800\x1b[2J\0<script>"
    assert json.loads(message.calls)[0] == "\\ud800"


def test_outside_of_its_trajectory_a_message_is_refused(run: Run, records_of: RecordsOf) -> None:
    """It would be of no step, or of one that has closed."""
    one = run.trajectory()
    one.message("user", "early")
    with one:
        pass
    one.message("user", "late")
    records = records_of(run)

    assert (written(records), refusals(records)) == ([], {"message": 2})


def test_without_spans_messages_have_ids(
    tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OTEL_SDK_DISABLED` switches traces off, not the texts: the ticket links both."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = begin(tmp_path, content=True)
    with run.trajectory() as one:
        one.message("user", "a")
    run.trained([one.ticket()], step=0)
    records = records_of(run)
    (first, _) = [record for record in records if isinstance(record, Wrote)]
    (taken,) = consumed(records)

    assert [*IDS.iter_unpack(taken.ids)] == [(first.trace_id, first.span_id)]
    assert first.span_id != 0
    assert not any(isinstance(record, SpanStarted) for record in records)


def test_a_ticket_says_what_a_trajectory_is_of(run: Run, records_of: RecordsOf) -> None:
    """Its prompt, group, row of the dataset, and the parts of its reward; the ticket is plain JSON."""
    with run.trajectory(prompt_id="p-17", group_id=3, row=4711) as one:
        one.rewarded(0.7, components={"format": 1, "verifier": np.float32(0.5)})
    ticket = json.loads(json.dumps(one.ticket()))
    run.trained([ticket, {"tokens": 1}], step=0)
    (taken,) = consumed(records_of(run))

    assert taken.origins == [("p-17", "3", "4711"), ("", "", "")]
    assert taken.components == [{"format": 1.0, "verifier": 0.5}, {}]


def test_scores_of_the_trainer(run: Run, records_of: RecordsOf) -> None:
    """Each ticket gets its own, also if one of the tickets is refused; a missing one is unknown."""
    tickets: list[Any] = [{"tokens": 1}, "text", {"tokens": 3}, {"tokens": 4}]
    run.trained(
        tickets, advantages=[0.1, 0.2, 0.3], losses=np.array([1, 2, 3, 4]), logprobs=[[-1], [-2], [-3, -4]], step=0
    )
    records = records_of(run)
    (taken,) = consumed(records)

    assert array("d", taken.advantages).tolist()[:2] == [0.1, 0.3]
    assert array("d", taken.losses).tolist() == [1.0, 3.0, 4.0]
    assert [array("d", raw).tolist() for raw in taken.logprobs] == [[-1.0], [-3.0, -4.0], []]
    assert refusals(records) == {"trained": 3}


def test_many_log_probabilities_are_several_records(run: Run, records_of: RecordsOf) -> None:
    """No record becomes larger than a head accepts, and their times differ, as they identify the trajectories."""
    many = np.zeros(50_000)
    run.trained([{"tokens": 1}] * 7, logprobs=[many] * 7, step=0)
    found = consumed(records_of(run))

    assert [len(one.logprobs) for one in found] == [3, 3, 1]
    assert len({one.time for one in found}) == 3


def batch_of(records: list[Record]) -> list[list[tuple[str, str, list[int]]]]:
    """Return author, text and tokens of the messages of each trajectory."""
    of_each: dict[int, list[tuple[str, str, list[int]]]] = {}
    for record in records:
        if isinstance(record, Wrote):
            known = of_each.setdefault(record.span_id, [])
            known += [(one.author, one.text, array("i", one.tokens).tolist()) for one in record.messages]
    return [*of_each.values()]


def test_a_batch_of_completions(run: Run, records_of: RecordsOf) -> None:
    """Its messages are those of trajectories that the step trained on, in the groups of the batch."""
    tokens, in_trainer = [[[1], [2, 3]], [[4], [5]]], [[[-1.0], [-2.0, -3.0]], [[-4.0], [-5.0]]]
    rewards = {"rewards": [[0.0, 1.0], [0.5, 0.5]], "reward_components": {"format": [[0, 1], [1, 1]]}}
    run.completions(["p", "q"], [["a", "b"], ["c", "d"]], tokens=tokens, trainer_logprobs=in_trainer, step=3, **rewards)
    records = records_of(run)
    (taken,) = consumed(records)

    assert batch_of(records)[1] == [("user", "p", []), ("assistant", "b", [2, 3])]
    assert (taken.step, taken.outcome, array("d", taken.rewards).tolist()) == (3, "trained", [0.0, 1.0, 0.5, 0.5])
    assert [group for _, group, _ in taken.origins] == ["rank0.0.0", "rank0.0.0", "rank0.0.1", "rank0.0.1"]
    assert [array("d", raw).tolist() for raw in taken.logprobs] == [[-1.0], [-2.0, -3.0], [-4.0], [-5.0]]
    assert (taken.components[0], taken.have_spans) == ({"format": 0.0}, False)
    assert [span for _, span in IDS.iter_unpack(taken.ids)] == list(
        {r.span_id: 0 for r in records if isinstance(r, Wrote)}
    )
    assert array("q", taken.segments)[2::3].tolist() == [1, 2, 1, 1]


def test_the_mask_says_which_tokens_a_message_has(run: Run, records_of: RecordsOf) -> None:
    """The tokens of a completion with tool calls are split where the mask changes; else the first message has them."""
    turns = [
        {"role": "assistant", "content": "look", "tool_calls": [{"function": {"name": "search"}}]},
        {"role": "tool", "name": "search", "content": "found"},
        {"role": "assistant", "content": "done"},
    ]
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "q"}]
    for masks in ([[1, 1, 0, 1]], [[1, 1, 1, 1]]):
        run.completions([prompt], [turns], tokens=[np.array([1, 2, 3, 4])], masks=masks, step=0)
    split, whole = batch_of(records_of(run))

    assert [author for author, *_ in split] == ["system", "user", "assistant", "tool", "assistant"]
    assert [tokens for *_, tokens in split] == [[], [], [1, 2], [3], [4]]
    assert [tokens for *_, tokens in whole] == [[], [], [1, 2, 3, 4], [], []]


def test_lists_that_are_not_of_the_batch_are_refused(run: Run, records_of: RecordsOf) -> None:
    """The table and the messages are recorded all the same."""
    run.completions(["p"], [["a", "b"]], tokens=[[1]], logprobs=[[-1.0], [-2.0]], step=0)
    records = records_of(run)

    assert [message.text for message in written(records)] == ["p", "a", "p", "b"]
    assert refusals(records) == {"completions": 1}
