"""Files of exporters that are removed, replaced or cut while the run goes on: nothing that the outbox has is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import Ended, Gone, Item, Machine, Row, RunInfo
from otel_rl.recorder.agent.repair.release import Release
from otel_rl.recorder.delivery.outbox import released_items
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.segments import START
from otel_rl.recorder.journal.writer import Writer
from tests.collector import wait_for
from tests.delivering import Agents
from tests.exporters.every import needs_packages
from tests.processes import remove, rows_of
from tests.trackers import CURVES, trackio_database

pytestmark = pytest.mark.slow


def replace(path: Path) -> None:
    """Put something else in its place, as an editor and `sed -i` do; the old one lives on elsewhere."""
    path.rename(path.with_name(f"{path.name}.old"))
    path.mkdir() if path.with_name(f"{path.name}.old").is_dir() else path.touch()


def cut(path: Path) -> None:
    """Empty a file, or all files in a directory, in their places."""
    for file in [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]:
        os.truncate(file, 0)


ACCIDENTS = [remove, replace, cut]


def row(n: int) -> Row:
    """Return the row of a step."""
    return Row(n, 10**18 + n * 10**9, {"a": float(n)})


def steps(place: Path, tracker: str = "jsonl") -> list[int]:
    """Return the steps that a tracker shows."""
    return [step for step, _ in CURVES[tracker](place, "a")]


FILES = {
    "jsonl": ("rows.jsonl", ACCIDENTS),
    "tensorboard": ("tensorboard", ACCIDENTS),
    "wandb": ("wandb", [remove, replace]),
    "mlflow": ("mlflow.db", [remove]),
    "swanlab": ("swanlab", [remove]),
    "trackio": ("", [remove]),
}
"""The file or directory of each tracker, and the accidents that it may have."""


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("tracker", "accident"),
    [
        pytest.param(tracker, accident, marks=needs_packages(tracker))
        for tracker, (_, accidents) in FILES.items()
        for accident in accidents
    ],
)
def test_files_of_a_tracker_are_made_again(agents: Agents, tracker: str, accident: Callable[[Path], None]) -> None:
    """Rows before and after the accident are there, each once; the accident is counted and reported."""
    agents.start(tracker)
    agents.put(*(row(n) for n in range(5)), Machine(1, 10**18, {"gpu": 1.0}))
    path = agents.place / FILES[tracker][0] if FILES[tracker][0] else trackio_database(agents.place)
    accident(path)
    agents.put(*(row(n) for n in range(5, 8)))
    agents.end()

    assert sorted(steps(agents.place, tracker)) == list(range(8))
    assert agents.thread.causes == {"gone": 1}
    assert str(path) in agents.thread.last_error


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_file_that_goes_after_the_last_row_is_made_again(agents: Agents, accident: Callable[[Path], None]) -> None:
    """The end of the exporter notices it."""
    agents.start("jsonl")
    agents.put(*(row(n) for n in range(5)))
    accident(agents.place / "rows.jsonl")
    agents.end()

    assert steps(agents.place) == list(range(5))


def test_the_file_of_measurements_is_made_again(agents: Agents) -> None:
    """It goes alone: the rows stay as they are."""
    agents.start("jsonl")
    agents.put(row(1), Machine(1, 10**18, {"gpu": 1.0}))
    (agents.place / "machine.jsonl").unlink()
    agents.put(row(2), Machine(2, 10**18, {"gpu": 1.0}))
    agents.end()

    assert steps(agents.place) == [1, 2]
    assert len((agents.place / "machine.jsonl").read_text().splitlines()) == 2


def test_a_copy_in_its_place_is_continued(agents: Agents) -> None:
    """An editor replaced the file by one with a row less: that row comes back, the others stay where they are."""
    agents.start("jsonl")
    agents.put(*(row(n) for n in range(5)))
    path = agents.place / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.unlink()
    path.write_text("".join(lines[:2] + lines[3:]))
    agents.put(row(5))
    agents.end()

    assert sorted(steps(agents.place)) == list(range(6))
    assert path.read_text().startswith("".join(lines[:2] + lines[3:]))


def test_a_cleaner_that_removes_again_and_again_loses_nothing(agents: Agents) -> None:
    """Whoever removes the file three times gets all rows at the end."""
    agents.start("jsonl")
    for n in range(4):
        agents.put(row(n))
        if n < 3:
            (agents.place / "rows.jsonl").unlink()
    agents.end()

    assert steps(agents.place) == list(range(4))
    assert agents.thread.causes == {"gone": 3}


def test_what_the_outbox_has_no_more_is_told(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows were removed from the outbox when they were delivered: all others are written again."""
    monkeypatch.setattr(Writer.__init__, "__kwdefaults__", {"segment_bytes": 10_000, "limit_bytes": 1 << 30})
    agents.start("jsonl")
    for n in range(300):
        agents.outbox.append([row(n)], b"\xc0")
    wait_for(lambda: agents.thread.delivered >= agents.outbox.end, "not all is delivered")
    Release(agents.outbox, agents.place / "local" / "cursors", None, 0).look(["jsonl.json"])
    (agents.place / "rows.jsonl").unlink()
    agents.put(row(300))
    agents.end()

    removed = released_items(agents.place / "local" / "outbox")
    assert 100 < removed < 300
    assert steps(agents.place) == list(range(removed, 301))
    assert f"without the run's first {removed} item(s)" in agents.thread.last_error
    assert (agents.thread.progress.damaged, agents.thread.progress.retained) == (0, 0)


