"""Values in ranges of steps are those of the reader at each moment, whatever happened to the run and its files."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.export import Row
from otel_rl.look.ui import plain_ranges, run_ranges, step_ranges
from otel_rl.look.ui.range_cache import RangeCache
from otel_rl.look.ui.run_ranges import RunRanges
from otel_rl.look.ui.step_ranges import read_ranges
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.look.reader.test_reader import NO_LIMIT, VALUES, archived, trainings

NAMES = ("loss", "reward", "time/step", "weiß 'x'", "[0]*")


def expected(directory: Path, every: int) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return lowest, highest, mean, and how many are not finite, by name and range, of what the reader has."""
    rows = otel_rl.open_run(directory).rows()
    ranges: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for name, step, value in zip(rows["name"], rows["step"].tolist(), rows["value"].tolist(), strict=True):
        ranges[name, step // every].append((step, value))
    return {place: _summed_up(values) for place, values in ranges.items()}


def _summed_up(values: list[tuple[int, float]]) -> tuple[Any, ...]:
    finite = [value for _, value in values if math.isfinite(value)]
    bad = [step for step, value in values if not math.isfinite(value)]
    edges = (min(finite), max(finite)) if finite else (math.nan, math.nan)
    return (*edges, len(finite), len(bad), min(bad, default=-1))


def found(run: RunRanges) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the same of ranges."""
    return {
        (name, bucket): (low, high, number, bad, bad_at)
        for name, ranges in run.values.items()
        for bucket, low, high, _, number, bad, bad_at in zip(*(column.tolist() for column in ranges), strict=True)
    }


def same(one: dict[Any, tuple[Any, ...]], other: dict[Any, tuple[Any, ...]]) -> bool:
    """Return whether both are the same, NaN for NaN."""
    return one.keys() == other.keys() and all(np.array_equal(one[at], other[at], equal_nan=True) for at in one)


@st.composite
def plain(draw: st.DrawFn) -> dict[str, list[Row]]:
    """Return the rows of one attempt on one machine, in whose end something late may come."""
    steps = sorted(draw(st.sets(st.integers(0, 300), min_size=4, max_size=40)))
    values = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=draw(st.integers(0, 1)), max_size=4)
    rows = [Row(step, 50 + step, draw(values), 1, measured=("time/step",)) for step in steps]
    late = Row(draw(st.sampled_from(steps)), 400, {"loss": 1.0}, 1, late=True, part=1)
    return {"local": [*rows, late] if draw(st.booleans()) else rows}


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(trainings() | plain(), st.data())
def test_ranges_are_what_the_reader_has(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[Row]], data: st.DataObject
) -> None:
    """While machines write one after the other, with attempts, late parts, NaN, merged, damaged and lost files."""
    directory, cache = tmp_path_factory.mktemp("run"), RangeCache(tmp_path_factory.mktemp("cache"))
    writers = {machine: ArchiveWriter(directory / ARCHIVE / machine, NO_LIMIT) for machine in rows}
    waiting = {machine: list(of_machine) for machine, of_machine in rows.items()}
    known = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_ranges, "_MOST", data.draw(st.sampled_from((2, 5, 2048))))
        (directory / "run.json").write_text("{}")
        while any(waiting.values()):
            for machine in sorted(data.draw(st.sets(st.sampled_from(sorted(rows)), min_size=1))):
                for _ in range(data.draw(st.integers(1, 12))):
                    if waiting[machine]:
                        writers[machine].add(waiting[machine].pop(0))
                writers[machine].save(seals=data.draw(st.booleans()))
            if data.draw(st.integers(0, 5)) == 0:
                _harm(directory, data)
            asked = data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
            known = read_ranges(directory, asked, known)
            now = expected(directory, known.every)

            assert same(found(known), {place: value for place, value in now.items() if place[0] in known.values})
            assert {*known.names} == {name for name, _ in now}
            assert same(found(cache.ranges("key", directory, asked)), found(known))


def _harm(directory: Path, data: st.DataObject) -> None:
    """Cut or remove a file with values or lines of steps."""
    written = sorted((directory / ARCHIVE).rglob("*.parquet"))
    file = data.draw(st.sampled_from(written)) if written else None
    if file is None:
        return
    if data.draw(st.booleans()):
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])


def test_means(tmp_path: Path) -> None:
    """The mean of a range is that of its finite values."""
    archived(tmp_path, [Row(n, n, {"x": float(n) if n % 7 else math.nan}) for n in range(5000)])
    ranges = read_ranges(tmp_path, ["x"])
    values = ranges.values["x"]

    assert ranges.every == 4
    assert (values.total / values.number)[:3].tolist() == [2.0, 5.0, 9.5]
    assert values.bad.sum() == len(range(0, 5000, 7))


def test_only_what_has_changed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was resumed and goes on, the ranges of its new steps are read."""
    writer = ArchiveWriter(tmp_path / ARCHIVE / "local", NO_LIMIT)
    (tmp_path / "run.json").write_text("{}")
    for step in range(100):
        writer.add(Row(step, step, {"x": float(step)}, attempt=step // 50))
    writer.save()
    first = read_ranges(tmp_path, ["x"])
    asked: list[str] = []
    monkeypatch.setattr(step_ranges, "_values", lambda *args: asked.append(args[-1]) or _VALUES(*args))

    assert read_ranges(tmp_path, ["x"], first) is first
    writer.add(Row(100, 100, {"x": 5.0}, attempt=1))
    writer.save()
    after = read_ranges(tmp_path, ["x"], first)
    assert asked[0] == "step BETWEEN 100 AND 100"
    assert after.values["x"].high.tolist() == [*map(float, range(100)), 5.0]


def test_only_new_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run with a plain history that goes on, its first and last file are, for its extent, and those between."""
    writer = ArchiveWriter(tmp_path / ARCHIVE / "local", NO_LIMIT)
    (tmp_path / "run.json").write_text("{}")
    for step in range(30):
        writer.add(Row(step, step, {"x": float(step)}))
        if step % 10 == 9:
            writer.save(seals=True)
    first = read_ranges(tmp_path, ["x"])
    seen: list[int] = []
    monkeypatch.setattr(plain_ranges, "_rows_in", lambda file: seen.append(file.first) or _ROWS_IN(file))
    monkeypatch.setattr(step_ranges, "open_run", None)
    for step in range(30, 33):
        writer.add(Row(step, step, {"x": 5.0}))
        writer.save()
    after = read_ranges(tmp_path, ["x"], first)

    assert {*seen} == {0, 30, 31, 32}
    assert after.values["x"].high.tolist() == [*map(float, range(30)), 5.0, 5.0, 5.0]
    assert after.steps.last.tolist() == [*range(33)]


def test_plain_histories_are_what_a_query_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges, places on the axes, and the order of the names."""
    values = [{"b": float(n), "a": -n / 3, "kl": math.inf if n % 9 == 0 else 0.5} for n in range(5000)]
    archived(tmp_path, [Row(3 * n, 10**9 * n, of, measured=("kl",)) for n, of in enumerate(values)])
    plain = read_ranges(tmp_path, NAMES)
    monkeypatch.setattr(step_ranges, "plain_ranges", lambda *_: None)
    queried = read_ranges(tmp_path, NAMES)

    assert plain.history is not None
    assert queried.history is None
    assert plain[1:3] == queried[1:3]
    assert plain.names == queried.names == ("b", "a", "kl")
    assert plain.values.keys() == queried.values.keys()
    for name, ranges in plain.values.items():
        np.testing.assert_allclose(ranges, queried.values[name], rtol=1e-12)
    np.testing.assert_allclose(plain.steps.seconds, queried.steps.seconds)
    np.testing.assert_array_equal(plain.steps[2:4], queried.steps[2:4])


_ROWS_IN = plain_ranges._rows_in
_VALUES = step_ranges._values


def test_a_cache_of_another_server(tmp_path: Path) -> None:
    """A second server reads no values that the first one has left, and a file of the cache that is cut is none."""
    run, kept = archived(tmp_path / "run", [Row(n, n, {"x": float(n)}) for n in range(9)]), tmp_path / "cache"
    kept.mkdir()
    first = RangeCache(kept).ranges("key", run, ["x"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_ranges, "plain_ranges", None)
        patch.setattr(step_ranges, "open_run", None)
        again = RangeCache(kept).ranges("key", run, ["x"])
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-100])

    assert same(found(again), found(first))
    assert again.names == first.names
    assert same(found(RangeCache(kept).ranges("key", run, ["x"])), found(first))
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_run_without_an_archive(tmp_path: Path) -> None:
    """Its rows are read as the reader reads them, also when more come."""
    lines = [f'{{"step": {n}, "values": {{"x": {n}.5}}}}\n' for n in range(4)]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / files.ROWS_FILE).write_text("".join(lines[:2]))
    first = read_ranges(tmp_path, ["x"])
    (tmp_path / files.ROWS_FILE).write_text("".join(lines))
    after = read_ranges(tmp_path, ["x"], first)

    assert same(found(after), expected(tmp_path, after.every))
