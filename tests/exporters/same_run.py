"""One deterministic run that every exporter is handed, and what it has to read back as."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from otel_rl.export import Cell, Item, Params, Row, Table
from tests.exporters.trackers import Points, Shown, Tracker, bits, points_of

STEPS = 200
START = 1_795_000_000_123_456_789
TABLE = "completions/step table"
TABLE_STEPS = (3, 150)
COLUMNS = ("step", "prompt", "completion", "reward/exact match", "tokens", "correct")

PARAMS: dict[str, bool | int | float | str | None] = {
    "algorithm": "grpo",
    "actor.optim.lr": 1e-6,
    "actor.optim.warmup_steps": 10,
    "actor.use_kl_loss": True,
    "actor.lora": None,
    "data.seed": 2**53 - 1,
    "data.prompt": "Frage: «что такое 1|2?»\n<b>答え</b>",
    "data.shuffle": False,
    "model.path": "Qwen/Qwen2.5-0.5B",
    "trainer.total_steps": STEPS,
    "rollout.top_p": 1.0,
}
"""The hyper-parameters, flat."""

_EVERY_STEP = ("loss", "loss/kl", "reward", "tokens", "négatif zéro", "grad/norm")
_HARD_NAMES = (
    "actor/pg_loss@mean",
    "val-core/gsm8k/acc/mean@4",
    "rl.train.loss",
    "récompense/средняя/奖励",
    "name with spaces",
    "percent % and #hash?",
    "a/b/c/d/e/f",
    "UPPER/Case",
    "upper/case",
    "under_score-dash.dot:colon",
)
NAMES = (*_EVERY_STEP, *_HARD_NAMES, *(f"group{n % 7}/metric {n:03}" for n in range(484)))
"""All 500 names; only the first six are in every row."""


def items() -> list[Item]:
    """Return the run as the agent delivers it: parameters, then each step's row followed by the step's table."""
    found: list[Item] = [Params(START, PARAMS)]
    for row in rows():
        found += [row, *(table for table in tables() if table.step == row.step)]
    return found


def rows() -> list[Row]:
    """Return the 200 rows; each has what is logged at every step and an eighth of the other names."""
    dice = random.Random(7)
    return [Row(step, _time(step), _values(step, dice)) for step in range(STEPS)]


def tables() -> list[Table]:
    """Return the two tables, which have one name and different steps."""
    return [
        Table(
            name=TABLE,
            step=step,
            time_unix_nano=_time(step) + 1,
            columns=COLUMNS,
            rows=(
                (step, "What is 1 + 1?", "2", 1.0, 7, True),
                (
                    step,
                    "Сколько будет 2 x 2?\n選んで: a|b",
                    "<b>четыре</b>\n\n[link](http://x) `code` **4**",
                    0.1 + 0.2,
                    12,
                    False,
                ),
                (step, '[red]markup[/red] \\ "quoted"', "", math.nan, 0, False),
                (step, None, "line\r\nline\ttab 😀", None, 2**40 + step, None),
                (step, "x" * 300, "= = =", -math.inf, -1, True),
            ),
            ranks=(0,),
        )
        for step in TABLE_STEPS
    ]


def _time(step: int) -> int:
    return START + step * 1_000_000_000


def _values(step: int, dice: random.Random) -> dict[str, int | float]:
    values: dict[str, int | float] = {
        "loss": math.nan if step % 50 == 7 else dice.gauss(0, 1),
        "loss/kl": {11: math.inf, 12: -math.inf}.get(step, abs(dice.gauss(0, 1e-3))),
        "reward": 0.1 + 0.2 + step,
        "tokens": 2**60 + step,
        "négatif zéro": -0.0,
        "grad/norm": dice.choice([5e-324, 1.5, 1.7976931348623157e308]),
    }
    for index, name in enumerate(NAMES[len(_EVERY_STEP) :]):
        if index % 8 == step % 8:
            values[name] = step * index if index % 5 == 0 else dice.random()
    return values


def points(tracker: Tracker) -> Points:
    """Return step and exact value of every point by name, as a tracker has them."""
    return points_of((row.step, {name: tracker.value(value) for name, value in row.values.items()}) for row in rows())


def shown(tracker: Tracker) -> list[Shown]:
    """Return the tables as a tracker has them."""
    return [(one.step, one.columns, [list(map(tracker.cell, row)) for row in one.rows]) for one in tables()]


def exact_tables(found: Iterable[Shown]) -> list[tuple[int, tuple[str, ...], list[list[tuple[str, object]]]]]:
    """Return tables comparable with `==`."""
    return [(step, columns, exact_rows(rows)) for step, columns, rows in found]


def exact_rows(found: Iterable[Sequence[Cell]]) -> list[list[tuple[str, object]]]:
    """Return the rows of a table comparable with `==`: NaN equals NaN, `True` is not 1, 1 is not 1.0."""
    return [[(type(cell).__name__, bits(cell) if isinstance(cell, float) else cell) for cell in row] for row in found]


def exact_values(found: Mapping[str, Cell]) -> list[tuple[str, tuple[str, object]]]:
    """Return hyper-parameters comparable with `==`, sorted by name."""
    (row,) = exact_rows([[found[name] for name in sorted(found)]])
    return list(zip(sorted(found), row, strict=True))