def test_how_the_run_ended_is_shown_again(agents: Agents) -> None:
    """The new file has the end of the run in it."""
    agents.start("jsonl")
    agents.put(row(1), Ended(10**18, 0, "failed", "ValueError: x", 1))
    (agents.place / "rows.jsonl").unlink()
    (agents.place / "run.end.json").unlink()
    agents.end()

    assert json.loads((agents.place / "run.end.json").read_bytes())["outcome"] == "failed"


def test_a_run_directory_that_was_removed_does_not_come_back(agents: Agents) -> None:
    """The outbox went too: there is nothing to make anything from."""
    agents.start("jsonl")
    agents.put(row(1))
    moved = agents.place.rename(agents.place.with_name("moved"))
    agents.thread.close_when_done()
    wait_for(lambda: agents.thread.failures > 0, "it is not noticed")

    assert not agents.place.exists()
    moved.rename(agents.place)


def test_through_the_agent(tmp_path: Path) -> None:
    """`rows.jsonl` is removed while the trainer records: all rows are there, and `finish` says so."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    for n in range(20):
        run.log({"a": float(n)}, step=n)
        if n == 10:
            wait_for(lambda: len(rows_of(run.dir)) > 5, "nothing is delivered")
            (run.dir / "rows.jsonl").unlink()

    assert run.finish(60)
    assert sorted(row["step"] for row in rows_of(run.dir)) == list(range(20))
    assert agent_start.read_status(directories.at(run.dir)).failures == {"jsonl": 1}
    assert "rows.jsonl was removed or replaced" in (run.dir / "agent.log").read_text()


class Nowhere:
    """An exporter of somebody else's, whose backend is gone whatever it does."""

    def __init__(self, _: RunInfo) -> None:
        self.is_closed = False

    def export(self, items: Sequence[Item]) -> None:
        """Say so."""
        raise Gone("it is nowhere")

    def shutdown(self) -> None:
        """Say so again."""
        raise Gone("it is still nowhere")


def test_an_exporter_that_is_always_gone(agents: Agents) -> None:
    """It is tried again with pauses, is counted each time, and nothing of it counts as delivered."""
    agents.start(Nowhere)
    agents.outbox.append([row(1)], b"\xc0")
    wait_for(lambda: agents.thread.failures >= 3, "it is not tried again")
    agents.thread.stop()
    agents.thread.join(10)

    assert not agents.thread.is_alive()
    assert set(agents.thread.causes) == {"gone"}
    assert agents.thread.delivered == START
    assert agents.thread.taken == 0
