"""The state of a run and how far it is: the same from `now.json` as from the tables of the archive."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import otel_rl
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.state import extent_of, standing
from otel_rl.recorder.archive.now import machines_of, place_of
from otel_rl.recorder.facts.outcome import outcome_sentence
from tests.look.test_recorded_runs import copied
from tests.look.truth.construction import made
from tests.look.truth.drawn import Ending, Recipe
from tests.look.truth.generator import write

_ENDED = ("finished", "failed", "cancelled", "killed idle", "killed in a phase")


class Said(NamedTuple):
    """The facts that are compared."""

    standing: object
    steps: int
    resumed_at: tuple[int, ...]
    before: object
    sentence: str


def said(run: Path, at: int) -> Said:
    recorded = RecordedRun(otel_rl.open_run(run), at)
    stands, extent = standing(recorded), extent_of(recorded)
    return Said(stands, extent.steps, extent.resumed_at, extent.before, outcome_sentence(stands, extent, at))


def without_reports(run: Path, at: int) -> Said:
    """Return the same once nothing is left of what the agents wrote for viewers."""
    for machine in machines_of(run):
        place_of(run, machine).unlink()
    return said(run, at)


@pytest.mark.parametrize("kind", ["finished", "crashed", "resumed", "failed", "hung", "thinned", "head/node1"])
def test_runs_of_an_earlier_version(tmp_path: Path, kind: str) -> None:
    """The same state for the same reason; earlier agents did not write when processes ended, nor what was before."""
    run = copied(kind, tmp_path)
    reported, recorded = said(run, 0), without_reports(run, 0)

    assert reported.standing == recorded.standing
    assert (reported.steps, reported.resumed_at) == (recorded.steps, recorded.resumed_at)


@pytest.mark.parametrize("ending", _ENDED)
@pytest.mark.parametrize("where", ["one machine", "apart"])
def test_drawn_runs(tmp_path: Path, ending: Ending, where: str) -> None:
    """The same state, reason, steps and sentence, also of a run that was resumed."""
    drawn = made(Recipe(ending, seed=3, ranks=3, steps=9, where=where, repeats=2))  # type: ignore[arg-type]
    write(drawn, tmp_path / "run")

    assert said(tmp_path / "run", drawn.now) == without_reports(tmp_path / "run", drawn.now)
