"""A trajectory in ATIF 1 as items of an archive: of `atif`, of Harbor, or of another program for agents."""

from __future__ import annotations

import json
from array import array
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from otel_rl.export import Message, Trajectory
from otel_rl.recorder.archive.tables import PACKED, TOKEN_LISTS
from otel_rl.recorder.convert.completions import message_text
from otel_rl.recorder.convert.tables import clean_text
from otel_rl.recorder.journal.records import LONGEST_TEXT
from otel_rl.recorder.trainer.messages import calls_text, spells_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_rl.recorder.archive.tables import ColumnType

Item = TypeVar("Item", Message, Trajectory)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_MESSAGES = 100_000
"""Messages of a trajectory: readers take a minute for a million of them."""
_LIMIT = 1 << 62
_POLICY, _REWARD = "assistant", "reward"
_WHERE = {"attempt": 0, "step": 0, "role": "", "rank": 0, "trace_id": "", "span_id": ""}


class _Extra(Struct):
    otel_rl: dict[str, Any] | None = None


class _Call(Struct):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Result(Struct):
    content: str | list[dict[str, Any]] | None = None
    source_call_id: str | None = None
    extra: _Extra | None = None


class _Observation(Struct):
    results: list[_Result]


class _Metrics(Struct):
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Step(Struct):
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]]
    timestamp: datetime | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    extra: _Extra | None = None


class _Agent(Struct):
    name: str


class Document(Struct):
    """A trajectory; other fields of the format are not read."""

    schema_version: Annotated[str, Meta(pattern=r"^ATIF-v1\.\d+$")]
    agent: _Agent
    steps: Annotated[list[_Step], Meta(min_length=1)]
    session_id: str | None = None
    extra: _Extra | None = None
    subagent_trajectories: list[Document] | None = None

    @property
    def run(self) -> str:
        """The name of the run that otel-rl exported it from; empty if it is unknown."""
        return str(_ours(self).get("run", ""))


class _Verified(Struct):
    rewards: dict[str, float] | None = None


class Trial(Struct):
    """Harbor's `result.json`, next to the directory `agent` with the trajectories of a trial."""

    task_name: str = ""
    verifier_result: _Verified | None = None


_TYPES: dict[ColumnType, Any] = {"int64s": list[int], "doubles": list[float], "bools": list[bool], "texts": list[str]}
_Lists = msgspec.defstruct(
    "_Lists", [("cut", int, 0), *((name, _TYPES[kind], []) for name, kind in TOKEN_LISTS.items())]
)
"""What otel-rl adds to a message of the format: characters that were cut, and the lists of its tokens."""


def decoded(data: bytes) -> Document:
    """Return a trajectory, which the format's own package has checked if it is installed.

    Raises:
        ValueError: It is not valid.
        RecursionError: It nests too deeply.
    """
    document = msgspec.json.decode(data, type=Document)
    try:
        from atif import Trajectory as Checked
        from pydantic import ValidationError
    except ImportError:
        return document
    try:
        Checked.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['msg']} - at `{'.'.join(map(str, first['loc']))}`") from None
    return document


