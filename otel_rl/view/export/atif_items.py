"""A trajectory in ATIF 1 as items of an archive: of `atif`, of Harbor, or of another program for agents."""

from __future__ import annotations

import json
from array import array
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from otel_rl.convert.completions import message_text
from otel_rl.convert.tables import clean_text
from otel_rl.export import Message, Trajectory
from otel_rl.journal.records import LONGEST_TEXT
from otel_rl.trainer.messages import calls_text, spells_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Item = TypeVar("Item", Message, Trajectory)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


class _Given(Struct):
    cut: int = 0
    tokens: list[int] = []
    logprobs: list[float] = []
    trainer_logprobs: list[float] = []
    mask: list[bool] = []
    pieces: list[str] = []


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
    said, time = list[Message](), 0
    for found in _messages(document.steps):
        time = max(time, found.pop("at"))
        said.append(_item(Message, {"number": len(said), "time_unix_nano": time, **found, **where}))
    facts = None
    if "policy_version" in ours:
        tokens = sum(len(one.tokens) // 4 for one in said if one.author == _POLICY)
        facts = _item(Trajectory, {**ours, "time_unix_nano": said[-1].time_unix_nano, "tokens": tokens})
    yield said, facts
    for number, one in enumerate(document.subagent_trajectories or ()):
        yield from items_of(one, None, f"{identity}/{number}")


def _item(kind: type[Item], found: Mapping[str, Any]) -> Item:
    """Return an item of fields; those in a file can have any value.

    Raises:
        ValueError: A field has a value that the archive cannot have.
    """
    item = msgspec.convert({"type": kind.__struct_config__.tag, **found}, kind, strict=False)
    if not all(-1 <= one < _LIMIT for one in msgspec.structs.astuple(item) if isinstance(one, int)):
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
        for one in step.observation.results if step.observation else ():
            given = _ours(one) or {"name": names.get(one.source_call_id or "", "")}
            yield {"author": "tool", **_fields({"content": one.content}, given), "calls": "", "at": at}


def _fields(content: Mapping[str, object], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message: its text without secrets, and its lists, packed and as long as its tokens."""
    given = msgspec.convert(found, _Given, strict=False)
    lists: dict[str, array[int] | array[float] | list[str]] = {
        "tokens": array("i", given.tokens),
        "logprobs": array("d", given.logprobs),
        "trainer_logprobs": array("d", given.trainer_logprobs),
        "mask": array("B", given.mask),
        "pieces": given.pieces,
    }
    if len({len(one) for one in lists.values()} - {0}) > 1:
        raise ValueError(f"lists differ in length: {', '.join(f'{len(one)} {name}' for name, one in lists.items())}")
    text, cut, secrets = clean_text(message_text(content), LONGEST_TEXT, "content")
    if secrets or spells_secret(given.pieces, text):
        lists = {name: one[:0] for name, one in lists.items()}
    packed = {name: one.tobytes() if isinstance(one, array) else one for name, one in lists.items()}
    return {**found, "text": text, "cut": cut + given.cut, **packed}


def _calls(calls: Iterable[_Call]) -> str:
    """Return calls in OpenAI's form, as most trainers record them."""
    found = [
        {
            "id": one.tool_call_id,
            "type": "function",
            "function": {"name": one.function_name, "arguments": json.dumps(one.arguments, ensure_ascii=False)},
        }
        for one in calls
    ]
    text = calls_text(found) if found else ""
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


def _ours(one: Document | _Step | _Result) -> dict[str, Any]:
    return (one.extra and one.extra.otel_rl) or {}


def _nanoseconds(at: datetime | None) -> int:
    """Return a time in the range of all records; 0 if it is unknown."""
    found = (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1) * 1000 if at else 0
    return min(max(found, 0), _LIMIT - 1)
