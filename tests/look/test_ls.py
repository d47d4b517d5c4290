"""`otel-rl ls`: runs are chosen and sorted by what they recorded."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Item, Params, Row
from otel_rl.look.insight.run_values import RunValues, chosen, in_order
from otel_rl.look.insight.selection import RunColumn, column_of
from otel_rl.look.terminal.listing import runs_below
from otel_rl.recorder.archive.writer import ArchiveWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_AT = 1_790_000_100_000_000_000
_S = 1_000_000_000
RUNS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "a": ({"optimizer.lr": 1e-6, "model": "qwen"}, [0.1, 0.9, 0.5]),
    "b": ({"optimizer.lr": 3e-6, "critic.lr": 1.0, "fp8": True}, [0.2, float("nan"), 0.7]),
    "c": ({"lr": 2e-6}, []),
}
"""Parameters and rewards."""


@pytest.fixture(autouse=True)
def runs() -> Path:
    """Return a directory with three runs."""
    for number, (name, (parameters, rewards)) in enumerate(RUNS.items()):
        began = _AT - (9 - number) * _S
        items: list[Item] = [Params(began, {"optimizer.lr": 9.0} if "optimizer.lr" in parameters else {})]
        items.append(Params(began + 1, parameters))
        for step, reward in enumerate(rewards):
            items.append(Row(step, began + step, {"reward": reward, "odd": -reward}))
        recorded(name, items)
    return Path("runs")


def recorded(name: str, items: Iterable[Item]) -> Path:
    """Write a run."""
    place = Path("runs/p", name).absolute()
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps({"id": name * 8, "project": "p", "name": name}))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    for item in items:
        writer.add(item)
    writer.save(seals=True)
    return place


def rows(values_of: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return rows with values of metrics, one for each step."""
    steps = zip(*values_of.values(), strict=True)
    return [Row(step, _AT + step, dict(zip(values_of, of_step, strict=True))) for step, of_step in enumerate(steps)]


def ls(*arguments: str) -> list[dict[str, Any]]:
    """Return the runs that are listed."""
    found: list[dict[str, Any]] = json.loads(call(*arguments).stdout)["runs"]
    return found


def call(*arguments: str) -> Result:
    """List runs."""
    return CliRunner().invoke(main, ["ls", *arguments], catch_exceptions=False)


def values(run: str, *columns: str) -> list[object]:
    """Return values of a run."""
    (present,) = (one for one in runs_below([Path("runs")], _AT) if one.name == run)
    return [RunValues(present, _AT).value(column_of(column)) for column in columns]


def test_values_of_the_run() -> None:
    """They are those of the list."""
    assert values("a", "name", "project", "steps", "last_step") == ["a", "p", 3, 2]


def test_parameters() -> None:
    """The latest value counts; the end of a name is enough where it is the only one."""
    assert values("a", "optimizer.lr", "lr", "model", "nothing") == [1e-6, 1e-6, "qwen", None]
    assert values("b", "lr", "critic.lr", "fp8") == [None, 1.0, True]
    assert values("c", "lr") == [2e-6]


def test_metrics() -> None:
    """Values that are not finite count in no aggregate."""
    assert values("a", "reward", "reward:last", "reward:best", "reward:min") == [0.5, 0.5, 0.9, 0.1]
    assert values("b", "reward", "reward:max", "reward:mean1", "reward:mean9") == pytest.approx([0.7, 0.7, 0.7, 0.45])
    assert values("c", "reward", "reward:best", "odd:max") == [None, None, None]
    every = otel_rl.open_run("runs/p/a").rows("reward")["value"]
    assert values("a", "reward:mean2") == pytest.approx([float(np.mean(every[-2:]))])


def test_a_last_value_that_is_not_finite() -> None:
    """It is none, as in `metrics`: it meets no comparison, and comes last."""
    recorded("nan", rows({"loss": [1.0, math.nan], "odd": [2.0, math.inf]}))
    recorded("well", rows({"loss": [3.0, 2.0], "odd": [1.0, 3.0]}))

    assert values("nan", "loss", "loss:last", "odd", "loss:best", "odd:max") == [None, None, None, 1.0, 2.0]
    assert [run["name"] for run in ls("--where", "loss<9")] == ["well"]
    assert [run["name"] for run in ls("--where", "odd<9 odd>0")] == ["well"]
    for sort in ("loss", "-loss", "odd"):
        assert [run["name"] for run in ls("--sort", sort) if run["name"] in ("nan", "well")] == ["well", "nan"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("loss", ["low", "high"]),
        ("actor/pg_loss", ["low", "high"]),
        ("-actor/pg_loss", ["high", "low"]),
        ("actor/pg_loss:max", ["low", "high"]),
        ("critic/rewards/mean:min", ["high", "low"]),
        ("odd", ["high", "low"]),
        ("odd:min", ["low", "high"]),
    ],
)
def test_the_best_first(sort: str, order: list[str]) -> None:
    """The direction is that of the topic, whatever a framework calls the metric; without a topic, the largest."""
    for name, value in (("low", 1.0), ("high", 2.0)):
        recorded(name, rows({"actor/pg_loss": [value], "critic/rewards/mean": [value], "odd": [value]}))

    assert [run["name"] for run in ls("--sort", sort) if run["name"] in order] == order


