"""Calls of tools in the messages of a trajectory, and the messages that answer them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_UNKNOWN = "unknown"
"""The name of a tool where the call does not say it."""


class Call(NamedTuple):
    """A call of a tool; `arguments` are what their JSON holds, or a text that is not JSON."""

    id: str
    name: str
    arguments: object


class Link(NamedTuple):
    """The calls that a message makes, and the id of the call that it answers; empty if it answers none."""

    calls: list[Call]
    answers: str


def links(messages: Iterable[tuple[str, str, str]]) -> list[Link]:
    """Return the link of each message of a trajectory.

    A message of a tool answers the first open call of that name, otherwise the first open call.

    Args:
        messages: Of each message the author, the name of the tool if a tool wrote it, and the calls of tools in JSON.
    """
    linked: list[Link] = []
    unanswered: list[Call] = []
    for number, (author, name, text) in enumerate(messages):
        calls, answers = _calls(text, number), ""
        unanswered += calls
        if author == "tool" and unanswered:
            named = (n for n, call in enumerate(unanswered) if call.name == name)
            answers = unanswered.pop(next(named, 0)).id
        linked.append(Link(calls, answers))
    return linked


def without_nul(text: str) -> str:
    """Return a text with a replacement for NUL, which databases of receivers refuse."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _calls(text: str, number: int) -> list[Call]:
    """Return the calls of the message with a number, in OpenAI's form or a similar one; each has an id."""
    parsed = _parsed(text) if text else []
    calls = []
    for n, call in enumerate(parsed if isinstance(parsed, list) else [parsed]):
        fields = call if isinstance(call, dict) else {"arguments": call}
        function = fields["function"] if isinstance(fields.get("function"), dict) else fields
        arguments = function.get("arguments", {})
        known = _parsed(arguments) if isinstance(arguments, str) else arguments
        id_ = str(fields.get("id") or f"call_{number}_{n}")
        calls.append(Call(id_, str(function.get("name") or _UNKNOWN), known))
    return calls


def _parsed(text: str) -> object:
    """Return what a text in JSON holds, without NUL; the text itself if it is not strict JSON."""
    try:
        return msgspec.json.decode(_NUL.sub(r"\1\\ufffd", text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return without_nul(text)
