"""How often otel-rl names the cause of trouble in labelled scenarios, and accuses healthy programs.

Run with `python -m benchmarks verdicts`, on request only, since each scenario takes 10 to 80 s. `--jobs N` runs N
scenarios at the same time; most of their time is waiting, but each is a load for the others.
`VERDICTS_DIR=DIRECTORY` keeps there what was said.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.tables import Cell, Table
from benchmarks.verdicts import catalogue
from benchmarks.verdicts.running import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.verdicts.catalogue import Part
    from benchmarks.verdicts.judge import Judgment
    from benchmarks.verdicts.labels import Form, Kind, Scenario

KINDS: tuple[Kind, ...] = ("hang", "death", "slow", "ill", "lie")
_HEAD = ["kind", "scenarios", "right", "partly", "silent", "wrong", "broken", "median s to the verdict"]
_NOTE = (
    "Seconds are from the moment that the trouble began, or from the end of the program, to the first right statement."
)


def measure(*, part: Part = "open", only: str = "", plain: bool = False, load: int = 0, jobs: int = 1) -> list[Table]:
    """Return grades by kind, and what was said in each scenario that was not right."""
    chosen = [one for one in catalogue.of("all" if only else part) if not only or one.name in only.split(",")]
    form: Form = "plain" if plain else "calls"
    with tempfile.TemporaryDirectory() as temporary, busy(load), ThreadPoolExecutor(jobs) as pool:
        place = Path(os.environ.get("VERDICTS_DIR", temporary))
        places = [place / f"{scenario.name}-{form}" for scenario in chosen]
        grades = list(pool.map(_tried, chosen, [form] * len(chosen), places))
    calls = "without any calls" if plain else "with the recommended calls"
    how = f"{calls}, {jobs} scenarios and {load} busy processes at the same time"
    return [_by_kind(chosen, grades, f"Scenarios of the part {part}, {how}"), _deviations(grades)]


def _tried(scenario: Scenario, form: Form, place: Path) -> Judgment:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    judgment = Trial(scenario, form, place).run()
    print(f"{scenario.kind} {scenario.name}: {judgment.grade} {judgment.said[:300]}", file=sys.stderr, flush=True)
    return judgment


def _by_kind(scenarios: Sequence[Scenario], grades: Sequence[Judgment], title: str) -> Table:
    rows: list[list[Cell]] = []
    pairs = list(zip(scenarios, grades, strict=True))
    for kind in (*KINDS, "all"):
        found = [one for scenario, one in pairs if scenario.kind == kind or (kind == "all" and scenario.kind in KINDS)]
        counts = Counter(one.grade for one in found)
        seconds = [one.seconds for one in found if one.seconds is not None]
        middle = statistics.median(seconds) if seconds else None
        cells = [counts[grade] for grade in ("right", "partly", "silent", "wrong", "broken")]
        rows.append([kind, len(found), *cells, middle])
    controls = [one for scenario, one in pairs if scenario.kind == "control"]
    accused = sum(one.grade == "accused" for one in controls)
    broken = sum(one.grade == "broken" for one in controls)
    return Table(title, _HEAD, rows, f"{accused} of {len(controls)} healthy controls accused, {broken} broken. {_NOTE}")


def _deviations(grades: Sequence[Judgment]) -> Table:
    rows: list[list[Cell]] = [
        [one.scenario, one.grade, one.said[:160].replace("|", "/").replace("\n", " ")]
        for one in grades
        if one.grade not in {"right", "quiet"}
    ]
    return Table("The statements that decided where the answer was not right", ["scenario", "grade", "said"], rows)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
