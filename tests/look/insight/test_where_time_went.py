"""Shares and goodput of a run that hung: while the hang lasts, after it, and when the run was killed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from otel_rl.export import Hang
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.own_times import IN_STEPS, own_ns
from otel_rl.look.reader.runs import open_run
from otel_rl.look.terminal.past import present_of_archive
from otel_rl.recorder.archive.now import Now, place_of
from otel_rl.recorder.archive.runs import place_of as place_at
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.insight.played import BEGAN, PHASES, Played, Player, S

STEP = sum(PHASES.values())


def _phases(hangs_at: int) -> Played:
    """Return a training of two ranks of which rank 0 hangs for 15 minutes in `generate` of a step."""

    def phases(step: int, rank: int) -> dict[str, float]:
        hangs = step == hangs_at and rank == 0
        return {**PHASES, "generate": PHASES["generate"] + 900 * hangs}

    return Played(ranks=2, phases=phases, between=0)


def _hang(began: int, ended: int | None, *, found: int) -> Hang:
    ending: Literal["", "resumed"] = "" if ended is None else "resumed"
    who = (0, "", 0, "node1", 100, 4, "generate", "")
    return Hang(*who, began, found, "hung", "job", ended_unix_nano=ended, ending=ending)


def test_after_a_hang(tmp_path: Path) -> None:
    """Its 15 minutes are hung in shares and in goodput, on all ranks, and phases have the time that they took."""
    player = Player(tmp_path / "run", _phases(hangs_at=4))
    player.start()
    player.steps(range(5))
    began = BEGAN + round(4 * STEP * S) + 24 * S
    player.add(_hang(began, began + 900 * S, found=began + 60 * S))
    player.finish()
    facts = facts_of(player.open())
    shares = {share.name: share.share for share in facts.shares}
    whole = 5 * STEP + 900

    assert shares["hung"] == pytest.approx(900 / whole)
    assert shares["generate"] == pytest.approx(5 * PHASES["generate"] / whole, rel=0.01)
    assert sum(shares.values()) == pytest.approx(1)
    assert facts.goodput["hung"] == pytest.approx(900 / whole, rel=1e-3)
    assert facts.goodput["trained"] < 0.2
    assert sum(facts.goodput.values()) == pytest.approx(1)


def test_killed_while_it_hung(tmp_path: Path) -> None:
    """Its wall time until the death is hung. The step was not done, so that shares are those of the steps before it."""
    player = Player(tmp_path / "run", _phases(hangs_at=-1))
    player.start()
    player.steps(range(5))
    began = player.now
    player.step(5, dies={0: "generate"})
    player.now = began + 1000 * S
    player.add(_hang(began, began + 1000 * S, found=began + 60 * S))
    player.lose(0, 1)
    facts = facts_of(player.open())
    whole = 5 * STEP + 1000

    assert facts.goodput["hung"] == pytest.approx(1000 / whole, rel=1e-3)
    assert "hung" not in {share.name for share in facts.shares}
    assert sum(facts.goodput.values()) == pytest.approx(1)


def test_while_it_hangs(tmp_path: Path) -> None:
    """The step is open, and so is the hang: until now, its time is hung."""
    player = Player(tmp_path / "run", _phases(hangs_at=-1))
    player.start()
    player.steps(range(5))
    began = player.now
    player.step(5, dies={0: "generate"})
    player.add(_hang(began, None, found=began + 60 * S))
    run, at = player.open(), began + 1000 * S
    now = Now(
        time_unix_nano=at, id="run", project="grpo", name="baseline", pid=1, state="ready", processes=[], exporters=[]
    )
    place_of(tmp_path / "run", "local").write_bytes(msgspec.json.encode(now))
    facts = facts_of(run, at_unix_nano=at)
    whole = 5 * STEP + 1000

    assert facts.goodput["hung"] == pytest.approx(1000 / whole, rel=1e-3)
    assert "hung" not in {share.name for share in facts.shares}  # they are those of steps that have closed


def test_an_archive_without_own_times(tmp_path: Path) -> None:
    """The same function gives the same times from the spans of a run whose agent did not write them."""
    player = Player(tmp_path / "run", Played(ranks=3))
    player.start()
    player.steps(range(30))
    items = [*player.items]
    run = player.open()
    writer = ArchiveWriter(tmp_path / "other" / "archive" / "local", 1 << 60)
    for item in items:
        is_phase = getattr(item, "own_ns", None) is not None
        writer.add(msgspec.structs.replace(item, own_ns=None) if is_phase else item)
    writer.save(seals=True)
    (tmp_path / "other" / "run.json").write_bytes((tmp_path / "run" / "run.json").read_bytes())
    other = open_run(tmp_path / "other")
    query = "SELECT phase, sum({}) AS own FROM spans WHERE phase IS NOT NULL GROUP BY 1 ORDER BY 1"

    assert own_ns(run) == "own_ns" != own_ns(other, IN_STEPS)
    assert other.sql(query.format(own_ns(other)))["own"].tolist() == pytest.approx(
        run.sql(query.format("own_ns"))["own"].tolist()
    )
    assert [share.share for share in facts_of(other).shares] == pytest.approx(
        [share.share for share in facts_of(run).shares]
    )


def test_the_last_steps_of_a_run_without_an_agent(tmp_path: Path) -> None:
    """Their shares close, with the time outside of phases, as those that an agent writes."""
    player = Player(tmp_path / "run", Played(ranks=2))
    player.start()
    player.steps(range(30))
    player.finish()
    present = present_of_archive(place_at(tmp_path / "run"), player.now)

    assert sum(share.seconds for share in present.progress.recent_shares) == pytest.approx(2 * 20 * STEP)
