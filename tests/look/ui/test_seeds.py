"""Runs that differ in their seed alone, and tokens as the axis of an overlay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Item, Params, Row
from otel_rl.look.ui.overlay import OverlaidRun, overlay
from otel_rl.look.ui.range_cache import RangeCache
from otel_rl.look.ui.seeds import LinePoints, as_band, of_same_seeds
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.ui.test_overlay import numbers

_S = 1_000_000_000


def recorded(path: Path, values: dict[str, list[float]]) -> OverlaidRun:
    """Record a run with values by step."""
    path.mkdir()
    (path / "run.json").write_text('{"id": "x", "project": "p", "name": "n"}')
    writer = ArchiveWriter(path / "archive" / "local", 1 << 40)
    items: list[Item] = [Params(_S, {"seed": 1})]
    steps = zip(*values.values(), strict=True)
    items += [Row(n, n * _S, dict(zip(values, step, strict=True))) for n, step in enumerate(steps)]
    for item in items:
        writer.add(item)
    writer.save(seals=True)
    return OverlaidRun(path.name, path)


def test_runs_that_differ_in_their_seed_alone() -> None:
    """Names of seeds are those of all frameworks; a run without a seed or without parameters is alone."""
    same = of_same_seeds(
        {
            "a": {"lr": 1, "seed": 1, "data.seed": 1},
            "b": {"seed": 2, "data.seed": 7, "lr": 1},
            "c": {"lr": 2, "seed": 1, "data.seed": 1},
            "d": {"lr": 1},
            "e": {"lr": 1},
            "f": {},
            "g": {},
            "h": {"lr": 1, "seeds_per_prompt": 1},
            "i": {"lr": 1, "seeds_per_prompt": 2},
        }
    )

    assert same == {key: "a" if key == "b" else key for key in "abcdefghi"}


def test_seeds_as_a_band(tmp_path: Path) -> None:
    """A line has the mean of its runs, between their lowest and highest value, and how many they are."""
    runs = [recorded(tmp_path / name, {"loss": [1.0 * n, 2.0 * n]}) for n, name in enumerate("abc", 1)]
    answer = overlay(RangeCache(), runs, ["loss"], "step", bands={"a": "a", "b": "a", "c": "c"})
    band, alone = answer["lines"]

    assert (band["run"], band["of"], alone["run"], alone["of"]) == (0, 2, 2, 1)
    assert [numbers(band[part]).tolist() for part in ("low", "values", "high")] == [[1, 2], [1.5, 3], [2, 4]]
    assert alone["low"] is None


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), min_size=1, max_size=5))
def test_a_band_holds_its_runs(values: list[list[float]]) -> None:
    """Where a run has a value, it is within the band, and the mean is too."""
    lines = [LinePoints(np.arange(len(line), dtype=float), *[np.array(line)] * 3) for line in values]
    band = as_band(lines)

    assert (band.low <= band.mean + 1e-6).all()
    assert (band.mean <= band.high + 1e-6).all()
    for line in lines:
        at = np.searchsorted(band.xs, line.xs)
        assert (band.low[at] <= line.mean).all()
        assert (line.mean <= band.high[at]).all()


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("perf/total_num_tokens", [10.0, 20.0, 5.0], [10, 30, 35]),  # of each step
        ("num_tokens", [10.0, 30.0, 35.0], [10, 30, 35]),  # since the start
    ],
)
def test_over_tokens(tmp_path: Path, name: str, values: list[float], expected: list[float]) -> None:
    """The axis has the tokens since the start, whichever way the framework counts them."""
    run = recorded(tmp_path / "a", {"loss": [3.0, 2.0, 1.0], name: values})
    answer = overlay(RangeCache(), [run], ["loss"], "tokens")
    (line,) = answer["lines"]

    assert numbers(answer["axes"][line["axis"]]).tolist() == expected
    assert numbers(line["values"]).tolist() == [3, 2, 1]
    assert answer["runs"][0]["last"] == 35


def test_a_run_without_tokens(tmp_path: Path) -> None:
    """It has no points over tokens: nothing is drawn as zero."""
    run = recorded(tmp_path / "a", {"loss": [3.0, 2.0]})
    answer = overlay(RangeCache(), [run], ["loss"], "tokens")

    assert [numbers(line["values"]).tolist() for line in answer["lines"]] == [[]]
    assert answer["runs"][0]["last"] == 0
