"""Several runs side by side: a column for each, and everything that differs among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.look.insight import changed
from otel_rl.look.insight.compare.columns import compare_each
from otel_rl.look.insight.compare.texts import metrics_of
from otel_rl.look.insight.quantities import quantities
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.page.comparison import comparison_page
from otel_rl.look.reader.runs import open_run
from tests.look.insight.played import PHASES, Played, play

STEPS = 40
SLOWER = {"one": 1.0, "two": 1.2, "three": 1.5}
"""The runs, with how many times as long `generate` takes."""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (({"lr": 0.1, "beta": 0.1}, {"lr": 0.2, "beta": 0.1}), ["lr 0.1 → 0.2"]),
        (({"beta": 0.1}, {"beta": 0.1, "top_p": 0.9}), ["top_p not set → 0.9"]),
        (({"beta": 0.1, "run_name": "a"}, {"run_name": "b"}), ["beta 0.1 → not set"]),
        (({"lr": 1}, {"lr": 1}, {"lr": 2}), ["lr: 1 (a and b), 2 (c)"]),
        (({"lr": 1}, {"lr": 2}, {}), ["lr: 1 (a), 2 (b), not set (c)"]),
    ],
)
def test_what_differs_among_runs(values: tuple[Mapping[str, Any], ...], expected: list[str]) -> None:
    """Each parameter that differs in any of them, also those of some alone; not the names of runs."""
    assert list(changed.among(list(zip("abc", values, strict=False)))) == expected


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return the directories of three runs; the last one trains on twice as many samples."""
    places = {}
    for name, slower in SLOWER.items():
        place = tmp_path_factory.mktemp("runs") / name
        samples = [{"reward": 0.5, "tokens": 10}] * (16 if name == "three" else 8)
        training = Played(
            phases=lambda step, _, slower=slower: {  # type: ignore[misc]
                phase: seconds * (slower if phase == "generate" else 1) * (1 + 0.01 * (step * 7 % 5))
                for phase, seconds in PHASES.items()
            },
            values=lambda step, _: {"reward": 0.3 + step / 100},
            tickets=lambda _, samples=samples: {"trained": samples},  # type: ignore[misc]
        )
        play(place, training, STEPS)
        manifest = json.loads((place / "run.json").read_text())
        (place / "run.json").write_text(json.dumps(manifest | {"id": name, "name": name}))
        places[name] = place
    return places


def test_a_column_for_each_run(runs: Mapping[str, Path]) -> None:
    """Each has its value and its difference from the base, and the sentences name it."""
    comparison = compare_each(open_run(runs["one"]), [open_run(runs["two"]), open_run(runs["three"])])
    head, rows = metrics_of(comparison)
    (times,) = (row for row in rows if row[0].startswith("step_time"))

    assert head == ("metric", "base", "two", "three")
    assert (times[2].endswith("(+12.0 %)"), times[3].endswith("(+30.0 %)")) == (True, True), times
    assert any(text.startswith(("three: Steps take", "three: Throughput")) for text in comparison.sentences)
    assert "samples of a step (measured): 8 (one and two), 16 (three)" in comparison.changes


def test_the_curves_have_a_color_for_each_run(runs: Mapping[str, Path]) -> None:
    """Three runs, three colors, and three labels with the same colors."""
    base, *new = map(open_run, runs.values())
    page = comparison_page(compare_each(base, new), [base], new)

    for number, name in enumerate(runs, 1):
        assert f'class="line-{number}"' in page
        assert f"({name}, {STEPS} steps)" in page.partition(f'class="key line-{number}"')[2].partition("</p>")[0]


def test_the_command(runs: Mapping[str, Path]) -> None:
    """Runs are columns; with `--against`, they are one side."""
    one, two, three = map(str, runs.values())
    text = CliRunner().invoke(main, ["compare", one, two, three, "--text"])
    each = CliRunner().invoke(main, ["compare", one, two, three, "--gate", "step_time:+20%", "--json"])
    sides = CliRunner().invoke(main, ["compare", one, two, "--against", three, "--json"])
    alone = CliRunner().invoke(main, ["compare", one])

    assert "METRIC" in text.stdout
    assert next(line for line in text.stdout.splitlines() if "METRIC" in line).split() == [
        "METRIC",
        "BASE",
        "two",
        "three",
    ]
    assert [column["run"]["name"] for column in json.loads(each.stdout)["columns"]] == ["three"]
    assert [gate["decision"] for gate in json.loads(each.stdout)["gates"]] == ["within", "beyond"]
    assert each.exit_code == 1
    assert (len(json.loads(sides.stdout)["base"]), len(json.loads(sides.stdout)["new"])) == (2, 1)
    assert alone.exit_code == 3


def test_a_quantity_of_one_run_that_is_zero(tmp_path: Path) -> None:
    """Fresh samples in one run do not differ from none recorded in the other."""
    samples = lambda step: {"trained": [{"policy_version": step, "reward": 0.5, "tokens": 10}] * 8}  # noqa: E731
    fresh, bare = play(tmp_path / "fresh", Played(tickets=samples), STEPS), play(tmp_path / "bare", Played(), STEPS)
    known = [RecordedRun(run) for run in (fresh, bare)]

    assert quantities(known[0])["staleness of samples (measured)"] == 0
    assert not any("staleness" in line for line in changed.among_runs(known))
