"""Reads trajectories from their messages. Lists of tokens are most of an archive: they are read for few of them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from otel_rl import semconv
from otel_rl.look.insight.samples.sample import SampleTurn, TextSample
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.tables import TOKEN_LISTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from otel_rl.look.reader.runs import RunReader

Item = TypeVar("Item")
MESSAGES = "messages"
"""The table of messages, as the table of samples."""
_POLICY = "assistant"
USUAL_BYTES = 4096
"""Estimated bytes of the texts of a trajectory: to measure them would be to read them."""
_SIZES = f"""
SELECT step, count(*) * {USUAL_BYTES} AS size,
    bool_or((step, trace_id) IN (SELECT (step, trace_id) FROM trajectories WHERE {{where}})) AS taken
FROM messages WHERE number = 0 AND {{where}} GROUP BY step
"""
_KEYS = "step, trace_id, span_id"
_FACTS = f"""
WITH begun AS (SELECT {_KEYS}, min(time_unix_nano) AS time FROM messages WHERE {{where}} GROUP BY ALL),
taken AS (
    SELECT * FROM trajectories WHERE {{where}}
    QUALIFY row_number() OVER (PARTITION BY {_KEYS} ORDER BY time_unix_nano DESC, number DESC) = 1
)
SELECT {_KEYS}, outcome, policy_version, prompt_id, group_id, taken.row, components, reward, advantage, loss
FROM begun LEFT JOIN taken USING ({_KEYS}) ORDER BY step, time, trace_id, span_id
"""
_TURNS = f"""
SELECT {_KEYS}, author, text, name, cut, calls, policy_version{{more}} FROM messages
WHERE {{where}} ORDER BY {_KEYS}, number
"""
_LISTS = [name for name in TOKEN_LISTS if name in SampleTurn.__struct_fields__]
_GAPS = f"""
SELECT {_KEYS}, avg(abs(engine - trainer)) AS gap FROM (
    SELECT {_KEYS}, unnest(logprobs) AS engine, unnest(trainer_logprobs) AS trainer, unnest(mask) AS kept
    FROM messages WHERE {{where}} AND logprobs IS NOT NULL AND trainer_logprobs IS NOT NULL
) WHERE isfinite(engine - trainer) AND kept IS DISTINCT FROM false GROUP BY ALL
"""
_SECONDS = f"""
SELECT trace_id, name, attributes ->> '$."{semconv.GEN_AI_TOOL_NAME}"' AS tool, sum(duration_ns) / 1e9 AS seconds
FROM spans WHERE {{where}} AND starts_with(name, '{semconv.SPAN_TRAJECTORY}.') GROUP BY ALL ORDER BY name, tool
"""


class TrajectoryKey(NamedTuple):
    """The identity of a trajectory: the step that took it, and its root span."""

    step: int
    trace_id: str
    span_id: str


def sizes(run: RunReader, steps: Sequence[range]) -> dict[int, tuple[int, bool]]:
    """Return those of some steps that have trajectories with messages.

    Of each: about how many bytes their texts are, and whether the step took any.
    """
    where = " OR ".join(f"step BETWEEN {some_steps[0]} AND {some_steps[-1]}" for some_steps in steps) or "false"
    lines = _lines(run, _SIZES.format(where=f"({where})"), steps)
    return {line["step"]: (line["size"], line["taken"]) for line in lines}


def trajectories(
    run: RunReader,
    steps: Iterable[int],
    *,
    traces: Collection[str] | None = None,
    each: int | None = None,
    tokens: bool = False,
) -> list[TextSample]:
    """Return the trajectories of steps in their order.

    Args:
        run: The run.
        steps: The steps.
        traces: Ids of their traces; all by default.
        each: At most so many of each step, evenly spaced; by default all.
        tokens: If true, turns have the lists of their tokens.
    """
    files = each_of(steps)
    of_steps = one_of("step", [file.start for file in files])
    facts = list(_lines(run, _FACTS.format(where=of_steps), files))
    if traces is None and each is not None:
        of_step = groupby(facts, key=itemgetter("step"))
        traces = {line["trace_id"] for _, lines in of_step for line in evenly(list(lines), each)}
    of_traces = "true" if traces is None else one_of("trace_id", traces)
    return list(_samples(facts, _turns(run, f"{of_steps} AND {of_traces}", files, tokens=tokens)))


def containing(run: RunReader, text: str) -> list[TrajectoryKey]:
    """Return the trajectories in which the policy may have written a text, in the order of the steps.

    Tool calls are not recorded as `SampleTurn.calls` has them: those with all of the words are returned.
    """
    called = " AND ".join(has("calls", word) for word in re.findall(r"\w+", text)) or "calls IS NOT NULL"
    written = f"{has('text', text)} OR {called}"
    query = f"SELECT DISTINCT {_KEYS} FROM messages WHERE author = '{_POLICY}' AND ({written}) ORDER BY {_KEYS}"
    return [TrajectoryKey(**line) for line in _lines(run, query)]


def beginning(run: RunReader, trace: str) -> list[TrajectoryKey]:
    """Return the trajectories whose trace id begins with a text, in the order of the steps."""
    query = f"SELECT DISTINCT {_KEYS} FROM messages WHERE starts_with(trace_id, {literal(trace)}) ORDER BY {_KEYS}"
    return [TrajectoryKey(**line) for line in _lines(run, query)]


def with_gaps(run: RunReader, samples: Sequence[TextSample]) -> list[TextSample]:
    """Return samples with the gap between engine and trainer, as far as it is known."""
    lines = _lines(run, _GAPS.format(where=_any_of(samples)), each_of(sample.step for sample in samples))
    gaps = {_key(line): line["gap"] for line in lines}
    return [msgspec.structs.replace(sample, gap=gaps.get(key_of(sample), sample.gap)) for sample in samples]


def with_tokens(run: RunReader, samples: Sequence[TextSample]) -> list[TextSample]:
    """Return samples whose turns have the lists of their tokens, as far as they are known."""
    turns = _turns(run, _any_of(samples), each_of(sample.step for sample in samples), tokens=True)
    return [msgspec.structs.replace(sample, turns=turns.get(key_of(sample), sample.turns)) for sample in samples]


def with_seconds(run: RunReader, samples: Sequence[TextSample]) -> list[TextSample]:
    """Return samples with the seconds of their parts, as far as these have spans."""
    seconds: defaultdict[str, dict[str, float]] = defaultdict(dict)
    traces = {sample.trace_id for sample in samples} - {""}
    for line in _lines(run, _SECONDS.format(where=one_of("trace_id", traces))):
        kind = line["name"].removeprefix(f"{semconv.SPAN_TRAJECTORY}.")
        seconds[line["trace_id"]][f"{kind} {line['tool'] or ''}".rstrip()] = line["seconds"]
    return [msgspec.structs.replace(sample, seconds=seconds.get(sample.trace_id, sample.seconds)) for sample in samples]


def evenly(every: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return at most so many items, evenly spaced, the first and the last among them; all without a number."""
    if most is None or len(every) <= most:
        return every
    return [every[round(n * (len(every) - 1) / max(1, most - 1))] for n in range(most)]