def items_of(
    document: Document, trial: Trial | None, identity: str
) -> Iterator[tuple[list[Message], Trajectory | None]]:
    """Yield the messages of a trajectory, and its facts if there are any; then those of its subagents.

    Args:
        document: The trajectory.
        trial: What Harbor says of it.
        identity: A text that no other trajectory has, from which ids are made.

    Raises:
        ValueError: What otel-rl has added is not what it adds.
    """
    ours = _ours(document) or _facts(trial or Trial(), identity)
    where = {name: ours.get(name, default) for name, default in _WHERE.items()}
    messages, time = list[Message](), 0
    for fields in _messages(document.steps):
        if len(messages) == _MOST_MESSAGES:
            raise ValueError(f"it has more than {_MOST_MESSAGES:,} messages")
        time = max(time, fields.pop("at"))
        messages.append(_item(Message, {"number": len(messages), "time_unix_nano": time, **fields, **where}))
    facts = None
    if "policy_version" in ours:
        tokens = sum(len(message.tokens) // 4 for message in messages if message.author == _POLICY)
        facts = _item(Trajectory, {**ours, "time_unix_nano": messages[-1].time_unix_nano, "tokens": tokens})
    yield messages, facts
    for number, subagent_trajectory in enumerate(document.subagent_trajectories or ()):
        yield from items_of(subagent_trajectory, None, f"{identity}/{number}")


def _item(kind: type[Item], fields: Mapping[str, Any]) -> Item:
    """Return an item of fields; those in a file can have any value.

    Raises:
        ValueError: A field has a value that the archive cannot have.
    """
    item = msgspec.convert({"type": kind.__struct_config__.tag, **fields}, kind, strict=False)
    if not all(-1 <= value < _LIMIT for value in msgspec.structs.astuple(item) if isinstance(value, int)):
        raise ValueError("a number is out of range")
    return item


def _messages(steps: Iterable[_Step]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the message of each turn, and of what tools answered."""
    for step in steps:
        at, metrics, calls = _nanoseconds(step.timestamp), step.metrics or _Metrics(), step.tool_calls or []
        lists = {"tokens": metrics.completion_token_ids or [], "logprobs": metrics.logprobs or []}
        author = _POLICY if step.source == "agent" else step.source
        content = {"content": step.message, "reasoning_content": step.reasoning_content}
        yield {"author": author, **_fields(content, lists | _ours(step)), "calls": _calls(calls), "at": at}
        names = {call.tool_call_id: call.function_name for call in calls}
        for result in step.observation.results if step.observation else ():
            given = _ours(result) or {"name": names.get(result.source_call_id or "", "")}
            yield {"author": "tool", **_fields({"content": result.content}, given), "calls": "", "at": at}


def _fields(content: Mapping[str, object], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message: its text without secrets, and its lists, packed and as long as its tokens."""
    given: Any = msgspec.convert(known, _Lists, strict=False)
    codes = {name: PACKED.get(kind) for name, kind in TOKEN_LISTS.items()}
    lists: dict[str, array[int] | array[float] | list[str]] = {
        name: array(code, getattr(given, name)) if code else getattr(given, name) for name, code in codes.items()
    }
    if len({len(values) for values in lists.values()} - {0}) > 1:
        raise ValueError(
            f"lists differ in length: {', '.join(f'{len(values)} {name}' for name, values in lists.items())}"
        )
    text, cut, secrets = clean_text(message_text(content), LONGEST_TEXT, "content")
    # The ids and pieces of tokens spell the secret that the text no longer has (tests/look/test_atif.py).
    if secrets or spells_secret(given.pieces, text):
        lists = {name: values[:0] for name, values in lists.items()}
    packed = {name: values.tobytes() if isinstance(values, array) else values for name, values in lists.items()}
    return {**known, "text": text, "cut": cut + given.cut, **packed}


def _calls(calls: Iterable[_Call]) -> str:
    """Return calls in OpenAI's form, as most trainers record them."""
    spelled = [
        {
            "id": call.tool_call_id,
            "type": "function",
            "function": {"name": call.function_name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in calls
    ]
    text = calls_text(spelled) if spelled else ""
    return text if len(text) <= LONGEST_TEXT else ""


def _facts(trial: Trial, identity: str) -> dict[str, Any]:
    """Return the facts of a trajectory of another program: what Harbor's verifier said, if it is of Harbor."""
    digest = sha256(identity.encode()).hexdigest()
    ids = {"trace_id": digest[:32], "span_id": digest[32:48]}
    rewards = dict((trial.verifier_result and trial.verifier_result.rewards) or {})
    if not (rewards or trial.task_name):
        return ids
    only = rewards.pop(_REWARD, None) if len(rewards) != 1 else rewards.popitem()[1]
    scores = {"reward": "NaN" if only is None else only, "components": rewards}
    return {**ids, **_WHERE, **ids, "policy_version": -1, "outcome": "", "group_id": trial.task_name, **scores}


def _ours(document: Document | _Step | _Result) -> dict[str, Any]:
    return (document.extra and document.extra.otel_rl) or {}


def _nanoseconds(at: datetime | None) -> int:
    """Return a time in the range of all records; 0 if it is unknown."""
    nanoseconds = (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1) * 1000 if at else 0
    return min(max(nanoseconds, 0), _LIMIT - 1)
