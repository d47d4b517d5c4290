"""The screens of a run: their texts, in the room that they have."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from otel_rl.cli.ansi import Terminal, painted
from otel_rl.cli.lines import STYLES, StyledText, folded, line
from otel_rl.look.insight import Facts, Finding, Summary
from otel_rl.look.terminal import detail, drawing, gauges, listing, overview, processes, text_pages
from otel_rl.look.terminal.phase_names import cut, short_names
from otel_rl.look.terminal.phases import PhaseSpan
from otel_rl.look.terminal.scene import Scene
from otel_rl.recorder.archive.now import Curve, DeviceNow, EventNow, PhaseNow, PhaseTime, Progress
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import Severity
from tests.look.terminal.nows import SHARES, S, hanging, process, progress, wait, written

PLAIN = Terminal(80, 24, is_terminal=False, has_color=False, has_unicode=True)
EVIL = "[red]x[/]\x1b[2J\x1b]0;title\x07\u202e\n\u200b日本語"


def screen(scene: Scene, cells: int = 80, height: int = 24) -> str:
    return "\n".join(painted(overview.draw(scene, cells, height, 0).lines, PLAIN))


def test_the_present_of_a_run(tmp_path: Path) -> None:
    """Title, phases with their ages, shares, last values, gauges, exporters and events are there in 24 lines."""
    text = screen(Scene(present=present_of(written(tmp_path / "base"))))

    for expected in (
        "grpo · base  812 of 1,200 steps  54.8 s a step (last 20)",
        "● live",
        "31 s  generate ",
        "gen 68 upd 27",
        "generate 68 %",
        "not in any phase 6 %",
        "81 % 61 of 80 GiB",
        "wandb has 40 items waiting, 3 failures: 429",
        "rl.checkpoint step 800 rank 0 path=/ckpt/800",
    ):
        assert expected in text
    assert len(text.splitlines()) <= 24


def test_a_change_of_the_step_time(tmp_path: Path) -> None:
    """The title has the time before it, and since when, as the findings say."""
    summary = Summary(id="a", project="p", name="n", state="live", step_seconds_before=41.0, changed_at_step=400)
    scene = Scene(present=present_of(written(tmp_path)), facts=Facts(summary=summary))

    assert "54.8 s a step (last 20), 41 s before 400  ETA 5 h 54 min" in screen(scene, 140)


def test_the_last_step_of_a_run_whose_steps_begin_at_1(tmp_path: Path) -> None:
    """It is not beyond the number of steps."""
    place = written(tmp_path / "base", progress=progress(first_step=1, last_step=40, steps=40, total_steps=40))

    assert " 40 of 40 steps" in screen(Scene(present=present_of(place)))


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
    late = process(1023, phases=(PhaseNow("update_actor", time.time_ns() - 120 * S),))
    scene = Scene(present=present_of(written(tmp_path / "base", processes=[*ranks, late])))
    drawn = overview.draw(scene, 80, 24, 1023)
    text = "\n".join(painted(drawn.lines, PLAIN))

    assert "1,024 processes: 1,023 in generate, 1 in update_actor" in text
    assert "1023  node127" in text
    assert drawn.top + drawn.shown == drawn.rows == 1024


def test_who_waits_for_whom(tmp_path: Path) -> None:
    """Rows say what a process waits for, who owes it, and why that can never end; all that wait for it say so."""
    endless = wait("rank 0", "ticket", "take", ("rollout 3",), age_s=120, cause="dead", culprits=("rollout 3",))
    joined = msgspec.structs.replace(endless, waiters=2, others=("rank 1",))
    idle = wait("rollout 1", "queue", "generate", ("rank 0", "rank 1"), is_any=True)
    ranks = [process(rank, phases=(), step=4) for rank in range(2)]
    worker = process(1, role="rollout", phases=(), step=None)
    text = screen(Scene(present=present_of(written(tmp_path, processes=[*ranks, worker], waits=(joined, idle)))))

    assert text.count("2 min  waits for rollout 3 in take — dead") == 2
    assert "waits for a trajectory of rank 0 and rank 1" in text
    assert "in no phase" not in text


def test_a_stalled_rank_says_what_it_does(tmp_path: Path) -> None:
    """Where nobody is known to owe it anything, its row has the evidence and the usual time."""
    text = screen(
        Scene(present=present_of(written(tmp_path, processes=[process(0)], stalled=hanging(evidence="0 CPU"))))
    )

    assert "1 h 7 min  hung in generate, usually 41 s: 0 CPU" in text


def test_how_a_process_ended(tmp_path: Path) -> None:
    """Its row says how, when and in which phase."""
    killed = process(1, outcome="lost", cause="oom_kill", ended_unix_nano=S, ended_phase="update_actor", ended_step=7)
    text = screen(Scene(present=present_of(written(tmp_path, processes=[process(0), killed]))), 100)

    assert "was killed by the kernel for lack of host memory in update_actor of step 7" in text
    assert wording.clock(S) in text


def test_short_names_of_phases_differ() -> None:
    """They are the first letters, or the word that phases with the same first letters do not have."""
    assert short_names(["generate", "update_actor", "update_critic"]) == {
        "generate": "gen",
        "update_actor": "act",
        "update_critic": "cri",
    }
    assert short_names(["transformers.generate", "training_step"]) == {
        "transformers.generate": "generate",
        "training_step": "step",
    }
    alike = ["a_b", "a.b", "a b", "ab", "a", "b", "", "a_b_c", "step_1", "step_2", "rl.step", "step"]
    assert len({*short_names(alike).values()}) == len(alike) - 1
    assert cut("transformers.generate_all", 12) == "trans…e_all"


@pytest.mark.parametrize(("size", "count"), [((80, 24), 20), ((160, 50), 20), ((160, 50), 1), ((120, 40), 0)])
def test_one_rank_fills_the_screen(tmp_path: Path, size: tuple[int, int], count: int) -> None:
    """The room that it leaves goes to curves, phases and events."""
    events = tuple(EventNow(time.time_ns(), "rl.checkpoint", f"number={n}") for n in range(count))
    place = written(tmp_path, processes=[process(0)], exporters=[], progress=progress(events=events))
    rows = screen(Scene(present=present_of(place)), *size).splitlines()[4:]

    assert len(rows) >= 0.9 * (size[1] - 4)
    assert sum(len(row.strip()) == 0 for row in rows) <= 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"first_step": 0, "last_step": 177, "steps": 178, "total_steps": None}, "step 177 "),
        ({"first_step": 79, "last_step": 178, "steps": 100, "total_steps": None}, "step 178 (100 steps, from 79 on)"),
        ({"first_step": 0, "last_step": 990, "steps": 100, "total_steps": None}, "step 990 (100 steps recorded)"),
        ({"first_step": None, "last_step": None, "steps": 0}, "no step yet "),
    ],
)
def test_a_step_is_not_a_number_of_steps(tmp_path: Path, changes: dict[str, object], expected: str) -> None:
    """The title says both where they differ."""
    assert expected in screen(Scene(present=present_of(written(tmp_path, progress=progress(**changes)))))


def test_trouble_comes_first(tmp_path: Path) -> None:
    """The rows of processes that died or hang are above those of others, however many there are."""
    ranks = [process(rank) for rank in range(1, 1000)]
    dead, worker = process(1000, outcome="crashed"), process(3, role="rollout")
    scene = Scene(
        present=present_of(written(tmp_path, processes=[*ranks, dead, worker, process(0)], stalled=hanging()))
    )

    assert [process.rank for process in processes.rows_of(scene)[:3]] == [0, 1000, 1]


def test_those_that_wait_longest(tmp_path: Path) -> None:
    """They come first if the reader wants that."""
    late = process(5, phases=(PhaseNow("generate", time.time_ns() - 120 * S),))
    scene = Scene(present=present_of(written(tmp_path / "base", processes=[process(0), late])), is_sorted=True)

    assert [process.rank for process in processes.rows_of(scene)] == [5, 0]


def test_findings_come_first(tmp_path: Path) -> None:
    """The worst ones are below the title, with what to do."""
    finding = Finding(kind="outcome", severity="bad", sentence="Died at step 812.", advice="Look at rank 3.")
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="failed"), findings=(finding,))
    scene = Scene(present=present_of(written(tmp_path / "base")), facts=facts)

    assert screen(scene).splitlines()[1:3] == [" ● Died at step 812.", "   → Look at rank 3."]
    assert "Look at rank 3." in "\n".join(painted(text_pages.draw_findings(scene, 80, 24, 0).lines, PLAIN))


def test_the_first_sentence_is_of_the_same_moment(tmp_path: Path) -> None:
    """How long a run hangs is not said differently in the first line and in the rows."""
    place = written(tmp_path, processes=[process(0)], stalled=hanging())
    finding = Finding(kind="outcome", severity="bad", sentence="Hangs for 3 s.")
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="hung"), findings=(finding,))
    scene = Scene(present=present_of(place), facts=facts)
    scene.renew(present_of(place))
    text = screen(scene)

    assert "rank 0 is in generate for 1 h 7 min." in text
    assert "1 h 7 min  hung in generate" in text


def test_what_is_bad_is_whole(tmp_path: Path) -> None:
    """A bad finding is not cut, and its advice not in 80 columns; others have one line, and no line is added to 24."""
    died = "Died before its first step after 1 min 39 s: rank 1 was killed by SIGKILL inside warmup, then 1 other."
    bad = Finding(kind="outcome", severity="bad", sentence=died, advice="Look at the kernel log of the machine.")
    note = Finding(kind="time", severity="note", sentence="generate 61 %, " * 9)
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="lost"), findings=(bad, note))
    scene = Scene(present=present_of(written(tmp_path / "base")), facts=facts)
    text = screen(scene).splitlines()

    assert " ".join(" ".join(text[1:5]).split()).startswith(f"● {died} → {bad.advice} ○ generate")
    assert text[4].endswith("…")
    assert len(text) <= 24

    narrow = screen(scene, 30).splitlines()[1:6]
    assert " ".join(row.strip() for row in narrow) == f"● {died}"


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
    lost = progress(
        curves=(Curve("loss", ((1, 0.5), (2, None))),), recent_shares=(PhaseTime("", "none", 999.0), *SHARES)
    )
    runs = [
        present_of(written(tmp_path / name, progress=present)) for name, present in (("a", progress()), ("b", lost))
    ]
    _, first, second = painted(listing.table(runs, 120, time.time_ns()), PLAIN)

    assert "● live   " in first
    assert "generate 68 %" in first
    assert "● live, nan" in second
    assert "not in any phase 99 %" in second


def test_a_search(tmp_path: Path) -> None:
    """It leaves the metrics, ranks and hosts whose names match."""
    scene = Scene(present=present_of(written(tmp_path / "base")), pattern="node1")
    assert [process.rank for process in processes.rows_of(scene)] == [9]

    scene.pattern = "kl"
    text = screen(scene)
    assert "actor/kl" in text
    assert "reward" not in text


def test_hostile_texts(tmp_path: Path) -> None:
    """Names, texts and errors cannot act on the terminal: each is escaped, wherever it is shown."""
    evil = process(0, host=EVIL, phases=(PhaseNow(EVIL, 0),), error=EVIL)
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
        ({"processes": [], "state": "ended", "progress": Progress()}, "empty"),
        ({"processes": [], "progress": progress(recent_step_seconds=None, curves=())}, "live"),
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
        parts = [channel / 255 for channel in color]
        red, green, blue = (
            channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shown = [0.05 + luminance(look.color) for look in STYLES.values() if look.color is not None]

    assert min(1.05 / brightness for brightness in shown) > 3
    assert min(brightness / 0.05 for brightness in shown) > 3


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

    assert ["".join(span.text for span in row).rstrip() for row in rows] == [
        "✗ rank 0 waits in vain",
        "  for 提示 of rollout 1,",
        "  since 12:04:07",
    ]
    assert rows[0][0] == StyledText("✗", "bad")
    assert folded(line("x" * 30), 24) == [line("x" * 30)]


def test_a_phase_of_all_ranks(tmp_path: Path) -> None:
    """Its page has the slowest process first, and how long it took in the steps before."""
    phases = [PhaseSpan(812, "", rank, "generate", "", 0, (rank + 1) * S, 0, "", {"tokens": 1024}) for rank in range(3)]
    before = [phases[0]._replace(step=step, duration=step * S // 100) for step in range(810, 813)]
    scene = Scene(present=present_of(written(tmp_path)), of_step={812: phases}, of_rank={("", 0): before})
    lines = painted(detail.draw_phase(scene, ("", 0), 812, 0, 80, 40).lines, PLAIN)
    first = next(n for n, text in enumerate(lines) if "the slowest first" in text) + 1

    assert [text.split()[:3] for text in lines[first:]] == [["2", "3", "s"], ["1", "2", "s"], ["0", "1", "s"]]
    assert any("in the last 3 steps" in text and "8.1 s to 8.12 s" in text for text in lines)
    assert any(text.split() == ["tokens", "1,024"] for text in lines)


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (8, 3), (64, 1)])
def test_gpus(tmp_path: Path, count: int, lines: int) -> None:
    """Where there is no room for all, they are one line that says how busy they are."""
    gpus = tuple(DeviceNow(name=f"GPU {n}", utilization=1.0 if n % 2 else 0.5) for n in range(count))
    drawn = gauges.draw(present_of(written(tmp_path, devices=gpus)), 80, 3)

    assert len(drawn) == lines
    assert ("all 64 GPUs: 75 % busy on average, 50 % to 100 %" in painted(drawn, PLAIN)[0]) == (count == 64)


def test_an_outlier_does_not_flatten_a_curve(tmp_path: Path) -> None:
    """The axis ends at the other values with a mark, and the head says how far the outlier is."""
    values = [1.0 + step % 5 for step in range(200)]
    curve = Curve("loss", ((0, 1e9), *((step, value) for step, value in enumerate(values, 1))))
    text = screen(Scene(present=present_of(written(tmp_path, progress=progress(curves=(curve,))))), 160, 40)

    assert "steps 0 to 200, up to 1e9" in text
    assert any(row.split()[:1] == ["5↑"] for row in text.splitlines())


def test_a_row_of_a_curve_is_in_scale() -> None:
    """Each column is a part of the steps: what is not finite or was not logged keeps its place."""
    points = [(float(step), None if 30 <= step < 60 else float(step >= 15)) for step in (*range(60), *range(90, 120))]

    assert drawing.sparkline(points, 8) == "▁█?? " + " ██"
    assert drawing.sparkline([(0.0, 1.0)], 0) == ""


def test_no_line_crosses_values_that_are_not_finite() -> None:
    """A column without a finite value keeps one that is not."""
    points = [(float(step), None if 300 <= step < 600 else 1.0) for step in range(1000)]
    thin = drawing.extremes(points, 10)

    assert len(thin) < len(points)
    assert {step // 100 for step, value in thin if value is None} == {3.0, 4.0, 5.0}


def test_narrow_curves_say_their_steps(tmp_path: Path) -> None:
    """One line above them has the first and the last one, and where the run was resumed."""
    text = screen(Scene(present=present_of(written(tmp_path, progress=progress(resumed_at=(760, 800))))))

    assert "steps 752 to 811, resumed at 760 and 800 ──" in text


@pytest.mark.parametrize("severity", ["bad", "warning", "good"])
def test_no_state_is_green_above_trouble(tmp_path: Path, severity: Severity) -> None:
    """A run that goes on has the color of what is to be read first."""
    summary = Summary(id="a", project="p", name="n", state="live")
    facts = Facts(summary=summary, findings=(Finding(kind="learning", severity=severity, sentence="loss is NaN."),))
    run = present_of(written(tmp_path))
    drawn = overview.draw(Scene(present=run, facts=facts), 80, 24, 0)
    listed = listing.table([run], 80, time.time_ns(), {run.path: facts})

    for row in (drawn.lines[0], listed[1]):
        assert [span.style for span in row if "● live" in span.text] == [severity]


def test_the_first_finding_is_whole(tmp_path: Path) -> None:
    """Also if nothing is wrong: what a resumed run died of is not cut off."""
    resumed = "Finished after 3 h: 1,200 steps, resumed once at step 640 (at step 648, rank 3 was killed by SIGKILL)."
    finding = Finding(kind="outcome", severity="good", sentence=resumed)
    facts = Facts(summary=Summary(id="a", project="p", name="n", state="finished"), findings=(finding,))
    text = screen(Scene(present=present_of(written(tmp_path)), facts=facts))

    assert resumed in " ".join(text.replace("○", " ").split())


def test_the_first_death_comes_first(tmp_path: Path) -> None:
    """Later deaths can be consequences of it."""
    ranks = [process(rank, outcome="lost", cause="signal", ended_unix_nano=(9 - rank) * S) for rank in range(3)]
    scene = Scene(present=present_of(written(tmp_path, processes=[*ranks, process(3)])))

    assert [row.rank for row in processes.rows_of(scene)] == [2, 1, 0, 3]


@pytest.mark.parametrize("kind", ["findings", "why", "autopsy", "help"])
def test_keys_of_texts(tmp_path: Path, kind: str) -> None:
    """A text has nothing to go into."""
    (row,) = painted([text_pages.keys(Scene(present=present_of(written(tmp_path))), 80, kind)], PLAIN)

    assert row.startswith(" ↑ ↓ scroll  esc out")
    assert "into" not in row
