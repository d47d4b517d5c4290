"""Whether a run hangs, from what its agents wrote last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.archive.now import OpenPhase, Stalled, read_now
from otel_rl.insight import facts_of
from otel_rl.insight.hang import hang
from otel_rl.view.terminal.present import present_of
from tests.view.terminal.nows import S, process, written

if TYPE_CHECKING:
    from pathlib import Path

AT = 1_800_000_000 * S


def stalled(rank: int = 0, **changes: Any) -> Stalled:
    """Return a rank that hangs for 300 s, like all others."""
    usual: dict[str, Any] = {"kind": "hung", "scope": "job", "rank": rank, "host": "node0", "phase": "weight_sync"}
    return Stalled(**usual | {"since_unix_nano": AT - 300 * S, "deadline_s": 60.0} | changes)


@pytest.mark.parametrize(
    ("found", "hangs"),
    [
        ((stalled(),), True),
        ((stalled(kind="slow"),), False),
        ((stalled(scope="process"),), False),
        ((stalled(role="rollout", scope="process"), stalled()), True),
        ((), False),
    ],
)
def test_which_verdicts_make_a_run_hang(tmp_path: Path, found: tuple[Stalled, ...], *, hangs: bool) -> None:
    """One of the agent on the whole job: a slow run and one process are not a run that hangs."""
    place = written(tmp_path, stalled=found, time_unix_nano=AT)

    assert (hang(read_now(place.path), AT) is not None) is hangs


def test_a_verdict_of_an_agent_that_is_dead(tmp_path: Path) -> None:
    """It says nothing about the present."""
    place = written(tmp_path, stalled=(stalled(),), time_unix_nano=AT)

    assert hang(read_now(place.path), AT + 40 * S) is None


def test_all_viewers_say_the_same(tmp_path: Path) -> None:
    """The list, the terminal and the report have the state and the reason of one rule."""
    last = AT - 300 * S
    ranks = [
        process(rank, phases=(OpenPhase("generate" if rank else "weight_sync", last),), last_unix_nano=last)
        for rank in range(3)
    ]
    place = written(tmp_path / "r", processes=ranks, stalled=(stalled(),), time_unix_nano=AT)
    shown = present_of(place, AT)
    summary = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT).summary

    assert shown.reason == summary.reason == "rank 0 is in weight_sync for 5 min; the others wait in generate"
    assert shown.state == summary.state == "hung"
