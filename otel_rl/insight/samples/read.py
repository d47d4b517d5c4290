"""Reads samples: trajectories with messages, and tables of texts, whatever framework named their columns."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.archive.json_texts import decoded
from otel_rl.archive.valid import literal
from otel_rl.insight.samples import turns
from otel_rl.insight.samples.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_rl.archive.reader import RunReader

_COMPLETIONS = ("completion", "response", "output", "generation", "answer", "text")
_PROMPTS = ("prompt", "input", "question", "query", "problem")
_REWARDS = ("reward_total", "reward", "total_reward", "score", "rewards")
_GROUPS = ("prompt_index", "group", "group_id", "prompt_id")
_ADVANTAGE = "advantage"
"""Names of columns, the preferred one first. A number behind them, as in verl's `output_1`, is one of several."""
_NO_COMPONENTS = re.compile(r"step|epoch|.*(index|rank|rank_desc|size|id)|update_mass_proxy|update_weight_raw|q_mass")
_NUMBERED = re.compile(r"(?P<name>.+)_(?P<number>\d+)")
_MOST_BYTES = 8 << 20
"""Texts that are read at once: of more, evenly spaced steps."""


class Held(NamedTuple):
    """The tables with samples: of each step, the bytes of their texts.

    Attributes:
        names: Names of the tables; `messages` if there are trajectories with messages.
        steps: The steps, in ascending order.
        sizes: Bytes of the texts of each step.
        lines: Number of trajectories, and of lines of tables.
    """

    names: tuple[str, ...]
    steps: tuple[int, ...]
    sizes: tuple[int, ...]
    lines: int

    def spread(self) -> list[int]:
        """Return evenly spaced steps whose texts fit into memory, the first and the last among them."""
        every = max(1, math.ceil(sum(self.sizes) / _MOST_BYTES))
        return sorted({*self.steps[::every], self.steps[-1]}) if self.steps else []


def held_by(run: RunReader) -> Held:
    """Return which tables of a run have samples, and in which steps.

    Messages of trajectories that a step took replace its tables, which have the same completions.
    """
    told, names = turns.sizes(run), _tables(run)
    tabled = {step: found for step, found in _tabled(run, names).items() if step not in told or not told[step][2]}
    steps = sorted({*told, *tabled})
    sizes, lines = ([sum(one[step][n] for one in (told, tabled) if step in one) for step in steps] for n in (0, 1))
    found = ((turns.MESSAGES,) if told else ()) + (tuple(sorted(names)) if tabled else ())
    return Held(found, tuple(steps), tuple(sizes), sum(lines))


def read_samples(
    run: RunReader,
    names: Sequence[str],
    steps: Sequence[int],
    *,
    tokens: bool = False,
) -> Iterator[Sample]:
    """Yield the samples of tables in some steps, in the order of each table.

    Args:
        run: The run.
        names: Names of the tables.
        steps: The steps.
        tokens: If true, the turns of trajectories have the lists of their tokens.
    """
    if turns.MESSAGES in names and steps:
        found = turns.trajectories(run, steps, tokens=tokens)
        yield from found
        told = {one.step for one in found if one.outcome}
        steps = [step for step in steps if step not in told]
        names = [name for name in names if name != turns.MESSAGES]
    if names and steps:
        yield from _of_tables(run, names, steps)


def _tables(run: RunReader) -> set[str]:
    """Return the names of the tables of texts that have completions."""
    known = run.sql("SELECT DISTINCT name, columns FROM texts")
    return {
        str(name)
        for name, columns in zip(known["name"], known["columns"], strict=True)
        if _named(list(map(str, decoded(columns) or [])), _COMPLETIONS)
    }


def _tabled(run: RunReader, names: Iterable[str]) -> dict[int, tuple[int, int]]:
    """Return the bytes and the number of lines of tables of texts, by step."""
    if not names:
        return {}
    found = run.sql(
        "SELECT step, sum(strlen(cells))::BIGINT AS size, sum(json_array_length(cells))::BIGINT AS lines FROM texts"
        f" WHERE {_of(names)} GROUP BY step"
    )
    lines = zip(*(found[one].tolist() for one in found.columns), strict=True)
    return {step: (size, number) for step, size, number in lines}


def _of_tables(run: RunReader, names: Sequence[str], steps: Sequence[int]) -> Iterator[Sample]:
    listed = ", ".join(map(str, map(int, steps)))
    where = f"{_of(names)} AND step IN ({listed})"
    found = run.sql(f"SELECT step, name, columns, cells FROM texts WHERE {where} ORDER BY step, name, part")
    counts: dict[tuple[int, str], int] = {}
    for step, name, columns, cells in zip(*(found[one] for one in found.columns), strict=True):
        of_table = _Columns([str(one) for one in decoded(columns) or []])
        for line in decoded(cells) or []:
            for fields in of_table.split(line):
                number = counts.get((step, name), 0)
                counts[step, name] = number + 1
                yield _sample(fields, int(step), str(name), number)


def _of(names: Iterable[str]) -> str:
    return f"name IN ({', '.join(map(literal, names))})"


class _Columns:
    """The columns of a table. With numbered ones, `input_1, output_1, input_2, …`, a line has several samples."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns
        found = [_NUMBERED.fullmatch(one) for one in columns]
        numbers = {one["number"] for one in found if one and one["name"].lower() in _COMPLETIONS}
        self._sets = [
            {one["name"]: at for at, one in enumerate(found) if one and one["number"] == number}
            for number in sorted(numbers, key=int)
        ] or [{name: at for at, name in enumerate(columns)}]

    def split(self, line: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield the fields of each sample of a line."""
        for places in self._sets:
            yield {name: line[at] for name, at in places.items() if at < len(line)}


def _named(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the column that has one of these names, the preferred one; empty if none does."""
    of_name = {_NUMBERED.sub(r"\g<name>", one).lower(): one for one in reversed(columns)}
    return next((of_name[one] for one in wanted if one in of_name), "")


def _sample(fields: dict[str, Any], step: int, table: str, number: int) -> Sample:
    names = list(fields)
    completion, prompt, total, group = (_named(names, one) for one in (_COMPLETIONS, _PROMPTS, _REWARDS, _GROUPS))
    numbers = {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and not _NO_COMPONENTS.fullmatch(name.lower())
    }
    advantage = numbers.pop(_ADVANTAGE, math.nan)
    components = {name: value for name, value in numbers.items() if name != total and not math.isnan(value)}
    reward = numbers.get(total)
    rewards = [name for name in components if "reward" in name.lower()]
    if reward is None and len(rewards) == 1:
        reward = components[rewards[0]]
    of_group = fields.get(group)
    return Sample(
        step=step,
        table=table,
        number=number,
        group=int(of_group) if isinstance(of_group, int) else -1,
        prompt=str(fields.get(prompt) or ""),
        completion=str(fields.get(completion) or ""),
        reward=None if reward is None or not np.isfinite(reward) else reward,
        components=components,
        advantage=advantage if np.isfinite(advantage) else None,
    )
