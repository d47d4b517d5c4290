"""`otel-rl top` as an application: its keys, by Textual's own pilot, on runs that were recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import otel_rl
from otel_rl.look.terminal.app import Top
from otel_rl.recorder.archive.autopsies import FOLDER, Autopsy, Verdict
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import Place, place_of
from tests.collector import wait_for
from tests.look.terminal.nows import process, written
from tests.processes import run_python

if TYPE_CHECKING:
    from textual.pilot import Pilot

STEPS, SLOW = 12, 6


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A run of twelve steps, one of which was slow; it has ended."""
    run = otel_rl.init(project="p", name="base", dir=str(tmp_path_factory.mktemp("runs")), hardware=False, quiet=True)
    for step in range(STEPS):
        with run.step(step):
            with run.phase("generate", tokens=8), run.phase("prefill"):
                pass
            with run.phase("update_actor"):
                time.sleep(0.3 if step == SLOW else 0.01)
                run.log({"reward": step / STEPS, "odd/name": float("nan") if step == 7 else step})
    run.event("rl.checkpoint", path="/ckpt")
    assert run.finish()
    wait_for(lambda: present_of(place_of(run.dir)).is_over, "the agent did not end", 60)
    return place_of(run.dir)


def played(place: Place, play: Callable[[Top, Pilot[Any]], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> Top:
    """Let a reader use the application."""
    app = Top(place, present_of(place))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await play(app, pilot)

    asyncio.run(run())
    return app


def text_of(app: Top) -> str:
    """Return what is drawn."""
    return "\n".join("".join(span.text for span in row).rstrip() for row in app.drawn.lines)


async def until(app: Top, pilot: Pilot[Any], expected: str) -> None:
    """Wait until the screen has a text."""
    for _ in range(600):
        await pilot.pause(0.05)
        if expected in text_of(app):
            return
    raise AssertionError(f"no {expected!r} in:\n{text_of(app)}")


async def read(app: Top, pilot: Pilot[Any]) -> None:
    """Wait until the past was read."""
    for _ in range(600):
        await pilot.pause(0.05)
        if app.scene.facts is not None and app.scene.names:
            return
    raise AssertionError(app.scene.note)


def test_the_way_in_and_out(recorded: Place) -> None:
    """Enter goes from the run to a rank, a step and a phase; Escape returns; each place is in the title."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await read(app, pilot)
        await pilot.press("enter")
        await until(app, pilot, f"time of {STEPS} steps")
        await pilot.press("down", "enter")
        await until(app, pilot, "values of the step")
        assert "p · base › rank 0 › step 10" in text_of(app)
        await until(app, pilot, "odd/name")
        await pilot.press("down", "enter")
        await until(app, pilot, "› prefill")
        await pilot.press("escape", "escape", "escape")
        assert [page.kind for page in app.pages] == ["run"]

    played(recorded, play)


def test_a_process_without_steps(tmp_path: Path) -> None:
    """Its last phases are shown, each with its time of day."""
    script = f"""
import otel_rl
run = otel_rl.init(project="p", id="worker", role="rollout", dir={str(tmp_path)!r}, hardware=False, quiet=True)
for _ in range(5):
    with run.phase("generate"), run.phase("prefill"):
        pass
run.finish()
"""
    run_python(script, tmp_path)
    place = place_of(tmp_path / "p" / "worker")
    wait_for(lambda: present_of(place).is_over, "the agent did not end", 60)

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await until(app, pilot, " gen ")
        await pilot.press("enter")
        await until(app, pilot, "time of 5 phases")
        await pilot.press("enter")
        await until(app, pilot, "rollout 0 › at ")
        await pilot.press("down", "enter")
        await until(app, pilot, "› prefill")

    played(place, play)


def test_the_past(recorded: Place) -> None:
    """Left looks at earlier steps, up to the first one; Escape returns to the present."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await pilot.press("left", "left")
        await until(app, pilot, "looking at step 10")
        await until(app, pilot, "STEP 10")
        await pilot.press("shift+left", "shift+left", "shift+left")
        assert app.scene.step == 0
        await pilot.press("right")
        assert app.scene.step == 1
        await pilot.press("enter")
        await until(app, pilot, "rank 0 › step 1")
        await pilot.press("escape", "escape")
        assert app.scene.step is None
        await pilot.press("home")
        assert app.scene.step == 0
        await pilot.press("end")
        assert app.scene.step is None

    played(recorded, play)


def test_a_search(recorded: Place) -> None:
    """It finds metrics that are not among the main ones, while the reader types; Escape ends it."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await read(app, pilot)
        assert "odd/name" not in text_of(app)
        await pilot.press("slash", *"odd/")
        await until(app, pilot, "odd/name")
        await pilot.press("q", "backspace", "enter")
        assert app.scene.pattern == "odd/"
        await pilot.press("escape")
        assert app.scene.pattern == ""

    played(recorded, play)


def test_pages_of_keys_and_findings(recorded: Place) -> None:
    """`?` and `f` open and close them."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        assert "Colors and marks of phases" in text_of(app)
        await pilot.press("question_mark", "f")
        await until(app, pilot, "Finished after")
        await pilot.press("escape")
        assert [page.kind for page in app.pages] == ["run"]

    played(recorded, play)


def test_a_page_of_the_autopsy(tmp_path: Path) -> None:
    """`a` opens it, and says how to make one while there is none; Escape leaves it."""
    place = written(tmp_path / "base", processes=[process(0)])

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        await until(app, pilot, f"otel-rl autopsy {place.path}")
        written(tmp_path / "base", processes=[process(0)])
        verdict = Verdict(kind="sleeps", sentence="Rank 0 sleeps at train.py:7.", who=("rank 0",), advice="Wake it.")
        seen = Autopsy(run=str(place.path), time_unix_nano=1, verdict=verdict, hosts=("node0",))
        (place.path / FOLDER).mkdir()
        (place.path / FOLDER / "20260101T000000Z.json").write_bytes(msgspec.json.encode(seen))
        await pilot.press("escape", "a")
        await until(app, pilot, "Rank 0 sleeps at train.py:7.")
        assert "→ Wake it." in text_of(app)
        await pilot.press("escape")
        assert [page.kind for page in app.pages] == ["run"]

    played(place, play, (140, 24))


def test_a_page_that_says_why(recorded: Place) -> None:
    """`w` says why the run is slow, stuck or dead, or why the step that is chosen took its time."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await read(app, pilot)
        await pilot.press("w")
        await until(app, pilot, "The critical path: ")
        await pilot.press("escape", "enter")
        await until(app, pilot, f"time of {STEPS} steps")
        await pilot.press("down", "w")
        await until(app, pilot, "p · base › step 10 › why")
        await until(app, pilot, "PART OF THE PATH")

    played(recorded, play, (100, 24))


def test_a_long_text_is_read_in_parts(tmp_path: Path) -> None:
    """The last line says how much more there is, and the arrows move through it."""
    place = written(tmp_path / "base", processes=[process(0)])

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        await until(app, pilot, "more lines: ↓")
        assert "quit" not in text_of(app)
        await pilot.press("pagedown")
        await until(app, pilot, "not in any phase")
        assert "more line" not in text_of(app)

    played(place, play, (80, 15))


def test_a_newer_run(tmp_path: Path) -> None:
    """A screen that was started without a name moves to it and says so; for a reader inside a run, it only says so."""
    old, new, newer = (written(tmp_path / name, processes=[process(0)]) for name in ("old", "new", "newer"))
    shown = [old]
    app = Top(old, present_of(old), newest=lambda: shown[-1])

    async def run() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            shown.append(new)
            await until(app, pilot, "grpo · new")
            assert "A newer run has started" in text_of(app)
            await pilot.press("question_mark")
            shown.append(newer)
            while not app.scene.news.startswith("A newer run has started: grpo · newer"):
                await pilot.pause(0.1)
            assert "grpo · new › keys" in text_of(app)
            await pilot.press("escape")
            await until(app, pilot, "grpo · newer")

    asyncio.run(run())


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    """New states of the agent are shown; Space lets the screen stand still, and again lets it go on."""
    place = written(tmp_path / "base", processes=[process(0)])

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        written(tmp_path / "base", processes=[process(0), process(77)])
        await until(app, pilot, "77")
        await pilot.press("space")
        assert "paused" in text_of(app)
        written(tmp_path / "base", processes=[process(0), process(88)])
        await pilot.pause(2.5)
        assert "88" not in text_of(app)
        await pilot.press("space")
        await until(app, pilot, "88")

    played(place, play)


def test_the_mouse(tmp_path: Path) -> None:
    """A click chooses a row, and a second one goes in; the wheel moves the cursor."""
    place = written(tmp_path / "base", processes=[process(rank) for rank in range(6)])

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "5         3")
        await pilot.press("space")  # on a busy machine, a finding that comes between two clicks moves the rows
        await until(app, pilot, "paused")
        await pilot.click(offset=(5, app.drawn.first + 2))
        assert app.pages[-1].cursor == 2
        await pilot.click(offset=(5, app.drawn.first + 2))
        assert app.pages[-1].who == ("", 2)

    played(place, play)


def test_every_size(recorded: Place) -> None:
    """It is drawn again when the terminal gets another size, however small."""

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        for size in ((200, 60), (20, 5), (3, 2), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
        await until(app, pilot, "where the time of the last 20 steps went")

    played(recorded, play)


def test_a_damaged_archive(tmp_path: Path) -> None:
    """It is said, and the present is still shown."""
    place = written(tmp_path / "base")
    folder = tmp_path / "base" / "archive" / "here" / "rows"
    folder.mkdir()
    (folder / "00000000-00000001.00000000.parquet").write_text("no Parquet")

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await pilot.pause(1)
        await until(app, pilot, "812 of 1,200 steps")

    played(place, play)


def test_a_run_of_plain_rows(tmp_path: Path) -> None:
    """Its rows are read behind the first screen."""
    run = otel_rl.init(project="p", name="plain", dir=str(tmp_path), hardware=False, quiet=True, archive_limit=0)
    for step in range(3):
        with run.step(step):
            run.log({"reward": step})
    assert run.finish()

    async def play(app: Top, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "reward")
        await until(app, pilot, "finished")

    played(place_of(run.dir), play)


def test_the_end(tmp_path: Path) -> None:
    """`q` ends well, Ctrl-C does not, and the application ends by itself when the training has ended."""

    def pressing(key: str) -> Callable[[Top, Pilot[Any]], Awaitable[None]]:
        async def play(_: Top, pilot: Pilot[Any]) -> None:
            await pilot.press(key)

        return play

    place = written(tmp_path / "base")

    assert played(place, pressing("q")).return_value is True
    assert played(place, pressing("ctrl+c")).return_value is False
