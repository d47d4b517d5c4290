"""A tail is what the reader has of the steps behind a page, at each moment, or it has ended."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.export import Row
from otel_rl.look.page.steps import steps_of
from otel_rl.look.ui.run_tail import RunTail, place_in
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.look.reader.test_reader import NO_LIMIT, trainings
from tests.look.recorded import Shape, growing

Values = dict[int, dict[str, object]]


def tail_of(directory: Path) -> RunTail:
    """Return what follows from now on."""
    place = place_in(directory)
    return RunTail(steps_of(otel_rl.open_run(directory)), 0, place)


def followed(tail: RunTail) -> Values:
    """Return the values of the steps of a tail."""
    assert len(tail) >= 0
    found = tail.since(0, "")
    return {
        step: {name: column[at] for name, column in found.values.items() if column[at] is not None}
        for at, step in enumerate(found.steps)
    }


def recorded(directory: Path) -> Values:
    """Return the same of the reader."""
    rows = otel_rl.open_run(directory).rows()
    values: Values = defaultdict(dict)
    for step, name, value in zip(rows["step"].tolist(), rows["name"], rows["value"].tolist(), strict=True):
        values[step][name] = value if math.isfinite(value) else str(value).replace("nan", "NaN")
    return dict(values)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(trainings(), st.data())
def test_a_tail_is_what_the_reader_has(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[Row]], data: st.DataObject
) -> None:
    """While machines write one after the other, with attempts, late parts, NaN, and files that are merged."""
    directory = tmp_path_factory.mktemp("run")
    (directory / "run.json").write_text("{}")
    writers = {machine: ArchiveWriter(directory / ARCHIVE / machine, NO_LIMIT) for machine in rows}
    waiting = {machine: list(of_machine) for machine, of_machine in rows.items()}
    before, tail = recorded(directory), tail_of(directory)
    while any(waiting.values()):
        for machine in sorted(data.draw(st.sets(st.sampled_from(sorted(rows)), min_size=1))):
            for _ in range(data.draw(st.integers(1, 12))):
                if waiting[machine]:
                    writers[machine].add(waiting[machine].pop(0))
            writers[machine].save(seals=data.draw(st.booleans()))
        found, now = followed(tail), recorded(directory)
        if not tail.has_ended:
            assert {step: now[step] for step in found} == found
            assert {step: now[step] for step in now if step not in found} == {
                step: values for step, values in before.items() if step not in found
            }
        if data.draw(st.integers(0, 3)) == 0:
            before, tail = now, tail_of(directory)


def test_only_new_files_are_read(tmp_path: Path) -> None:
    """The next steps follow from the place that the browser has."""
    steps = growing(tmp_path, Shape(steps=9, ends=""))
    for _ in range(4):
        next(steps)
    tail = tail_of(tmp_path)
    assert len(tail) == 0
    next(steps)
    next(steps)
    assert len(tail) == 2
    later = tail.since(1, "digest")

    assert (later.of, later.first, later.steps) == ("digest", 1, (5,))
    assert later.values["reward"] == (recorded(tmp_path)[5]["reward"],)


def test_a_run_that_resumes_has_no_tail(tmp_path: Path) -> None:
    """Its page is read again: steps of the first attempt may be void."""
    steps = growing(tmp_path, Shape(steps=12, resumed_at=9, ends=""))
    for _ in range(9):
        next(steps)
    tail = tail_of(tmp_path)
    next(steps)

    assert (len(tail), tail.has_ended) == (0, True)
