"""Samples of some steps down to their tokens, and the recorded tables as far as they fit."""

from __future__ import annotations

import math
import shlex
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.samples.highlights import highlights
from otel_rl.look.insight.samples.remarks.remark import place_of
from otel_rl.look.insight.samples.selection import prompt_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.errors.sinks import lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.insight.samples.sample import SampleTurn, TextSample
    from otel_rl.look.reader.runs import RunReader

_MOST_BYTES, _MOST_BYTES_OF_TRANSCRIPTS = 1_500_000, 3_000_000
"""Of tables, and of samples."""
_MOST_LINES = 500
_MOST_CHARACTERS = 6_000
"""Of one cell or one turn; the rest is left out, and counted."""
_MOST_TURNS, _MOST_TOKENS = 40, 4_000
"""Of one sample, and of one turn."""
_BYTES_OF_TOKEN = 24
_DIGITS = 4
"""Digits of numbers in the page: smaller differences are not seen as colors."""
_NO_VALUE = {None, "nan", ""}
"""Cells of a column that was not given."""
_OF_TRACE, _OF_NAME, _OF_PIECE = 12, 100, 40
"""Characters of ids, names, and texts of tokens."""
_TABLES = (
    "SELECT name, count(*) AS tables, min(step) AS first, max(step) AS last FROM texts GROUP BY name ORDER BY name"
)
_NEWEST = """
SELECT name, step, columns, cells, cut_rows FROM texts
QUALIFY row_number() OVER (PARTITION BY name ORDER BY step DESC, part DESC) <= 200 ORDER BY step DESC, name
"""


def samples_of(run: RunReader, marked: Iterable[int]) -> dict[str, Any]:
    """Return samples, also of the steps that are marked, and the tables, each with lines of its newest steps."""
    command = f"otel-rl samples {shlex.quote(lines(run.place.id or run.place.path.name))}"
    return {"command": command, "transcripts": _transcripts(highlights(run, marked), command), "tables": _tables(run)}


def _transcripts(samples: Sequence[TextSample], command: str) -> list[dict[str, Any]]:
    prompts: dict[str, int] = {}
    room = _MOST_BYTES_OF_TRANSCRIPTS // max(1, len(samples))
    return [
        _sample(sample, prompts.setdefault(prompt_of(sample), len(prompts)), room)
        | {"command": f"{command} {place_of(sample)}"}
        for sample in samples
    ]


def _sample(sample: TextSample, prompt: int, room: int) -> dict[str, Any]:
    """Return a sample; `prompt` is a number that those of the same prompt share, `room` about its bytes."""
    turns = []
    for turn in sample.conversation[:_MOST_TURNS]:
        turns.append(_turn(turn, max(0, room)))
        room -= len(turns[-1]["text"]) + _BYTES_OF_TOKEN * len(turns[-1]["engine"] or turns[-1]["tokens"])
        room -= sum(len(piece) + 3 for piece in turns[-1]["pieces"])
    return {
        "id": lines(sample.trace_id[:_OF_TRACE]) or f"{sample.step}-{sample.table}-{sample.number}",
        "step": sample.step,
        "number": sample.number,
        "group": lines(sample.group_id[:_OF_NAME]) or (sample.group if sample.group >= 0 else None),
        "prompt": prompt,
        "reward": _number(sample.reward),
        "components": {lines(name[:_OF_NAME]): _number(value) for name, value in sample.components.items()},
        "advantage": _number(sample.advantage),
        "loss": _number(sample.loss),
        "gap": _number(sample.gap),
        "version": sample.policy_version if sample.policy_version >= 0 else None,
        "staleness": sample.staleness,
        "dropped": "" if sample.outcome == "trained" else lines(sample.outcome[:_OF_NAME]),
        "names": [lines(name[:_OF_NAME]) for name in (sample.prompt_id, sample.row)],
        "seconds": {lines(part[:_OF_NAME]): took for part, took in sample.seconds.items()},
        "turns": turns,
        "more": max(0, len(sample.turns) - _MOST_TURNS),
    }


