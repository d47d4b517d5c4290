"""Trajectories with their messages as ATIF 1.8, the format that Harbor and other programs for agents read.

Source: harbor-framework/harbor, `rfcs/0001-trajectory-format.md`. The format lacks rewards, masks, the trainer's
log-probabilities and more: they are in `extra.otel_rl`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.look.reader.runs import in_steps
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.tables import MESSAGES, TOKEN_LISTS
from otel_rl.recorder.convert.strict_json import spelled
from otel_rl.recorder.convert.tool_calls import links
from otel_rl.recorder.files.atomic_files import replacing
from otel_rl.recorder.files.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.archive.runs import Place
    from otel_rl.recorder.convert.tool_calls import Link

VERSION = "ATIF-v1.8"
OURS = "otel_rl"
"""The key in `extra` for what the format lacks."""
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FACTS = (
    *("outcome", "reward", "components", "advantage", "loss", "policy_version", "versions"),
    *("prompt_id", "group_id", "row"),
)
_KEY = "attempt", "trace_id", "span_id"
_COLUMNS = [*_KEY, *(column.name for column in MESSAGES.columns if column.name not in _KEY)]
_QUERY = f"""
SELECT {", ".join(name if name in _KEY else f"messages.{name}" for name in _COLUMNS)},
    {", ".join(f"facts.{name}" for name in _FACTS)}
FROM (SELECT * FROM messages WHERE {{where}}) AS messages LEFT JOIN (
    SELECT DISTINCT ON ({", ".join(_KEY)}) * FROM trajectories ORDER BY time_unix_nano DESC
) AS facts USING ({", ".join(_KEY)})
ORDER BY messages.step, attempt, trace_id, span_id, messages.number
"""


class _Message(SimpleNamespace):
    """A line of `messages`, by the names of its columns; lists that are not known are empty."""

    def __init__(self, line: Sequence[Any]) -> None:
        super().__init__(**dict(zip(_COLUMNS, line, strict=False)))
        self.lists = {name: getattr(self, name) or [] for name in TOKEN_LISTS}


def write(run: RunReader, place: Path, steps: tuple[int, int] | None) -> dict[str, int]:
    """Write the trajectories of a run; return the number of trajectories by file or directory.

    Args:
        run: The run.
        place: A directory, for a file for each trajectory, or a file that ends in `.jsonl`, for a line for each.
        steps: The steps that trained on them.

    Raises:
        OSError: A file cannot be written.
    """
    encode, count = msgspec.json.Encoder().encode, 0
    if place.suffix == ".jsonl":
        with replacing(place) as file:
            for count, document in enumerate(_documents(run, steps), 1):  # noqa: B007 - the number of the last one
                file.write(encode(document) + b"\n")
        return {str(place): count}
    make_directory(place)
    for count, document in enumerate(_documents(run, steps), 1):
        step = document["extra"][OURS]["step"]
        with replacing(place / f"{step:08d}-{count:08d}.json") as file:
            file.write(msgspec.json.format(encode(document), indent=2))
    return {str(place): count}


def _documents(run: RunReader, steps: tuple[int, int] | None) -> Iterator[dict[str, Any]]:
    lines = chain.from_iterable(run.stream(_QUERY.format(where=in_steps(steps) or "true")))
    for _, of_trajectory in groupby(lines, itemgetter(0, 1, 2)):
        rows = list(of_trajectory)
        messages = [_Message(row) for row in rows]
        yield _document(run.place, messages, dict(zip(_FACTS, rows[0][len(_COLUMNS) :], strict=True)))


def _document(run: Place, messages: Sequence[_Message], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trajectory as JSON objects."""
    steps = _steps(messages)
    first, tokens = (
        messages[0],
        sum(len(message.lists["tokens"]) for message in messages if message.author == "assistant"),
    )
    where = {name: getattr(first, name) for name in ("attempt", "step", "role", "rank", "trace_id", "span_id")}
    where["run"] = run.name
    version = max(message.policy_version for message in messages)
    known = {**facts, "components": decoded(facts["components"]), "versions": decoded(facts["versions"])}
    return {
        "schema_version": VERSION,
        "session_id": run.id or run.name,
        "trajectory_id": f"{first.step:08d}-{first.attempt}-{first.trace_id}-{first.span_id}",
        "agent": {"name": run.project, "version": str(version) if version >= 0 else "unknown"},
        "steps": steps,
        "final_metrics": {"total_completion_tokens": tokens, "total_steps": len(steps)},
        "extra": {OURS: _given(where | known)},
    }


def _steps(messages: Sequence[_Message]) -> list[dict[str, Any]]:
    """Return the turns: what a tool wrote is an observation of the policy's turn before it."""
    steps: list[dict[str, Any]] = []
    for message, link in zip(
        messages, links((message.author, message.name, message.calls or "") for message in messages), strict=True
    ):
        if message.author == "tool" and steps and steps[-1]["source"] == "agent":
            observed = steps[-1].setdefault("observation", {"results": []})
            observed["results"].append(_observation(message, link, steps[-1]))
            continue
        source = _SOURCES.get(message.author, "system")
        time = (_EPOCH + timedelta(microseconds=message.time_unix_nano // 1000)).isoformat()
        step = {"step_id": len(steps) + 1, "timestamp": time, "source": source, "message": message.text}
        steps.append(step | (_of_agent(message, link) if source == "agent" else _extra(message, without=("logprobs",))))
    return steps


def _of_agent(message: _Message, link: Link) -> dict[str, Any]:
    calls = [
        {
            "tool_call_id": call.id,
            "function_name": call.name,
            "arguments": call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments},
        }
        for call in link.calls
    ]
    metrics: dict[str, Any] = {}
    tokens, logprobs = message.lists["tokens"], message.lists["logprobs"]
    if tokens:
        metrics = {"completion_tokens": len(tokens), "completion_token_ids": tokens}
    is_finite = bool(logprobs) and all(map(math.isfinite, logprobs))
    metrics |= {"logprobs": logprobs} if is_finite else {}
    extra = _extra(message, without=("tokens", "logprobs") if is_finite else ("tokens",))
    return extra | ({"tool_calls": calls} if calls else {}) | ({"metrics": metrics} if metrics else {})


def _observation(message: _Message, link: Link, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool wrote; the call that it answers has to be of the same turn."""
    is_known = link.answers in {call["tool_call_id"] for call in asked.get("tool_calls", ())}
    result = {"source_call_id": link.answers} if is_known else {}
    return result | {"content": message.text} | _extra(message)


def _extra(message: _Message, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the format lacks; `without` are the lists that it has elsewhere."""
    version = None if message.policy_version < 0 else message.policy_version
    author = None if message.author in _SOURCES else message.author
    lists = {name: values for name, values in message.lists.items() if name not in without}
    kept = {"author": author, "name": message.name, "cut": message.cut or None, "policy_version": version, **lists}
    return {"extra": {OURS: {"number": message.number, "time_unix_nano": message.time_unix_nano, **_given(kept)}}}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are known, with strings for NaN and the infinities in lists and objects."""
    known = {
        name: value for name, value in values.items() if value not in (None, "", [], {}) and spelled(value) != "NaN"
    }
    return {name: _spelled(value) for name, value in known.items()}


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: spelled(part) for name, part in value.items()}
    return [*map(spelled, value)] if isinstance(value, list) else spelled(value)
