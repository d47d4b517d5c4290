"""The messages of a trajectory as attributes of its span, as OpenTelemetry's GenAI conventions have them.

Source: the JSON schemas of `gen_ai.input.messages` and `gen_ai.output.messages` in
open-telemetry/semantic-conventions-genai, at the commit that the registry's manifest names. On spans, the conventions
allow a text in JSON, which MLflow, Phoenix and Jaeger read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl import semconv
from otel_rl.recorder.convert.tables import noted
from otel_rl.recorder.convert.tool_calls import links, without_nul

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import AttributeValue, Span
    from otel_rl.recorder.convert.tool_calls import Link

_NAMES = (semconv.GEN_AI_INPUT_MESSAGES, semconv.GEN_AI_OUTPUT_MESSAGES)
_LARGEST = 1 << 19
"""Characters of all texts of a span: if each takes 6 bytes in JSON, a gRPC server accepts the span with its 4 MiB."""


class MessageText(NamedTuple):
    """A message, as far as the conventions have it."""

    author: str  # who wrote it
    name: str  # name of the tool, if a tool wrote it
    text: str  # the text
    cut: int = 0  # number of characters that the text lacks
    calls: str = ""  # calls of tools in JSON; empty if there are none


def attributes_of(messages: Sequence[MessageText]) -> dict[str, str]:
    """Return the attributes with the messages of a trajectory: those before the policy's first one, and the others."""
    longest = _longest([len(text) for message in messages for text in (message.text, message.calls)], _LARGEST)
    short = [_shortened(message, longest) for message in messages]
    calls = links((message.author, message.name, message.calls) for message in short)
    whole = list(map(_message, short, calls))
    first = next((n for n, message in enumerate(short) if message.author == "assistant"), len(short))
    for of_policy, link in zip(
        whole[first:], calls[first:], strict=True
    ):  # receivers of earlier conventions require it
        of_policy["finish_reason"] = "tool_call" if link.calls else ""
    parts = zip(_NAMES, (whole[:first], whole[first:]), strict=True)
    return {name: msgspec.json.encode(part).decode() for name, part in parts if part}


def has_messages(span: Span) -> bool:
    """Return whether messages of a span are those that otel-rl adds; a library's span may have others."""
    return span.name in (semconv.SPAN_TRAJECTORY, semconv.SPAN_COMPLETION)


def without_messages(span: Span) -> dict[str, AttributeValue]:
    """Return the attributes of a span without the messages that otel-rl adds."""
    if not has_messages(span):
        return span.attributes
    return {name: value for name, value in span.attributes.items() if name not in _NAMES}


def _longest(lengths: Iterable[int], most: int) -> int:
    """Return the most characters that each text may have, so that all together have at most `most`."""
    ordered = sorted(lengths)
    for n, length in enumerate(ordered):
        if length * (len(ordered) - n) > most:
            return most // (len(ordered) - n)
        most -= length
    return max(ordered, default=0)


def _shortened(message: MessageText, longest: int) -> MessageText:
    cut = message.cut + max(0, len(message.text) - longest)
    return message._replace(text=message.text[:longest], cut=cut, calls=message.calls[:longest])


def _message(message: MessageText, link: Link) -> dict[str, Any]:
    text = noted(without_nul(message.text), message.cut)
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text or not link.calls else []
    if message.author == "tool":
        parts = [{"type": "tool_call_response", "id": link.answers or None, "response": text}]
    parts += [{"type": "tool_call", **call._asdict()} for call in link.calls]
    name = {"name": without_nul(message.name)} if message.name else {}
    return {"role": without_nul(message.author), "parts": parts, **name}