def _turn(turn: SampleTurn, room: int) -> dict[str, Any]:
    most = min(_MOST_TOKENS, room // _BYTES_OF_TOKEN)
    known = max(map(len, (turn.tokens, turn.logprobs, turn.trainer_logprobs, turn.mask)))
    return {
        "author": lines(turn.author[:_OF_NAME]),
        "name": lines(turn.name[:_OF_NAME]),
        "text": _cut(turn.text, min(_MOST_CHARACTERS, room)),
        "calls": [_cut(call, _MOST_CHARACTERS) for call in turn.calls[:_MOST_TURNS]],
        "cut": turn.cut,
        "tokens": turn.tokens[:most],
        "engine": [_number(logprob) for logprob in turn.logprobs[:most]],
        "trainer": [_number(trainer_logprob) for trainer_logprob in turn.trainer_logprobs[:most]],
        "mask": [int(is_kept) for is_kept in turn.mask[:most]],
        "pieces": [lines(piece[:_OF_PIECE]) for piece in turn.pieces[:most]],
        "moreTokens": max(0, known - most),
    }


def _cut(text: str, most: int) -> str:
    """Return a text that is harmless, without its middle if it is long: answers are at the end."""
    left = len(text) - most
    if left <= 0:
        return lines(text)
    end = most // 3
    return (
        f"{lines(text[: most - end])}\n… ({left:,} characters are not on this page) …\n{lines(text[len(text) - end :])}"
    )


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")


def _tables(run: RunReader) -> list[dict[str, Any]]:
    """Return the tables, each with lines of its newest steps and what was left out."""
    known = run.sql(_TABLES)
    tables: dict[str, dict[str, Any]] = {
        name: {"name": name, "first": int(first), "last": int(last), "lines": [], "columns": [], "cut": 0}
        for name, first, last in zip(known["name"], known["first"], known["last"], strict=True)
    }
    if not tables:
        return []
    room = dict.fromkeys(tables, _MOST_BYTES // len(tables))
    newest = run.sql(_NEWEST)
    texts = zip(*(newest[name] for name in ("name", "step", "columns", "cells", "cut_rows")), strict=True)
    for name, step, columns, cells, cut in texts:
        table, named = tables[name], [str(column) for column in decoded(columns) or []]
        table["columns"] += [column for column in named if column not in table["columns"]]
        table["cut"] += int(cut)
        for line in decoded(cells) or []:
            shown = {column: _shown(cell) for column, cell in zip(named, line, strict=False)}
            room[name] -= sum(len(cell) for cell in shown.values() if isinstance(cell, str)) + 16 * len(shown)
            if room[name] < 0 or len(table["lines"]) >= _MOST_LINES:
                table["cut"] += 1
                continue
            table["lines"].append([int(step), *(shown.get(column) for column in table["columns"])])
    return [_worth_showing(table) for table in tables.values()]


def _worth_showing(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table without columns that repeat the step of each line, or have no value."""
    columns = table["columns"]
    if not table["lines"]:
        return table
    steps, *cells = zip_longest(*table["lines"])
    kept = {
        name: values
        for name, values in zip(columns, cells, strict=False)
        if not {*values} <= _NO_VALUE and (name != "step" or values != steps)
    }
    return table | {"columns": [*kept], "lines": [list(line) for line in zip(steps, *kept.values(), strict=True)]}


def _shown(cell: Any) -> str | float | int | bool | None:
    if cell is None or isinstance(cell, bool | int):
        return cell if not isinstance(cell, int) or abs(cell) < 1 << 53 else str(cell)
    if isinstance(cell, float) and cell - cell == 0:
        return cell
    text = str(cell)
    left_out = len(text) - _MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:_MOST_CHARACTERS]} … ({left_out:,} more characters)"
