"""Reads samples: trajectories with messages, and tables of texts, whatever framework named their columns."""

from __future__ import annotations

import json
import math
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.look.insight.samples.sample import TextSample
from otel_rl.look.insight.samples.trajectories import MESSAGES, USUAL_BYTES, evenly, has, sizes, trajectories
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.json_texts import decoded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from otel_rl.look.reader.runs import RunReader

_COMPLETIONS = ("completion", "response", "output", "generation", "answer", "text")
_PROMPTS = ("prompt", "input", "question", "query", "problem")
_REWARDS = ("reward_total", "reward", "total_reward", "score", "rewards")
_GROUPS = ("prompt_index", "group", "group_id", "prompt_id")
_ADVANTAGE = "advantage"
"""Names of columns, the preferred one first. A number behind them, as in verl's `output_1`, is one of several."""
_NO_COMPONENTS = re.compile(r"step|epoch|.*(index|rank|rank_desc|size|id)|update_mass_proxy|update_weight_raw|q_mass")
_NUMBERED = re.compile(r"(?P<name>.+)_(?P<number>\d+)")
_LEAST_STEPS, _MOST_SAMPLES = 12, 480
"""Steps that stand for a run, and samples of all of them: more steps if these have few samples."""
_MOST_FILES, _MOST_STEPS = 12, 64
"""Files of messages, which are large, and steps of tables that are looked at."""
_MOST_BYTES = 64 << 20
"""Texts of the steps that stand for a run."""


