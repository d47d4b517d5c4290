"""The screens of a run: their texts, in the room that they have."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from otel_rl.archive.now import Curve, EventNow, OpenPhase, PhaseTime
from otel_rl.insight import Facts, Finding, Summary
from otel_rl.view.terminal import detail, listing, overview
from otel_rl.view.terminal.ansi import Terminal, painted
from otel_rl.view.terminal.lines import STYLES, Span, folded, line
from otel_rl.view.terminal.present import present_of
from otel_rl.view.terminal.scene import Scene
from tests.view.terminal.nows import SHARES, S, hanging, process, progress, written

PLAIN = Terminal(80, 24, is_terminal=False, has_color=False, has_unicode=True)
EVIL = "[red]x[/]\x1b[2J\x1b]0;title\x07\u202e\n\u200b日本語"


def screen(scene: Scene, cells: int = 80, height: int = 24) -> str:
    return "\n".join(painted(overview.draw(scene, cells, height, 0).lines, PLAIN))


def test_the_present_of_a_run(tmp_path: Path) -> None:
    """Title, phases with their ages, shares, last values, gauges, exporters and events are there in 24 lines."""
    text = screen(Scene(present=present_of(written(tmp_path / "base"))))

    for expected in (
        "grpo · base  step 812 of 1,200  54.8 s/step (41 s before)  ETA 5 h 54 m",
        "● live",
        "generate                  31 s",
        "gen 68 upd 27",
        "generate 68 %",
        "not in any phase 6 %",
        "81 % 61 of 80 GiB",
        "wandb has 40 items waiting, 3 failures: 429",
        "rl.checkpoint step 800 rank 0 path=/ckpt/800",
    ):
        assert expected in text
    assert len(text.splitlines()) <= 24


def test_the_last_step_of_a_run_whose_steps_begin_at_1(tmp_path: Path) -> None:
    """It is not beyond the number of steps."""
    place = written(tmp_path / "base", progress=progress(first_step=1, last_step=40, steps=40, total_steps=40))

    assert "step 40 of 40" in screen(Scene(present=present_of(place)))


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (80, 24), (81, 25), (110, 30), (200, 60), (400, 100)])
@pytest.mark.parametrize("count", [0, 1, 2, 1024])
def test_every_size(tmp_path: Path, size: tuple[int, int], count: int) -> None:
    """No line is longer than the terminal is wide, and no screen with rows for processes is longer than it is high."""
    place = written(tmp_path / "base", processes=[process(rank) for rank in range(count)])
    drawn = overview.draw(Scene(present=present_of(place)), *size, 0)

    assert {cell_len("".join(span.text for span in row)) for row in drawn.lines} <= set(range(size[0] + 1))
    assert len(drawn.lines) <= max(size[1], 24)


def test_many_ranks(tmp_path: Path) -> None:
    """Those that do not fit are counted by phase, and the cursor brings its own part into view."""
    ranks = [process(rank) for rank in range(1023)]
    late = process(1023, phases=(OpenPhase("update_actor", time.time_ns() - 120 * S),))
    scene = Scene(present=present_of(written(tmp_path / "base", processes=[*ranks, late])))
    drawn = overview.draw(scene, 80, 24, 1023)
    text = "\n".join(painted(drawn.lines, PLAIN))

    assert "1,024 processes: 1,023 in generate, 1 in update_actor" in text
    assert "1023  node127" in text
    assert drawn.top + drawn.shown == drawn.rows == 1024


def test_those_that_wait_longest(tmp_path: Path) -> None:
    """They come first if the reader wants that."""
    late = process(5, phases=(OpenPhase("generate", time.time_ns() - 120 * S),))
    scene = Scene(present=present_of(written(tmp_path / "base", processes=[process(0), late])), is_sorted=True)

    assert [one.rank for one in overview.rows_of(scene)] == [5, 0]


def test_findings_come_first(tmp_path: Path) -> None:
    """The worst ones are below the title, with what to do."""
    found = Finding(kind="outcome", severity="bad", sentence="Died at step 812.", advice="Look at rank 3.")
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="failed"), findings=(found,))
    scene = Scene(present=present_of(written(tmp_path / "base")), facts=facts)

    assert screen(scene).splitlines()[1] == " ● Died at step 812.  → Look at rank 3."
    assert "Look at rank 3." in "\n".join(painted(detail.draw_findings(scene, 80, 24).lines, PLAIN))


def test_what_is_bad_is_whole(tmp_path: Path) -> None:
    """A bad finding and its advice are not cut in 80 columns; others have one line each, and no line is added to 24."""
    died = "Died before its first step after 1 min 39 s: rank 1 was killed by SIGKILL inside warmup, then 1 other."
    bad = Finding(kind="outcome", severity="bad", sentence=died, advice="Look at the kernel log of the machine.")
    note = Finding(kind="time", severity="note", sentence="generate 61 %, " * 9)
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="lost"), findings=(bad, note))
    scene = Scene(present=present_of(written(tmp_path / "base")), facts=facts)
    text = screen(scene).splitlines()

    assert " ".join(" ".join(text[1:4]).split()).startswith(f"● {died} → {bad.advice} ○ generate")
    assert text[3].endswith("…")
    assert len(text) <= 24

    narrow = screen(scene, 40).splitlines()[1:4]
    assert " ".join(row.strip() for row in narrow) == f"● {died[:-6]}…"


def test_what_is_still_read(tmp_path: Path) -> None:
    """Findings and phases that are still read are not shown as absent ones."""
    scene = Scene(present=present_of(written(tmp_path / "base")), step=7)
    assert "reading what was found …" in screen(scene)
    assert "nothing recorded" not in screen(scene)

    scene.of_step = {7: []}
    assert "nothing recorded" in screen(scene)


def test_no_metrics(tmp_path: Path) -> None:
    """A run without metrics says so once."""
    text = screen(Scene(present=present_of(written(tmp_path / "base", progress=progress(curves=())))))

    assert text.count("no metric has been recorded") == 1


def test_the_list_of_runs(tmp_path: Path) -> None:
    """It names a main metric that is not finite, and where most time goes, though it be in no phase."""
    lost = progress(curves=(Curve("loss", ((1, 0.5), (2, None))),), shares=(PhaseTime("", "none", 999.0), *SHARES))
    runs = [present_of(written(tmp_path / name, progress=one)) for name, one in (("a", progress()), ("b", lost))]
    _, first, second = painted(listing.table(runs, 120, time.time_ns()), PLAIN)

    assert "● live   " in first
    assert "generate 68 %" in first
    assert "● live, nan" in second
    assert "not in any phase 99 %" in second


def test_a_search(tmp_path: Path) -> None:
    """It leaves the metrics, ranks and hosts whose names match."""
    scene = Scene(present=present_of(written(tmp_path / "base")), pattern="node1")
    assert [one.rank for one in overview.rows_of(scene)] == [9]

    scene.pattern = "kl"
    text = screen(scene)
    assert "actor/kl" in text
    assert "reward" not in text


def test_hostile_texts(tmp_path: Path) -> None:
    """Names, texts and errors cannot act on the terminal: each is escaped, wherever it is shown."""
    evil = process(0, host=EVIL, phases=(OpenPhase(EVIL, 0),), error=EVIL)
    gone = process(1, outcome="failed", error=EVIL)
    curves = (Curve(EVIL, ((1, 0.5), (2, 0.7))),)
    place = written(
        tmp_path / "base",
        processes=[evil, gone],
        progress=progress(curves=curves, events=(EventNow(0, EVIL, EVIL),), error=EVIL),
        project=EVIL,
        name=EVIL,
    )
    place = place._replace(project=EVIL, name=EVIL)
    scene = Scene(present=present_of(place), note=EVIL, pattern="x")
    pages = [
        overview.draw(scene, 200, 60, 0),
        detail.draw_rank(scene, ("", 0), 200, 60, 0),
        detail.draw_step(scene, ("", 0), 1, 200, 60, 0),
        detail.draw_phase(scene, ("", 0), 1, 0, 200, 60),
    ]
    text = "".join(span.text for page in pages for row in page.lines for span in row)

    assert not [character for character in text if not character.isprintable()]
    assert "\\x1b[2J" in text


def test_without_unicode(tmp_path: Path) -> None:
    """A terminal that knows ASCII alone gets ASCII alone, with the same shape."""
    scene = Scene(present=present_of(written(tmp_path / "base")))
    drawn = overview.draw(scene, 80, 40, 0).lines
    text = painted(drawn, PLAIN._replace(has_unicode=False))

    assert "".join(text).isascii()
    assert [len(row) for row in text] == [cell_len(row) for row in painted(drawn, PLAIN)]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "live"),
        ({"stalled": hanging()}, "hung"),
        ({"time_unix_nano": time.time_ns() - 40 * S}, "lost"),
        ({"processes": [process(0, outcome="finished")], "state": "ended"}, "finished"),
        ({"processes": [process(0, outcome="finished"), process(1, outcome="crashed")], "state": "ended"}, "crashed"),
        ({"processes": [process(0), process(1, outcome="lost")]}, "live"),
        ({"processes": [], "state": "ended"}, "empty"),
        ({"processes": [], "progress": progress(step_seconds=None, curves=())}, "live"),
    ],
)
def test_states(tmp_path: Path, changes: dict[str, object], state: str) -> None:
    """A run is live, hangs, has ended in some way, lost its agent, or has nothing in it."""
    assert present_of(written(tmp_path / "base", **changes)).state == state


def test_a_damaged_state(tmp_path: Path) -> None:
    """It is not believed, and what was recorded is read instead."""
    place = written(tmp_path / "base")
    (tmp_path / "base" / "archive" / "here" / "now.json").write_text('{"time_unix_nano": 1')

    assert not present_of(place).is_complete


def test_colors_on_light_and_on_dark() -> None:
    """Each color has a contrast of 3 at least on white and on black, as WCAG asks of signs and large texts."""

    def luminance(color: tuple[int, int, int]) -> float:
        parts = [one / 255 for one in color]
        red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shown = [0.05 + luminance(look.color) for look in STYLES.values() if look.color is not None]

    assert min(1.05 / one for one in shown) > 3
    assert min(one / 0.05 for one in shown) > 3


def test_an_event_of_a_worker(tmp_path: Path) -> None:
    """It is not that of the rank with the same number."""
    happened = EventNow(time.time_ns(), "rl.wait.broken", "", None, 0, "rollout")
    place = written(tmp_path, progress=progress(events=(happened,)))
    drawn = overview.draw(Scene(present=present_of(place)), 100, 40, None)

    assert any("rl.wait.broken rollout 0" in "".join(span.text for span in row) for row in drawn.lines)


def test_a_long_sentence_is_broken_between_words() -> None:
    """Each line fits, later ones are indented, and the colors stay with their words."""
    row = line(("✗ ", "bad"), "rank 0 waits in vain for 提示 of rollout 1,  since 12:04:07")
    rows = folded(row, 24)

    assert ["".join(span.text for span in one).rstrip() for one in rows] == [
        "✗ rank 0 waits in vain",
        "  for 提示 of rollout 1,",
        "  since 12:04:07",
    ]
    assert rows[0][0] == Span("✗", "bad")
    assert folded(line("x" * 30), 24) == [line("x" * 30)]