def key_of(sample: TextSample) -> TrajectoryKey:
    """Return what a trajectory is known by."""
    return TrajectoryKey(sample.step, sample.trace_id, sample.span_id)


def _key(line: Mapping[str, Any]) -> TrajectoryKey:
    return TrajectoryKey(line["step"], line["trace_id"], line["span_id"])


def _any_of(samples: Sequence[TextSample]) -> str:
    steps, traces = {sample.step for sample in samples}, {sample.trace_id for sample in samples if sample.turns}
    return f"{one_of('step', steps)} AND {one_of('trace_id', traces)}"


def has(column: str, text: str) -> str:
    """Return the condition, in SQL, that a column has a text, whatever the case."""
    # An argument that is not UTF-8 has halves of surrogate pairs, which cannot be encoded for DuckDB.
    return f"contains(lower({column}), lower({literal(text.encode('utf-8', 'replace').decode())}))"


def one_of(column: str, values: Iterable[int | str]) -> str:
    """Return the condition, in SQL, that a column has one of these values."""
    return f"{column} IN ({', '.join(map(literal, sorted(values))) or 'NULL'})"


def each_of(steps: Iterable[int]) -> list[range]:
    """Return steps as a query wants to know which files it is about."""
    return [range(step, step + 1) for step in sorted(set(steps))]


