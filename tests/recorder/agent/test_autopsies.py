"""When the agent starts an autopsy: with a real module that notes how it was called."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Event, Hang
from otel_rl.recorder.agent import autopsies
from otel_rl.recorder.agent.autopsies import Autopsies
from tests.collector import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOTES = """
import sys, time
from pathlib import Path
place, _, cause = sys.argv[1:]
with open(Path(place) / "causes", "a") as file:
    file.write(cause + "\\n")
while not (Path(place) / "end").exists():
    time.sleep(0.05)
print((Path(place) / "end").read_text(), end="")
"""
STALLED = Hang(0, "", 1, "host", 7, 812, "generate", "", 10, 70, "hung", "job")
SLOW = {semconv.STALL_KIND: "slow"}


def _of_noting(group: str) -> EntryPoints:
    return EntryPoints([EntryPoint("noting", "noting", group)])


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that is started instead; the one of otel-rl needs a run."""
    (tmp_path / "noting").mkdir()
    (tmp_path / "noting" / "__init__.py").write_text("")
    (tmp_path / "noting" / "__main__.py").write_text(_NOTES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(autopsies, "entry_points", _of_noting)
    yield "noting"
    sys.modules.pop("noting", None)


def causes(place: Path) -> list[str]:
    path = place / "causes"
    return path.read_text().split() if path.exists() else []


def lost(name: str = "rl.process.lost", **attributes: str) -> Event:
    return Event(name, 0, {**attributes})


def failed(outcome: str, error: str) -> Event:
    return Event("rl.process.failed", 0, {semconv.PROCESS_OUTCOME: outcome, semconv.ERROR_TYPE: error})


@pytest.mark.usefixtures("module")
def test_one_at_a_time(tmp_path: Path) -> None:
    """A second reason while one runs starts none; when it has ended, the next one does."""
    starts = Autopsies(tmp_path, is_on=True)
    starts.look([STALLED, STALLED])
    wait_for(lambda: causes(tmp_path) == ["stalled"], "none was started")
    starts.look([lost()])
    (tmp_path / "end").touch()
    wait_for(lambda: starts._running is not None and starts._running.poll() == 0, "it does not end")
    starts.look([lost()])
    wait_for(lambda: causes(tmp_path) == ["stalled", "died"], "the second one was not started")


@pytest.mark.parametrize("is_found", [True, False])
@pytest.mark.usefixtures("module")
def test_what_it_found(tmp_path: Path, *, is_found: bool) -> None:
    """The event that it printed, at the step of its reason; none if it printed nothing or something else."""
    found = Event("rl.autopsy.concluded", 7, {"rl.autopsy.verdict": "Rank 1 is stopped."})
    (tmp_path / "end").write_bytes(msgspec.json.encode(found) if is_found else b"Traceback")
    starts, said = Autopsies(tmp_path, is_on=True), list[Event]()
    starts.look([STALLED])
    wait_for(lambda: said.extend(starts.look([])) or starts._running is None, "it does not end")

    assert said == ([replace(found, step=812)] if is_found else [])


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (STALLED, "stalled"),
        (replace(STALLED, kind="silent"), "stalled"),
        (replace(STALLED, kind="silent", scope="process"), ""),
        (replace(STALLED, ended_unix_nano=80, ending="resumed"), ""),
        (lost("rl.phase.stalled", **SLOW), "stalled"),
        (lost("rl.phase.stalled", **SLOW | {semconv.STALL_KIND: "hung"}), ""),
        (lost(), "died"),
        (failed("crashed", "SIGSEGV"), "died"),
        (failed("cancelled", "SIGTERM"), ""),
        (failed("failed", "ValueError"), ""),
        (Event("rl.phase.resumed", 0), ""),
    ],
)
def test_the_reasons(tmp_path: Path, item: Hang | Event, cause: str) -> None:
    """A hang, a phase that is slow, and a death that nobody asked for."""
    assert Autopsies(tmp_path, is_on=True)._reason(item) == cause


def test_two_for_one_hang(tmp_path: Path) -> None:
    """One when it begins, one when its cause is known, none for its other lines and processes."""
    starts = Autopsies(tmp_path, is_on=True)
    other = replace(STALLED, rank=2)
    known = [replace(one, cause="dead", culprits=("rollout 1",)) for one in (STALLED, other)]
    late = [replace(one, cause="circle", culprits=("rank 1", "rank 2")) for one in (STALLED, other)]
    ended = [replace(one, ended_unix_nano=90) for one in known]

    hang = [STALLED, other, replace(other, scope="process"), *known, *late, lost("rl.phase.stalled", **SLOW), *ended]
    assert [number for number, item in enumerate(hang) if starts._reason(item)] == [0, 3]
    assert starts._reason(replace(STALLED, started_unix_nano=99)) == "stalled"


def test_one_switch(tmp_path: Path, module: str) -> None:
    """It starts none; without the module there is none to start either."""
    assert Autopsies(tmp_path, is_on=False)._left == 0
    assert Autopsies(tmp_path, is_on=True)._left > 0
    (tmp_path / module / "__main__.py").unlink()
    assert Autopsies(tmp_path, is_on=True)._left == 0
