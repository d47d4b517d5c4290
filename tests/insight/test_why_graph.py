"""The graph of a step, whatever its spans are: the path has no holes, and ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from otel_rl.insight.why.causes import Causes
from otel_rl.insight.why.fold import fold
from otel_rl.insight.why.path import Replay, path_of
from otel_rl.insight.why.window import PARENT_IS_STEP, Spans, Taken, Who, Window, Work

WORKS = [
    *(Work("phase", name) for name in ("generate", "reward", "update_actor", "sync_weights", "wait")),
    *(Work("trajectory", "rl.trajectory"), Work("tool", "x"), Work("request", "y"), Work("span", "z")),
]
WHOS = [Who("", 0, ""), Who("", 1, ""), Who("rollout", 0, ""), Who("", -1, '{"service.name": "engine"}')]
BEGAN, ENDED = 100, 400

spans = st.tuples(
    st.integers(0, 500),  # begin
    st.integers(0, 300),  # duration
    st.integers(0, 3),  # step
    st.integers(0, len(WORKS) - 1),
    st.integers(0, len(WHOS) - 1),
    st.integers(PARENT_IS_STEP, 19),
)


def window(those: list[tuple[int, ...]], taken: list[tuple[int, int, int, int]]) -> Window:
    """Return a window of spans; parents may be in circles, or end before their children begin."""
    those = sorted(those, key=lambda one: (one[0], -one[1]))
    columns = np.array(those, np.int64).reshape(-1, 6).T
    parents = np.where(columns[5] < len(those), columns[5], PARENT_IS_STEP)
    trajectories = [n for n, one in enumerate(those) if WORKS[one[3]].kind == "trajectory"]
    groups = [
        Taken(step, rank, at, (trajectories[n % len(trajectories)],)) for step, rank, at, n in taken if trajectories
    ]
    found = Spans(columns[0], columns[0] + columns[1], columns[2], columns[3], columns[4], parents)
    return Window(2, 50, BEGAN, ENDED, found, WORKS, WHOS, groups)


@given(
    st.lists(spans, max_size=20),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(50, 450), st.integers(0, 19)), max_size=4),
    st.integers(0, 60),
)
@example([(110, 50, 2, 8, 0, 1), (120, 20, 2, 8, 0, 0)], [], 0)  # each is inside of the other one
@example([(110, 50, 2, 5, 2, 0)], [(2, 0, 200, 0)], 60)  # it is its own parent
def test_the_path_adds_up(those: list[tuple[int, ...]], taken: Any, slack: int) -> None:
    """From the begin of the step to its end, whatever spans there are; an unchanged replay takes the same time."""
    folded = fold(window(those, taken))
    causes = Causes(folded, "", slack, dict.fromkeys(WHOS, 2))
    hops = [hop for hop in path_of(causes, folded.inner) if hop.ended > BEGAN]
    covered = sum(hop.ended - max(BEGAN, hop.began) for hop in hops)
    replay = Replay(causes)

    assert covered == ENDED - BEGAN
    assert all(before.ended == after.began for before, after in pairwise(hops))
    assert slack or abs(replay.unchanged * 1e9 - (ENDED - BEGAN)) < 1