def _lines(run: RunReader, query: str, steps: Sequence[range] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a query about some steps, each by name of column; what is missing is `None`."""
    result = run.sql(query, steps=steps)
    for line in lines_of(result):
        yield dict(zip(result.columns, line, strict=True))


def _turns(
    run: RunReader, where: str, steps: Sequence[range], *, tokens: bool
) -> dict[TrajectoryKey, tuple[SampleTurn, ...]]:
    more = "".join(f", {name}" for name in _LISTS) if tokens else ""
    turns: defaultdict[TrajectoryKey, list[SampleTurn]] = defaultdict(list)
    for line in _lines(run, _TURNS.format(where=where, more=more), steps):
        turn = SampleTurn(
            author=line["author"],
            text=line["text"],
            name=line["name"],
            cut=line["cut"],
            calls=tuple(_calls(line["calls"])),
            policy_version=line["policy_version"],
            **{name: tuple(line.get(name) or ()) for name in _LISTS},
        )
        turns[_key(line)].append(turn)
    return {key: tuple(of_trajectory) for key, of_trajectory in turns.items()}


def _calls(text: str | None) -> Iterator[str]:
    """Yield tool calls, as OpenAI's messages have them or otherwise, as `name(arguments)`."""
    calls = decoded(text)
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        function = call.get("function", call) if isinstance(call, dict) else call
        if not isinstance(function, dict) or "name" not in function:
            yield _text(call)
        else:
            yield f"{_text(function['name'])}({_text(function.get('arguments', ''))})"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _samples(
    facts: Iterable[Mapping[str, Any]], turns: Mapping[TrajectoryKey, tuple[SampleTurn, ...]]
) -> Iterator[TextSample]:
    """Yield the samples that have turns. The facts are those of all of their steps, so that numbers stay the same."""
    numbers: Counter[int] = Counter()
    groups: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for line in facts:
        step, of_step = line["step"], groups[line["step"]]
        group = line["group_id"] or line["prompt_id"] or ""
        number, place = numbers[step], of_step.setdefault(group, len(of_step)) if group else -1
        numbers[step] += 1
        if of_trajectory := turns.get(_key(line)):
            yield _sample(line, of_trajectory, number, place)


def _sample(line: Mapping[str, Any], turns: tuple[SampleTurn, ...], number: int, group: int) -> TextSample:
    first = next((n for n, turn in enumerate(turns) if turn.author == _POLICY), len(turns))
    written = [text for turn in turns if turn.author == _POLICY for text in (turn.text, *turn.calls) if text]
    versions = [turn.policy_version for turn in turns if turn.author == _POLICY and turn.policy_version >= 0]
    components = decoded(line["components"]) or {}
    return TextSample(
        step=line["step"],
        table=MESSAGES,
        number=number,
        group=group,
        prompt="\n\n".join(turn.text for turn in turns[:first]),
        completion="\n\n".join(written),
        reward=_known(line["reward"]),
        components={name: float(value) for name, value in components.items() if _known(value) is not None},
        turns=turns,
        trace_id=line["trace_id"],
        span_id=line["span_id"],
        advantage=_known(line["advantage"]),
        loss=_known(line["loss"]),
        prompt_id=line["prompt_id"] or "",
        group_id=line["group_id"] or "",
        row=line["row"] or "",
        policy_version=min(versions, default=-1),
        trained_version=-1 if line["policy_version"] is None else line["policy_version"],
        outcome=line["outcome"] or "",
    )


def _known(value: object) -> float | None:
    """Return a number that is finite; `None` otherwise."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
