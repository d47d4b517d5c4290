"""Lines that were printed in slow steps, and hardly in others, are named with their counts."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import LogRecord
from otel_rl.look.insight.why.slow_lines import slow_lines
from otel_rl.look.insight.why.slow_steps import StepWall
from otel_rl.recorder.archive.writer import ArchiveWriter

_S = 1_000_000_000
_AT = 1_790_000_000 * _S
_SLOW = range(5, 100, 10)
_GC = "full collection took {} ms"


def said(
    place: Path, lines: Mapping[str, Collection[int]], slow: Collection[int] = _SLOW, steps: int = 100
) -> list[str]:
    """Return what is said of a run whose rank 0 printed lines in steps; `{}` in a line is a number of its own."""
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps({"id": "i", "project": "p", "name": "n"}))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    printed = sorted((step, text) for text, of_steps in lines.items() for step in of_steps)
    for number, (step, text) in enumerate(printed):
        at = _AT + step * _S + number
        writer.add(LogRecord(0, at, "", 0, "node1", number, "stdout", text.format(number), step=step))
    writer.save(seals=True)
    walls = [StepWall(step, _AT + step * _S, _AT + (step + 1) * _S) for step in range(steps)]
    return slow_lines(otel_rl.open_run(place), walls, [wall for wall in walls if wall.step in slow])


def test_a_line_of_slow_steps(tmp_path: Path) -> None:
    """Lines that differ in numbers are one; how often it came in slow steps and in others is said."""
    every = range(100)
    lines = said(tmp_path / "r", {"step done in {} s": every, _GC: [2, *_SLOW[1:]], "saved": range(0, 100, 7)})

    assert lines == ["In 9 of 10 slow steps, and in 1 of 90 others, rank 0 printed: full collection took 19 ms"]


@pytest.mark.parametrize("of_steps", [range(100), range(0, 100, 3), [5], range(60)])
def test_a_line_of_others_too(tmp_path: Path, of_steps: Collection[int]) -> None:
    """Of a line that comes in all steps, in a third of them, in one, or in a row of them, nothing is said."""
    assert said(tmp_path / "r", {_GC: of_steps}) == []


@pytest.mark.parametrize(("others", "is_said"), [(0, True), (20, False)])
def test_one_slow_step(tmp_path: Path, others: int, *, is_said: bool) -> None:
    """A line that came once, in the only slow step of 300, is named, unless many different lines came once."""
    rare = {f"{'x' * (n + 1)} came": [n + 20] for n in range(others)}
    lines = said(tmp_path / "r", {_GC: [150], **rare}, slow=[150], steps=300)

    expected = ["In the slow step, and in no other one, rank 0 printed: full collection took 0 ms"]
    assert [line.replace(f" {others} ms", " 0 ms") for line in lines] == (expected if is_said else [])


def test_by_chance(tmp_path: Path) -> None:
    """Of 60 runs whose 20 different lines come by chance, lines are named in one at most."""
    false = 0
    for seed in range(60):
        lot = random.Random(seed)
        lines = {f"{'y' * (n + 1)} {{}}": [s for s in range(100) if lot.random() < 0.05 * (n + 1)] for n in range(20)}
        false += bool(said(tmp_path / f"{seed}", lines))
    assert false <= 1
