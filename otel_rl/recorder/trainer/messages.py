"""Messages of trajectories, as records: without secrets, packed, and within limits."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.convert.completions import message_text
from otel_rl.recorder.convert.tables import clean_text, to_list
from otel_rl.recorder.convert.values import packed
from otel_rl.recorder.errors.texts import encodable_text, text_of
from otel_rl.recorder.journal.records import (
    LONGEST_PIECE,
    LONGEST_TEXT,
    MOST_TOKENS,
    TOKEN_LISTS,
    UNKNOWN,
    WrittenMessage,
    Wrote,
)
from otel_rl.recorder.secrets import REDACTED, redact, without_secret

if TYPE_CHECKING:
    from otel_rl.recorder.trainer.recorder import Recorder

TRAJECTORY_BYTES = 4 << 20
"""Bytes of the messages of a trajectory that are recorded: as many as an agent keeps of a step."""
_OVERHEAD = 64
_LONGEST_NAME = 256
_DEEPEST = 32
"""Levels of the arguments of a tool call."""
_TRUTH = bytes([0, *[1] * 255])
_TOKEN_BYTES = 4


class MessageWriter:
    """Writes the messages of one trajectory; each is durable when `add` returns.

    Args:
        recorder: The writer of records.
        ids: Trace id and span id of the trajectory.
        group_id: Identity of its group; empty if unknown.
    """

    def __init__(self, recorder: Recorder, ids: tuple[bytes, int], group_id: str) -> None:
        self._recorder, self._ids, self._group_id = recorder, ids, group_id
        self._numbers = count()
        self._room = TRAJECTORY_BYTES

    def add(
        self,
        author: object,
        content: object,
        *,
        name: object = "",
        tool_calls: object = None,
        policy_version: int = UNKNOWN,
        **lists: object,
    ) -> None:
        """Record a message; `lists` are those of its tokens (`TOKEN_LISTS`) and `pieces`, each optional."""
        recorder = self._recorder
        if self._room < _OVERHEAD:
            recorder.refuse("message_limits", f"a trajectory has more than {TRAJECTORY_BYTES >> 20} MiB of messages")
            return
        text, cut, secrets = clean_text(message_text({"content": content}), min(LONGEST_TEXT, self._room), "content")
        calls = "" if tool_calls is None else self._calls(tool_calls)
        pieces = self._pieces_of(lists.get("pieces"))
        if secrets or REDACTED in calls or spells_secret(pieces, text):
            pieces = []
            if lists.get("tokens") is not None:
                lists["tokens"] = None  # they spell the secret
                recorder.refuse("message_limits", "the tokens of a message with a secret are not recorded")
        numbers = self._numbers_of(lists)
        if pieces and len(pieces) != (known := len(numbers.get("tokens", b"")) // _TOKEN_BYTES):
            recorder.refuse("message", f"message: pieces: {len(pieces)} texts for {known} tokens")
            pieces = []
        of_tokens = sum(map(len, numbers.values())) + len("".join(pieces).encode()) + len(pieces)
        size = len(text.encode()) + len(calls) + of_tokens
        if size > self._room and of_tokens:
            size -= of_tokens
            numbers, pieces = dict.fromkeys(numbers, b""), []
            recorder.refuse("message_limits", "tokens beyond the limits of a trajectory are not recorded")
        if cut:
            recorder.refuse("message_limits", f"a message has {cut} characters beyond the limits")
        self._room -= size + _OVERHEAD
        called = text_of(name)[:_LONGEST_NAME]
        author = text_of(author)[:_LONGEST_NAME]
        message = WrittenMessage(author, text, called, cut, calls, policy_version, **numbers, pieces=tuple(pieces))
        self._write([message], is_last=False)

    def close(self) -> None:
        """Record that no more messages follow."""
        self._write([], is_last=True)

    def _write(self, messages: list[WrittenMessage], *, is_last: bool) -> None:
        now = self._recorder.clock.now()
        self._recorder.write(Wrote(now, *self._ids, self._group_id, next(self._numbers), messages, is_last))

    def _numbers_of(self, lists: Mapping[str, object]) -> dict[str, bytes]:
        """Return the lists of a message as native numbers; refuse those that are not numbers, or not of all tokens."""
        encoded: dict[str, bytes] = {}
        length = 0
        for what, code in TOKEN_LISTS.items():
            if lists.get(what) is None:
                continue
            try:
                raw = packed(code, lists[what])
            except Exception as error:  # a foreign object may raise anything
                self._recorder.refuse("message", f"message: {what}: {text_of(error)}")
                continue
            number = len(raw) // array(code).itemsize
            length = length or number
            if number > MOST_TOKENS:
                self._recorder.refuse("message_limits", f"message: more than {MOST_TOKENS} {what} are not recorded")
            elif number != length:
                self._recorder.refuse("message", f"message: {what}: {number} values for {length} tokens")
            else:
                encoded[what] = raw.translate(_TRUTH) if code == "B" else raw
        return encoded

    def _pieces_of(self, given: object) -> list[str]:
        """Return the texts of tokens; refuse what is not a list of them."""
        if given is None:
            return []
        try:
            pieces = to_list("pieces", given)
            if {*map(type, pieces)} <= {str} and max(map(len, pieces), default=0) <= LONGEST_PIECE:  # type: ignore[arg-type] # texts
                with suppress(UnicodeEncodeError):
                    "".join(pieces).encode()  # type: ignore[arg-type] # texts
                    return pieces  # type: ignore[return-value] # texts
            return [encodable_text(text_of(piece))[:LONGEST_PIECE] for piece in pieces]
        except Exception as error:  # a foreign object may raise anything
            self._recorder.refuse("message", f"message: {text_of(error)}")
            return []

    def _calls(self, tool_calls: object) -> str:
        """Return tool calls as JSON without secrets; refuse those that are too long."""
        text = calls_text(tool_calls)
        if len(text) <= LONGEST_TEXT:
            return text
        self._recorder.refuse("message_limits", f"tool calls of more than {LONGEST_TEXT} characters are not recorded")
        return ""


def spells_secret(pieces: Sequence[str], text: str) -> bool:
    """Return whether tokens spell a secret that the text of their message does not have, such as in a tool call."""
    rest = "".join(pieces).replace(text, " ", 1) if text else "".join(pieces)
    return bool(redact(rest, "content")[1])


def calls_text(tool_calls: object) -> str:
    """Return tool calls as JSON without secrets."""
    return json.dumps(_plain("tool_calls", tool_calls, _DEEPEST), ensure_ascii=False, separators=(",", ":"))


def _plain(name: str, value: Any, deepest: int) -> Any:
    """Return a value of JSON types, without secrets; what is nested too deeply, or is not of them, becomes a text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if hasattr(value, "model_dump"):  # a message of OpenAI's library
        value = value.model_dump()
    if deepest and isinstance(value, Mapping):
        return {encodable_text(text_of(key)): _plain(text_of(key), item, deepest - 1) for key, item in value.items()}
    if deepest and isinstance(value, (list, tuple)):
        return [_plain(name, item, deepest - 1) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value[:LONGEST_TEXT] if isinstance(value, str) else text_of(value)
    return encodable_text(without_secret(name, _without_named(text, deepest)))


def _without_named(text: str, deepest: int) -> str:
    """Return a text without the values that secrets have in it by their names, if it is JSON, as arguments are."""
    if not deepest or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    plain = _plain("", given, deepest - 1)
    return text if plain == given else json.dumps(plain, ensure_ascii=False)
