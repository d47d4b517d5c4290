"""The graph of a step, whatever its spans are: the path has no holes, and ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from otel_rl.look.insight.why.causes import Causes
from otel_rl.look.insight.why.critical_path import StepReplay, path_of
from otel_rl.look.insight.why.folded_spans import fold
from otel_rl.look.insight.why.step_spans import (
    PARENT_IS_STEP,
    SpanColumns,
    SpanProcess,
    SpanWork,
    StepWindow,
    TakenTrajectories,
)

WORKS = [
    *(SpanWork("phase", name) for name in ("generate", "reward", "update_actor", "sync_weights", "wait")),
    *(SpanWork("trajectory", "rl.trajectory"), SpanWork("tool", "x"), SpanWork("request", "y"), SpanWork("span", "z")),
]
WHOS = [
    SpanProcess("", 0, ""),
    SpanProcess("", 1, ""),
    SpanProcess("rollout", 0, ""),
    SpanProcess("", -1, '{"service.name": "engine"}'),
]
BEGAN, ENDED = 100, 400

spans = st.tuples(
    st.integers(0, 500),  # begin
    st.integers(0, 300),  # duration
    st.integers(0, 3),  # step
    st.integers(0, len(WORKS) - 1),
    st.integers(0, len(WHOS) - 1),
    st.integers(PARENT_IS_STEP, 19),
)


def window(made: list[tuple[int, ...]], taken: list[tuple[int, int, int, int]]) -> StepWindow:
    """Return a window of spans; parents may be in circles, or end before their children begin."""
    made = sorted(made, key=lambda line: (line[0], -line[1]))
    columns = np.array(made, np.int64).reshape(-1, 6).T
    parents = np.where(columns[5] < len(made), columns[5], PARENT_IS_STEP)
    trajectories = [n for n, line in enumerate(made) if WORKS[line[3]].kind == "trajectory"]
    groups = [
        TakenTrajectories(step, rank, at, (trajectories[n % len(trajectories)],))
        for step, rank, at, n in taken
        if trajectories
    ]
    spans = SpanColumns(columns[0], columns[0] + columns[1], columns[2], columns[3], columns[4], parents)
    return StepWindow(2, 50, BEGAN, ENDED, spans, WORKS, WHOS, groups)


@given(
    st.lists(spans, max_size=20),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(50, 450), st.integers(0, 19)), max_size=4),
    st.integers(0, 60),
)
@example([(110, 50, 2, 8, 0, 1), (120, 20, 2, 8, 0, 0)], [], 0)  # each is inside of the other one
@example([(110, 50, 2, 5, 2, 0)], [(2, 0, 200, 0)], 60)  # it is its own parent
def test_the_path_adds_up(made: list[tuple[int, ...]], taken: Any, slack: int) -> None:
    """From the begin of the step to its end, whatever spans there are; an unchanged replay takes the same time."""
    folded = fold(window(made, taken))
    causes = Causes(folded, "", slack, dict.fromkeys(WHOS, 2))
    hops = [hop for hop in path_of(causes, folded.inner) if hop.ended > BEGAN]
    covered = sum(hop.ended - max(BEGAN, hop.began) for hop in hops)
    replay = StepReplay(causes)

    assert covered == ENDED - BEGAN
    assert all(before.ended == after.began for before, after in pairwise(hops))
    assert slack or abs(replay.unchanged * 1e9 - (ENDED - BEGAN)) < 1