def test_the_last_steps() -> None:
    """The mean is of the last steps of the run, however few of them have a value."""
    every = rows({"reward": [0.0] * 6})
    recorded("rare", [row if row.step % 3 else replace(row, values={"reward": 0.0, "rare": row.step}) for row in every])

    assert values("rare", "rare:mean3", "rare:mean2", "rare:mean6") == [3.0, None, 1.5]


def test_a_run_that_is_deleted_while_it_is_listed() -> None:
    """It has no value, and the others are listed."""
    every = [RunValues(run, _AT) for run in runs_below([Path("runs")], _AT)]
    shutil.rmtree("runs/p/a")
    known = chosen(every, "-name=x", "odd:max", ["odd:max", "cost"])

    assert [run.run.name for run in known.runs] == ["b", "a", "c"]
    assert [known.runs[1].value(column) for column in known.columns] == [None, None]


def test_archived_runs() -> None:
    """They are left out, whatever the conditions are, unless they are asked for."""
    Path("runs/p/a/marks.json").write_text('{"archived": true}')

    assert [run["name"] for run in ls("--where", "tag:archived")] == []
    assert [run["name"] for run in ls("--where", "tag:archived", "--all")] == ["a"]


def test_the_best_of_an_unknown_metric() -> None:
    """Nobody guesses which one that is."""
    with pytest.raises(ValueError, match="give odd:max or odd:min"):
        values("a", "odd:best")


def test_parameters_of_a_damaged_file() -> None:
    """The others are there."""
    for file in Path("runs/p/a/archive").rglob("parameters/*"):
        file.write_bytes(b"damaged")

    assert values("a", "lr", "steps") == [None, 3]


def test_chosen_runs() -> None:
    """They meet all conditions, and have the values that were asked for."""
    assert [run["name"] for run in ls("--where", "lr>=1e-6 reward>0.6")] == []
    assert [run["name"] for run in ls("--where", "optimizer.lr>=3e-6", "--where", "reward>0.6")] == ["b"]
    assert [run["columns"] for run in ls("--where", "model=qwen", "--columns", "lr,reward:best,x")] == [
        {"lr": 1e-6, "reward:best": 0.9, "x": None}
    ]


def test_sorted_runs() -> None:
    """The best comes first, and what has no value last; a minus turns the others round."""
    assert [run["name"] for run in ls("--sort", "reward")] == ["b", "a", "c"]
    assert [run["name"] for run in ls("--sort", "-reward")] == ["a", "b", "c"]
    assert [run["name"] for run in ls("--sort", "name")] == ["a", "b", "c"]
    assert [run["name"] for run in ls("--sort", "seen")] == ["b", "a", "c"]
    assert ls("--sort", "reward:mean2")[0]["columns"] == {"reward:mean2": pytest.approx(0.7)}


def test_an_order_is_of_all_runs() -> None:
    """None is lost and none is there twice, whatever their values are."""
    every = [RunValues(run, _AT) for run in runs_below([Path("runs")], _AT)]
    for name in ("lr", "model", "fp8", "nothing", "name"):
        for reverse in (False, True):
            listed = in_order(every, RunColumn(name), reverse=reverse)
            assert sorted(run.run.name for run in listed) == ["a", "b", "c"]


def test_columns_in_text() -> None:
    """They have three digits."""
    shown = call("--text", "--columns", "lr,reward,model", "--sort", "name").stdout.splitlines()

    assert shown[0].split()[:7] == ["RUN", "STATE", "STEPS", "SEEN", "lr", "reward", "model"]
    assert "1e-6     0.5  qwen" in shown[1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--where", "status:hung"), "unknown status:"),
        (("--where", "lr>fast"), "needs a number"),
        (("--where", "steps>99", "--text"), "no run in runs meets steps>99"),
        (("--columns", "odd:best"), "give odd:max or odd:min"),
    ],
)
def test_errors(arguments: tuple[str, ...], error: str) -> None:
    """They are one line."""
    done = call(*arguments)

    assert done.exit_code == 1
    assert error in done.stderr


def test_groups_in_text_and_json() -> None:
    """Runs stand below the title of their group, in the same order in JSON."""
    groups = json.loads(call("runs", "--group", "project", "--json").stdout)["groups"]
    listed_names = [run["path"] for run in ls("runs", "--group", "project")]

    assert [path for group in groups for path in group["runs"]] == listed_names
    assert {group["label"] for group in groups} == {"p"}
