"""Whether a run hangs, from what its agents wrote last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.archive.now import OpenPhase, read_now
from otel_rl.insight import facts_of
from otel_rl.insight.hang import hang
from otel_rl.view.terminal.present import present_of
from tests.view.terminal.nows import S, process, progress, written

if TYPE_CHECKING:
    from pathlib import Path

AT = 1_800_000_000 * S
LONGEST = {"generate": 20.0, "weight_sync": 2.0, "": 40.0}


@pytest.mark.parametrize(
    ("phase", "silent", "longest", "hangs"),
    [
        ("generate", 50, {"generate": 0.1}, False),
        ("generate", 70, {"generate": 0.1}, True),
        ("generate", 90, LONGEST, False),
        ("generate", 110, LONGEST, True),
        ("", 190, LONGEST, False),
        ("", 210, LONGEST, True),
        ("evaluate", 1700, LONGEST, False),
        ("evaluate", 1900, LONGEST, True),
        ("generate", 1700, {}, False),
    ],
)
def test_how_long_is_too_long(
    tmp_path: Path, phase: str, silent: int, longest: dict[str, float], *, hangs: bool
) -> None:
    """The longest time of the open phase decides; 60 s are the least, and 30 min count if it never ended."""
    last = AT - silent * S
    phases = (OpenPhase(phase, last),) if phase else ()
    ranks = [process(rank, phases=phases, last_unix_nano=last) for rank in range(2)]
    place = written(tmp_path, processes=ranks, progress=progress(longest=longest), time_unix_nano=AT)

    assert (hang(read_now(place.path), AT) is not None) is hangs


def test_one_rank_records(tmp_path: Path) -> None:
    """Then the run does not hang, whatever the others do."""
    ranks = [process(rank, last_unix_nano=AT - silent * S) for rank, silent in enumerate((4000, 4000, 30))]
    place = written(tmp_path, processes=ranks, progress=progress(longest=LONGEST), time_unix_nano=AT)

    assert hang(read_now(place.path), AT) is None


def test_all_viewers_say_the_same(tmp_path: Path) -> None:
    """The list, the terminal and the report have the state and the reason of one rule."""
    last = AT - 300 * S
    ranks = [
        process(rank, phases=(OpenPhase("generate" if rank else "weight_sync", last),), last_unix_nano=last)
        for rank in range(3)
    ]
    place = written(tmp_path / "r", processes=ranks, progress=progress(longest=LONGEST), time_unix_nano=AT)
    shown = present_of(place, AT)
    summary = facts_of(otel_rl.open_run(place.path), at_unix_nano=AT).summary

    assert shown.reason == summary.reason == "rank 0 is in weight_sync for 5 min; the others wait in generate"
    assert shown.state == summary.state == "hung"
