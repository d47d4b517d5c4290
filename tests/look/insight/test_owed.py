"""The waits of a run, in sentences and as a table."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from otel_rl.look.insight.owed import Owed, owed
from otel_rl.look.terminal.debts import lines
from otel_rl.recorder.archive.now import PhaseNow, Wait
from tests.look.terminal.nows import S, hanging, process, wait, written
from tests.security.hostile import CONTROLS, NAMES


def said(directory: Path, *waits: Wait, **now: Any) -> Owed:
    return owed(written(directory, waits=waits, **now))


def untimed(sentences: tuple[str, ...]) -> list[str]:
    return [re.sub(r"\d\d:\d\d:\d\d", "12:04:07", sentence) for sentence in sentences]


def test_a_group(tmp_path: Path) -> None:
    """A step is owed groups: who samples them, what they do, and since when."""
    groups = [
        wait("rank 0", "group", f"prompt {n}", (f"rollout {n}",), doing=doing, step=812, groups=16, age_s=60 - n)
        for n, doing in enumerate(("tool pytest", "generate", "", "", "", ""))
    ]
    queue = wait("rank 0", "queue", "generate", ("rollout 0",), step=812)
    tool = wait("rollout 0", "tool", "tool pytest", group="prompt 0")

    assert untimed(said(tmp_path, queue, tool, *groups[:1]).sentences) == [
        "step 812 is owed 1 of 16 groups: prompt 0, rollout 0, tool pytest, since 12:04:07."
    ]
    assert untimed(said(tmp_path, queue, *groups).sentences) == [
        "step 812 is owed 6 of 16 groups: prompt 0, rollout 0, tool pytest, since 12:04:07; prompt 1, rollout 1, "
        "generate, since 12:04:07; prompt 2, rollout 2, since 12:04:07; and 3 more trajectories."
    ]


@pytest.mark.parametrize(
    ("recorded_wait", "sentence"),
    [
        (
            wait("rank 0", "request", "POST", ("engine:8000",), group="prompt 3"),
            "rank 0 waits for POST of prompt 3 from engine:8000, since 12:04:07.",
        ),
        (
            wait("rank 0", "collective", "update", ("rank 3", "rank 4", "rank 5", "rank 6"), step=3, waiters=12),
            "rank 0 and 11 others (step 3) wait for rank 3, rank 4, rank 5 and 1 more in update, since 12:04:07.",
        ),
        (
            wait("rank 0", "queue", "dequeue", ("rollout 0", "rollout 1"), is_any=True),
            "rank 0 waits for a trajectory of rollout 0 and rollout 1 in dequeue, since 12:04:07.",
        ),
        (
            wait("rank 0", "sync", "weight_sync", ("rollout 0",)),
            "rank 0 waits for rollout 0 to get its weights in weight_sync, since 12:04:07.",
        ),
        (wait("rank 0", "ticket", "take"), "rank 0 waits for somebody unknown in take, since 12:04:07."),
    ],
)
def test_each_kind(tmp_path: Path, recorded_wait: Wait, sentence: str) -> None:
    """Who waits, for what, of whom, since when."""
    assert untimed(said(tmp_path, recorded_wait).sentences) == [sentence]


def test_verdicts(tmp_path: Path) -> None:
    """Each reason is said once, of the wait that is nearest to it."""
    engine: dict[str, Any] = {"cause": "dead", "culprits": ("e:80",)}
    sentences = said(
        tmp_path,
        wait("rank 0", "queue", "generate", ("rollout 0",), age_s=90, **engine),
        wait("rollout 0", "request", "POST", ("e:80",), **engine),
        wait("rank 1", "ticket", "take", ("rollout 2",), cause="circle", culprits=("rank 1", "rollout 2")),
        wait("rank 2", "collective", "update", ("rank 3",), cause="ended", culprits=("rank 3",)),
    )

    assert untimed(sentences.verdicts) == [
        "rollout 0 waits in vain for POST from e:80, since 12:04:07: nobody listens at e:80 (1 other wait for the same "
        "reason).",
        "rank 1 waits in vain for rollout 2 in take, since 12:04:07: rank 1 and rollout 2 wait for each other in a "
        "circle.",
        "rank 2 waits in vain for rank 3 in update, since 12:04:07: rank 3 has ended.",
    ]
    assert sentences.sentences == ()


def test_runs_that_wait_for_nothing(tmp_path: Path) -> None:
    """They are well, or have ended; of an agent that is gone, the last state is shown."""
    over = [process(outcome="finished")]
    left = wait("rank 0", "tool", "tool pytest")

    assert said(tmp_path / "a").sentences == (
        "No process is known to wait for another one. If the run hangs, `otel-rl autopsy` looks at the stacks.",
    )
    assert said(tmp_path / "0", processes=[]).sentences == said(tmp_path / "a").sentences
    assert said(tmp_path / "b", processes=over).sentences == ("The run has ended (finished); nothing is owed.",)
    ended = "The run has ended ({}); this was open when its agents wrote last."
    assert said(tmp_path / "c", left, processes=over).sentences[0] == ended.format("finished")
    assert said(tmp_path / "d", left, time_unix_nano=1).sentences[0] == ended.format("lost")
    assert not said(tmp_path / "d", left, time_unix_nano=1).is_live


def test_a_phase_that_is_unusual(tmp_path: Path) -> None:
    """A rank that is far longer in its phase than usual is named at once; what never ended before is not unusual."""
    assert said(tmp_path / "a", processes=[process(usual_s=0.21)]).sentences[0] == (
        "Rank 0 is in generate for 31 s, 150 times its usual time (210 ms)."
    )
    assert "usual" not in said(tmp_path / "b", processes=[process(), process(1, usual_s=20.0)]).sentences[0]


def test_a_process_that_came_back(tmp_path: Path) -> None:
    """The end of its first life is not an end of the run; without a second one, the run has ended."""
    first = process(outcome="crashed", last_unix_nano=1)

    assert said(tmp_path / "a", processes=[first, process(pid=7)]).is_live
    assert said(tmp_path / "b", processes=[first]).sentences == ("The run has ended (crashed); nothing is owed.",)


def test_a_phase_that_hangs_and_is_unusual(tmp_path: Path) -> None:
    """It is said once, with how unusual it is."""
    long_ago = PhaseNow("generate", time.time_ns() - 4000 * S)
    ranks = [process(phases=(long_ago,), usual_s=41.0)]

    sentences = said(tmp_path, wait("rank 0", "tool", "pytest"), processes=ranks, stalled=hanging()).sentences

    assert [sentence for sentence in sentences if "is in generate" in sentence] == [
        "Rank 0 is in generate for 1 h 7 min, 98 times its usual time (41 s)."
    ]


def test_hostile_names(tmp_path: Path) -> None:
    """They cannot act on the terminal, and a line of the table is not wider than the screen."""
    sentences = said(tmp_path, *(wait(name, "tool", name, (name,), group=name, doing=name) for name in NAMES))
    drawn = lines(sentences, 80)

    assert not CONTROLS & set("".join(span.text for row in drawn for span in row))


def test_a_process_that_is_missing(tmp_path: Path) -> None:
    """It is named, whether or not anything recorded says who waits for it."""
    dead = process(1, host="node0", phases=(), outcome="failed", error="RuntimeError: no kernel\nsecond line")
    ranks = [process(0), dead]
    waits = wait("rank 0", "collective", "update", ("rank 1",), cause="dead", culprits=("rank 1",))

    assert untimed(said(tmp_path / "a", processes=ranks).sentences)[0] == (
        "Rank 1 failed with RuntimeError: no kernel at 12:04:07."
    )
    assert untimed(said(tmp_path / "b", wait("rank 0", "tool", "tool pytest"), processes=ranks).sentences)[0] == (
        "Rank 1 failed with RuntimeError: no kernel at 12:04:07."
    )
    assert said(tmp_path / "c", waits, processes=ranks).sentences == ()
