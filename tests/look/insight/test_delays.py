"""The delays of ranks that readers compute in SQL are those of the facts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl import semconv
from otel_rl.export import Span
from otel_rl.look.insight.delays import delays as in_sql
from otel_rl.recorder.facts.delay import delays
from tests.look.reader.test_reader import archived

_STAYS = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2)


@settings(max_examples=15, deadline=None)
@given(st.lists(_STAYS, min_size=1, max_size=3))
def test_readers_and_agent_agree(steps: list[dict[int, tuple[int, int]]]) -> None:
    """Of any ranks in any steps: of two, the earlier one is the measure, else the median."""
    items, expected = [], {}
    for step, stays in enumerate(steps):
        expected |= {
            (step, rank): delay
            for rank, delay in delays(
                {rank: (1 + came, 1 + came + took) for rank, (came, took) in stays.items()}
            ).items()
        }
        for rank, (came, took) in stays.items():
            for place, (phase, begin, end) in enumerate((("first", 0, 1), ("second", 1 + came, 1 + came + took))):
                who = {semconv.LOOP_ITERATION: step, semconv.RANK: rank, semconv.PHASE: phase}
                span = f"{step:04x}{rank:04x}{place:08x}"
                items.append(Span(phase, f"{step + 1:032x}", span, "", 1000 * rank + begin, 1000 * rank + end, who))
    with tempfile.TemporaryDirectory() as directory:
        run = otel_rl.open_run(archived(Path(directory) / "run", items))
        found = run.sql(f"SELECT step, rank, delay FROM ({in_sql('true')}) WHERE phase = 'second'")

    known = {
        (step, rank): delay for step, rank, delay in zip(*(found[name].tolist() for name in found.columns), strict=True)
    }
    assert known == pytest.approx(expected)
