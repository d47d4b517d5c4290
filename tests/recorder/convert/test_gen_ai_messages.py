"""The messages of a trajectory in the attributes of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Span
from otel_rl.recorder.archive.lines import columns_of
from otel_rl.recorder.archive.tables import SPANS
from otel_rl.recorder.convert.gen_ai_messages import MessageText, attributes_of, without_messages

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":2}'}}


def message(author: str, text: str = "", name: str = "", calls: object = None, cut: int = 0) -> MessageText:
    encoded = calls if isinstance(calls, str) else msgspec.json.encode(calls).decode() if calls else ""
    return MessageText(author, name, text, cut, encoded)


def parts_of(*messages: MessageText) -> list[dict[str, Any]]:
    return [part for text in attributes_of(messages).values() for one in json.loads(text) for part in one["parts"]]


def test_a_conversation_is_divided_at_the_first_answer() -> None:
    """Messages before it are the input, all others are the output; each text is a part of its message."""
    found = attributes_of([message("system", "Add."), message("user", "2 + 2?"), message("assistant", "4")])

    assert json.loads(found[INPUT]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Add."}]},
        {"role": "user", "parts": [{"type": "text", "content": "2 + 2?"}]},
    ]
    assert json.loads(found[OUTPUT]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "4"}], "finish_reason": ""}
    ]


def test_a_call_of_a_tool_and_its_answer_have_one_id() -> None:
    """The arguments are what their JSON holds."""
    found = attributes_of([message("assistant", calls=[CALL]), message("tool", "4", name="add")])

    assert json.loads(found[OUTPUT]) == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 2, "b": 2}}],
            "finish_reason": "tool_call",
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": "4"}],
            "name": "add",
            "finish_reason": "",
        },
    ]


def test_an_answer_is_of_the_call_with_its_name() -> None:
    """Of several open calls; without one of this name, it is of the first."""
    calls = [{"id": one, "function": {"name": one}} for one in ("a", "b", "c")]
    answers = [message("tool", name="b"), message("tool", name="x"), message("tool", name="c"), message("tool")]

    assert [part["id"] for part in parts_of(message("assistant", calls=calls), *answers)][3:] == ["b", "a", "c", None]


def test_calls_of_any_form_are_shown() -> None:
    """Those without an id get one; what is not JSON, or no call, is shown as the arguments of an unknown tool."""
    odd = [
        [{"name": "f", "arguments": {"x": 1}}],
        [{"function": {"name": "f", "arguments": "not JSON"}}],
        "{broken",
        ["f(1)"],
    ]
    calls = [part for one in odd for part in parts_of(message("assistant", calls=one))]

    assert [(one["id"], one["name"], one["arguments"]) for one in calls] == [
        ("call_0_0", "f", {"x": 1}),
        ("call_0_0", "f", "not JSON"),
        ("call_0_0", "unknown", "{broken"),
        ("call_0_0", "unknown", "f(1)"),
    ]


def test_a_text_that_was_cut_says_so() -> None:
    """It says how many characters it lacks, those that the attribute has no room for included."""
    short, long = parts_of(message("user", "abc", cut=7), message("assistant", "x" * 10_000_000))

    assert short["content"] == "abc… [7 characters more]"
    assert long["content"].endswith("x… [9475715 characters more]")
    assert len(long["content"]) < 1 << 20


def test_many_long_texts_share_the_room() -> None:
    """Short ones stay whole."""
    found = parts_of(message("user", "short"), *(message("assistant", "x" * 300_000) for _ in range(4)))

    assert found[0]["content"] == "short"
    assert sum(len(one["content"]) for one in found) < 530_000


def test_nul_is_replaced() -> None:
    """Databases of receivers refuse it, in a text and in the arguments of a call."""
    call = {"function": {"name": "f\0", "arguments": '{"a":"\\u0000","b":"\\\\u0000"}'}}
    text, called = parts_of(message("assistant", "a\0b", calls=[call]))

    assert text["content"] == "a\N{REPLACEMENT CHARACTER}b"
    assert called["arguments"] == {"a": "\N{REPLACEMENT CHARACTER}", "b": "\\u0000"}
    assert called["name"] == "f\N{REPLACEMENT CHARACTER}"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "tool"]),
            st.text(),
            st.text()
            | st.sampled_from(
                [
                    '[{"function":{"arguments":"\\"\\ud800\\""}}]',
                    '["\\ud800"]',
                    "[1e999]",
                    "NaN",
                    "[" * 5000,
                    "9" * 5000,
                ]
            ),
        ),
        max_size=4,
    )
)
def test_whatever_was_written_is_strict_json(written: list[tuple[str, str, str]]) -> None:
    """UTF-8 can encode it, and each message has a role and parts."""
    safe = [tuple(text.encode("utf-8", "replace").decode() for text in one) for one in written]
    found = attributes_of([message(author, text, calls=calls) for author, text, calls in safe])
    messages = [one for text in found.values() for one in msgspec.json.decode(text.encode())]

    assert [one["role"] for one in messages] == [author for author, *_ in written]
    assert all(one["parts"] and "\0" not in str(one) for one in messages)


@pytest.mark.parametrize(("name", "kept"), [("rl.trajectory", False), ("rl.completion", False), ("chat gpt", True)])
def test_the_archive_has_messages_once(name: str, kept: bool) -> None:
    """It has a table of them, so they are left out of otel-rl's own spans, not of those of a library."""
    span = Span(name, "a" * 32, "b" * 16, "", 0, 1, {"x": 1, INPUT: "[]", OUTPUT: "[]"})

    assert without_messages(span) == (span.attributes if kept else {"x": 1})
    assert (INPUT in str(columns_of(SPANS, [span]))) is kept