class SampleTables(NamedTuple):
    """The tables with samples, and the steps that stand for all: more of them have samples in a long run."""

    names: tuple[str, ...]  # names of the tables; `messages` if there are trajectories with messages
    steps: tuple[int, ...]
    """Steps with samples, in ascending order: the first, the last, those asked for, and some between."""
    sizes: tuple[int, ...]  # about how many bytes the texts of each of them are

    def spread(self) -> Sequence[int]:
        """Return evenly spaced steps whose texts fit into memory, the first and the last among them."""
        mean = max(1, sum(self.sizes) // max(1, len(self.sizes)))
        wanted = max(_LEAST_STEPS, _MOST_SAMPLES * USUAL_BYTES // mean)
        return evenly(self.steps, max(3, min(wanted, _MOST_BYTES // mean)))


def held_by(run: RunReader, wanted: Sequence[tuple[int, int]] = ()) -> SampleTables:
    """Return which tables of a run have samples, and in which steps; those of ranges that are wanted are among them.

    Messages of trajectories that a step took replace its tables, which have the same completions.
    """
    ranges = _ranges_to_read(
        sorted(run.steps_of_messages(), key=lambda steps_of_file: steps_of_file.start), _MOST_FILES, wanted
    )
    of_messages, names = sizes(run, ranges), _tables(run)
    in_tables = [range(step, step + 1) for step in _steps_of(run, names)]
    taken = {step for step, (_, is_taken) in of_messages.items() if is_taken}
    tabled = {
        step: size
        for step, size in _tabled(run, names, _ranges_to_read(in_tables, _MOST_STEPS, wanted))
        if step not in taken
    }
    steps = sorted({*of_messages, *tabled})
    bytes_of_steps = [tabled.get(step, 0) + of_messages.get(step, (0, False))[0] for step in steps]
    tables = ((MESSAGES,) if of_messages else ()) + (tuple(sorted(names)) if tabled else ())
    return SampleTables(tables, tuple(steps), tuple(bytes_of_steps))


def sampled(run: RunReader, held: SampleTables) -> list[TextSample]:
    """Return samples that stand for all of a run: of evenly spaced steps, some of each."""
    steps = held.spread()
    return list(read_samples(run, held.names, steps, each=math.ceil(_MOST_SAMPLES / max(1, len(steps)))))


def have_texts(samples: Iterable[TextSample]) -> bool:
    """Return whether any sample has a text: without `content=True`, the texts of tables are empty."""
    return any(sample.prompt or sample.completion or sample.turns for sample in samples)


def read_samples(
    run: RunReader,
    names: Sequence[str],
    steps: Sequence[int],
    *,
    each: int | None = None,
    tokens: bool = False,
) -> Iterator[TextSample]:
    """Yield the samples of tables in some steps, in the order of each table.

    Args:
        run: The run.
        names: Names of the tables.
        steps: The steps.
        each: At most so many of each step, evenly spaced; by default all.
        tokens: If true, the turns of trajectories have the lists of their tokens.
    """
    if MESSAGES in names and steps:
        with_messages = trajectories(run, steps, each=each, tokens=tokens)
        yield from with_messages
        taken = {sample.step for sample in with_messages if sample.outcome}
        steps = [step for step in steps if step not in taken]
        names = [name for name in names if name != MESSAGES]
    if names and steps:
        for _, samples in groupby(_of_tables(run, names, steps), key=lambda sample: (sample.step, sample.table)):
            yield from evenly(list(samples), each)


def _ranges_to_read(steps: Sequence[range], most: int, wanted: Iterable[tuple[int, int]]) -> list[range]:
    """Return which steps are looked at: evenly spaced ones, those that are wanted, or else those next to them."""
    read = {*evenly(steps, most)}
    for first, last in wanted if steps else ():
        inside = [of_file for of_file in steps if of_file.start <= last and first <= of_file[-1]]
        nearest = min(steps, key=lambda of_file: max(of_file.start - first, first - of_file[-1], 0))
        read |= {*evenly(inside or [nearest], most)}
    return sorted(read, key=lambda of_file: of_file.start)


def _tables(run: RunReader) -> set[str]:
    """Return the names of the tables of texts that have completions."""
    known = run.sql("SELECT DISTINCT name, columns FROM texts")
    return {
        str(name)
        for name, columns in zip(known["name"], known["columns"], strict=True)
        if _named(list(map(str, decoded(columns) or [])), _COMPLETIONS)
    }


def _steps_of(run: RunReader, names: Collection[str]) -> list[int]:
    """Return the steps of tables of texts, in ascending order."""
    query = f"SELECT DISTINCT step FROM texts WHERE {_of(names)} ORDER BY step"
    return run.sql(query)["step"].tolist() if names else []


def tabled_with(run: RunReader, names: Collection[str], text: str) -> Sequence[int]:
    """Return steps whose tables have a text, whatever the case: evenly spaced ones of many."""
    # Cells are JSON: what is escaped there has to be escaped here.
    condition = has("cells", json.dumps(text, ensure_ascii=False)[1:-1])
    rows = run.sql(f"SELECT DISTINCT step FROM texts WHERE {_of(names)} AND {condition} ORDER BY step")
    return evenly(rows["step"].tolist(), _MOST_STEPS)


def _tabled(run: RunReader, names: Collection[str], steps: Iterable[range]) -> Iterator[tuple[int, int]]:
    """Yield some steps of tables of texts, and the bytes of their cells."""
    if names and (listed := ", ".join(str(step.start) for step in steps)):
        rows = run.sql(
            "SELECT step, sum(strlen(cells))::BIGINT AS size FROM texts"
            f" WHERE {_of(names)} AND step IN ({listed}) GROUP BY step"
        )
        yield from zip(rows["step"].tolist(), rows["size"].tolist(), strict=True)


def _of_tables(run: RunReader, names: Sequence[str], steps: Sequence[int]) -> Iterator[TextSample]:
    listed = ", ".join(map(str, map(int, steps)))
    where = f"{_of(names)} AND step IN ({listed})"
    rows = run.sql(f"SELECT step, name, columns, cells FROM texts WHERE {where} ORDER BY step, name, part")
    counts: dict[tuple[int, str], int] = {}
    for step, name, columns, cells in zip(*(rows[column] for column in rows.columns), strict=True):
        of_table = _Columns([str(column) for column in decoded(columns) or []])
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
        numbered = [_NUMBERED.fullmatch(column) for column in columns]
        numbers = {match["number"] for match in numbered if match and match["name"].lower() in _COMPLETIONS}
        self._sets = [
            {match["name"]: at for at, match in enumerate(numbered) if match and match["number"] == number}
            for number in sorted(numbers, key=int)
        ] or [{name: at for at, name in enumerate(columns)}]

    def split(self, line: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield the fields of each sample of a line."""
        for places in self._sets:
            yield {name: line[at] for name, at in places.items() if at < len(line)}


def _named(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the column that has one of these names, the preferred one; empty if none does."""
    of_name = {_NUMBERED.sub(r"\g<name>", column).lower(): column for column in reversed(columns)}
    return next((of_name[name] for name in wanted if name in of_name), "")


def _sample(fields: dict[str, Any], step: int, table: str, number: int) -> TextSample:
    names = list(fields)
    completion, prompt, total, group = (
        _named(names, accepted) for accepted in (_COMPLETIONS, _PROMPTS, _REWARDS, _GROUPS)
    )
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
    return TextSample(
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
