"""The page as a file: what it holds equals what was recorded, and nothing in it can act."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import itertools
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import otel_rl
from otel_rl.autopsy.conclude import conclude
from otel_rl.export import Table
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.page.markup import data_block, json_of, tag
from otel_rl.look.page.moment import RunMoment
from otel_rl.look.page.packed import packed, packed_steps, packed_times
from otel_rl.look.page.phases import phases_of, waiting_of
from otel_rl.look.page.report import page_of
from otel_rl.look.page.steps import StepAxis, steps_of
from otel_rl.recorder.archive.autopsies import FOLDER, Autopsy, StackGroup, Verdict
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.facts.signs import Stalled
from otel_rl.recorder.files.atomic_files import write_atomically
from tests.look.hostile import HOSTILE
from tests.look.insight.conversations import Written, chat
from tests.look.insight.pipelines import Simulation, case
from tests.look.recorded import STARTED, Shape, record
from tests.look.terminal.nows import process, written

_BLOCK = re.compile(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', re.DOTALL)


def data_in(page: str) -> dict[str, Any]:
    """Return the data of the page, by part."""
    return {name: json.loads(text) for name, text in _BLOCK.findall(page)}


def unpacked(column: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a column as the page reads it."""
    kind = np.dtype(column["kind"]).newbyteorder("<")
    raw = np.frombuffer(gzip.decompress(base64.b64decode(column["data"])), np.uint8)
    values = np.ascontiguousarray(raw.reshape(kind.itemsize, -1).T).view(kind).ravel()
    if "scale" not in column:
        return values
    return (np.cumsum(values.astype(np.int64)) + column["first"]) / round(1 / column["scale"])


def curves_in(page: str) -> dict[str, tuple[list[int], list[float]]]:
    """Return the curves of a page: steps and values by name."""
    curves = data_in(page)["curves"]
    axes = [unpacked(axis).astype(int).tolist() for axis in curves["axes"]]
    return {line["name"]: (axes[line["axis"]], unpacked(line["values"]).tolist()) for line in curves["lines"]}


@pytest.mark.parametrize("kind", ["f8", "f4", "u1"])
def test_columns_are_read_as_they_were(kind: str) -> None:
    """A column of any type has the values that were packed, missing ones included."""
    values = np.array([0, 1, 255, 7] if kind == "u1" else [0.5, np.nan, -1e30, np.inf])
    assert unpacked(packed(values, kind)).tobytes() == values.astype(kind).tobytes()


def test_differences_are_exact() -> None:
    """Steps and times are stored as differences; steps that are too far apart for them are stored too."""
    assert unpacked(packed_steps(np.array([3, 4, 9]))).tolist() == [3, 4, 9]
    assert unpacked(packed_steps(np.array([0, 1 << 40]))).tolist() == [0, 1 << 40]
    assert unpacked(packed_times(np.array([0.25, 0.1234565, 7e5]))).tolist() == [0.25, 0.123456, 7e5]


def test_values_are_those_of_the_reader(tmp_path: Path) -> None:
    """Every value of every name is in the page, bit for bit."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=30)))
    curves = curves_in(page_of(run.place.path))
    names = sorted(set(run.rows()["name"]))
    assert sorted(curves) == names
    for name in names:
        rows = run.rows(name)
        assert curves[name] == (rows["step"].tolist(), rows["value"].tolist())


def test_long_lines_keep_their_extremes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run of many steps, each range of them keeps its lowest and highest value, and the page has its length."""
    monkeypatch.setattr("otel_rl.look.page.curves._MAIN_POINTS", 0)
    monkeypatch.setattr("otel_rl.look.page.curves._LEAST_RANGES", 10)
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=200, metrics=0)))
    page = page_of(run.place.path)
    steps, values = curves_in(page)["reward"]
    (line,) = (line for line in data_in(page)["curves"]["lines"] if line["name"] == "reward")
    rows = run.rows("reward")
    assert line["every"] == 20
    assert len(steps) == 20
    for first in range(0, 200, 20):
        part = rows["value"][first : first + 20]
        inside = [value for step, value in zip(steps, values, strict=True) if first <= step < first + 20]
        assert sorted(inside) == [part.min(), part.max()]


def test_long_lines_have_their_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means are those of all values of their steps, not of the extremes."""
    monkeypatch.setattr("otel_rl.look.page.curves._MAIN_POINTS", 0)
    monkeypatch.setattr("otel_rl.look.page.curves._LEAST_RANGES", 50)
    monkeypatch.setattr("otel_rl.look.page.curves._MEANS", 10)
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=200, metrics=0)))
    (line,) = (line for line in data_in(page_of(run.place.path))["curves"]["lines"] if line["name"] == "reward")
    rows = run.rows("reward")
    assert line["means"]["every"] == 20
    assert unpacked(line["means"]["steps"]).tolist() == [first + 9.5 for first in range(0, 200, 20)]
    assert unpacked(line["means"]["values"]) == pytest.approx(rows["value"].reshape(10, 20).mean(axis=1), rel=1e-6)


def test_trajectories_are_counted(tmp_path: Path) -> None:
    """Each step has the number of trajectories that were trained on, and of those that were dropped."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=20, workers=2)))
    lines = data_in(page_of(run.place.path))["trajectories"]
    counts = {line["name"]: unpacked(line["values"]) for line in lines}
    rows = run.trajectories()
    assert list(counts) == ["trained", "stale"]
    assert counts["stale"].sum() == (rows["outcome"] == "stale").sum()
    assert (counts["trained"] + counts["stale"]).tolist() == [4] * 20


def test_workers_lie_side_by_side(tmp_path: Path) -> None:
    """A worker that works all the time has one open phase; one that works a third of it, a third."""
    engines = data_in(page_of(record(tmp_path / "run", Shape(steps=20, workers=2))))["engines"]
    loads = {engine["name"]: unpacked(engine["load"]) for engine in engines["engines"]}
    begun = unpacked(engines["edges"])[:-1] > 5  # seconds until the first step
    assert loads["rollout 0"][begun].mean() == pytest.approx(1, abs=0.02)
    assert loads["rollout 1"][begun].mean() == pytest.approx(1 / 3, abs=0.02)


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    """NaN is not drawn as a number: the page has its count, the first steps and the last one."""
    page = page_of(record(tmp_path / "run", Shape(steps=30, nan_from=20)))
    (line,) = (line for line in data_in(page)["curves"]["lines"] if line["name"] == "loss")
    assert line["not_finite"]["count"] == 10
    assert line["not_finite"]["first"][0] == [20, "NaN"]
    assert line["not_finite"]["last"] == [29, "NaN"]
    assert curves_in(page)["loss"][0] == list(range(20))


def test_phases_are_seconds_per_step(tmp_path: Path) -> None:
    """The phases of a step, averaged over ranks, and the time outside of them sum to the seconds of the step."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=5, ranks=3)))
    phases = data_in(page_of(run.place.path))["phases"]
    seconds = {phase["name"]: unpacked(phase["seconds"]) for phase in phases["phases"]}
    spans = run.sql(
        "SELECT step, sum(duration_ns) / 3e9 AS s FROM spans WHERE phase = 'generate' GROUP BY 1 ORDER BY 1"
    )
    roots = run.sql("SELECT duration_ns / 1e9 AS s FROM spans WHERE name = 'rl.loop' ORDER BY step")
    assert seconds["generate"] == pytest.approx(spans["s"])
    assert sum(seconds.values()) == pytest.approx(roots["s"], rel=1e-5)


def test_the_slow_rank_falls_behind(tmp_path: Path) -> None:
    """A rank that the others wait for falls behind in each step, and the others do not."""
    waiting = data_in(page_of(record(tmp_path / "run", Shape(steps=20, ranks=4, slow_rank=3))))["waiting"]
    behind = np.nanmean(unpacked(waiting["cells"]).reshape(len(waiting["ranks"]), -1), axis=1)
    assert waiting["ranks"] == [0, 1, 2, 3]
    assert behind[3] > 5 * behind[:3].max()


def test_a_resumed_run_shows_its_attempts(tmp_path: Path) -> None:
    """The page has the step at which an attempt took over."""
    page = page_of(record(tmp_path / "run", Shape(steps=40, resumed_at=25)))
    assert data_in(page)["steps"]["resumed"] == [[15, 1]]
    assert unpacked(data_in(page)["steps"]["steps"]).tolist() == list(range(40))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A file with a flipped bit is named, and the rest of the run is shown."""
    run = record(tmp_path / "run", Shape(steps=10))
    (file,) = (run / "archive" / "local" / "measurements").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    page = page_of(run)
    assert f"archive/local/measurements/{file.name}" in page
    assert '<main class="incomplete">' in page
    assert len(curves_in(page)["reward"][0]) == 10


def test_findings_have_the_order_of_the_facts(tmp_path: Path) -> None:
    """The verdict opens with what is wrong, before how well it ended."""
    run = record(tmp_path / "run", Shape(steps=60, slow_rank=1, slower_from=30))
    severities = re.findall(r'<li class="finding (\w+)"', page_of(run))

    assert severities[0] == "warning"
    assert severities == [finding.severity for finding in facts_of(otel_rl.open_run(run)).findings]


@pytest.mark.parametrize("shape", [Shape(steps=0), Shape(steps=1, ranks=1), Shape(steps=3, ends="")], ids=str)
def test_it_is_made_of_little(tmp_path: Path, shape: Shape) -> None:
    """A run without steps, with one step, or that goes on has a page too."""
    page = page_of(record(tmp_path / "run", shape))
    assert len(unpacked(data_in(page)["steps"]["steps"])) == shape.steps


def test_title_and_verdict_are_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a run that goes on has the facts of the time in its title, even if reading takes hours."""
    recorded = otel_rl.open_run(record(tmp_path, Shape(steps=6, ranks=1, ends="")))
    (ends,) = recorded.sql("SELECT max(start_unix_nano + duration_ns) AS ends FROM spans")["ends"].tolist()
    hang = {"rank": 0, "host": "node1", "phase": "sync_weights", "since_unix_nano": ends - 10**9, "deadline_s": 60.0}
    written(tmp_path, time_unix_nano=ends, processes=[process(0)], stalled=[Stalled(kind="hung", scope="job", **hang)])
    hours = itertools.count(ends, 3600 * 10**9)
    monkeypatch.setattr(time, "time_ns", lambda: next(hours))
    now = RunMoment(tmp_path)
    phases = [phase["category"] for phase in json.loads(now.part("phases"))["phases"]]

    assert now.facts == facts_of(now.run, at_unix_nano=now.made)
    assert ("hung" in phases, now.facts.goodput["hung"] > 0) == (True, True)


def test_a_run_without_an_archive(tmp_path: Path) -> None:
    """A run that has its rows alone is shown: its curves, with times from its first row on."""
    lines = (
        {"step": step, "time_unix_nano": STARTED + step * 10**9, "attempt": 0, "values": {"reward": step / 2}}
        for step in range(4)
    )
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = page_of(tmp_path)
    assert curves_in(page)["reward"] == ([0, 1, 2, 3], [0, 0.5, 1, 1.5])
    assert unpacked(data_in(page)["steps"]["ended"]).tolist() == [0, 1, 2, 3]


def test_a_run_of_nothing(tmp_path: Path) -> None:
    """A run directory that has its identity alone has a page that says so."""
    (tmp_path / "run.json").write_text('{"id": "a", "project": "p", "name": "n"}')
    assert "Nothing was recorded yet." in page_of(tmp_path)


def test_the_policy_allows_its_own_script_alone(tmp_path: Path) -> None:
    """The policy forbids everything but the one script and the one style, by their hashes."""
    page = page_of(record(tmp_path / "run", Shape(steps=2)))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    policy = policy.replace("&#x27;", "'")
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_slow_steps_have_their_path(tmp_path: Path) -> None:
    """The sentences say why, the drawing has a lane for each process of the path, and the table has its parts."""
    pipeline = case(8, clocks=0.0)
    assert pipeline is not None
    Simulation(pipeline.pipeline).write(tmp_path / "run")
    page = page_of(tmp_path / "run")
    path = page[page.index("<svg") : page.index("</svg>")]
    answer = explained_steps(otel_rl.open_run(tmp_path / "run"))
    stages = {stage.who for stage in answer.path if stage.ended_seconds - stage.began_seconds > 0.01 * answer.seconds}

    assert html.escape(answer.sentences[1]) in page
    assert len(stages) > 2
    assert all(f">{who or 'all ranks'}</text>" in path for who in stages)
    assert len(stages) < path.count("<rect") <= len(answer.path)


def test_no_slow_step(tmp_path: Path) -> None:
    """If no step is slow, the section says so first, and its table has no empty columns."""
    page = page_of(record(tmp_path / "run", Shape(steps=6)))
    section = page[page.index("No single step stands out") :]

    assert section.index("<table") < section.index("part of the path") < section.index("</table>")
    assert "step without it" not in page


@pytest.mark.parametrize(("steps", "columns"), [((3, 3), ["reward"]), ((3, 4), ["step", "reward"])])
def test_a_step_is_shown_once(tmp_path: Path, steps: tuple[int, int], columns: list[str]) -> None:
    """A column of a table that repeats the step of its lines is left out; one that differs is kept."""
    run = record(tmp_path / "run", Shape(steps=6))
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    writer.add(Table("scores", 3, STARTED, ("step", "reward"), tuple((step, 0.5) for step in steps), 0, (0, 0), 2))
    writer.save()
    (table,) = data_in(page_of(run))["samples"]["tables"]

    assert table["columns"] == columns
    assert table["lines"][0] == [3, *((3, 0.5) if "step" in columns else (0.5,))]


def test_steps_that_come_while_a_page_is_made(tmp_path: Path) -> None:
    """They are left out, so that all parts of the page of a run that goes on have the same steps."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=20, ends="")))
    before = StepAxis(*(column[:12] for column in steps_of(run)))

    assert unpacked(phases_of(run, before, time.time_ns())["steps"]).tolist() == list(range(12))
    assert waiting_of(run, before)["width"] == 12


def test_columns_of_tables_without_a_value_are_left_out(tmp_path: Path) -> None:
    """A column that a trainer did not give takes no room, and lines from before a column came have no value in it."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    writer.add(Table("completions", 1, STARTED, ("text", "advantage"), (("b", math.nan), ("c", None)), 0, (0, 0), 1))
    writer.add(Table("completions", 0, STARTED, ("text", "advantage", "reward"), (("a", None, 0.5),), 0, (0,), 1))
    writer.save()
    (table,) = data_in(page_of(tmp_path))["samples"]["tables"]

    assert table["columns"] == ["text", "reward"]
    assert table["lines"] == [[1, "b", None], [1, "c", None], [0, "a", 0.5]]


def test_a_text_cannot_reverse_others() -> None:
    """Characters that change the direction of the text behind them are replaced."""
    assert tag("p", "a\u202eb\u2066c") == "<p>a\ufffdb\ufffdc</p>"


@pytest.mark.parametrize("control", ["\x00", "\x1b", "\x7f", "\x85", "\x9b"])
def test_a_text_has_no_control_characters(control: str) -> None:
    """Those of eight bits neither, which a terminal takes for the start of a sequence when it shows the file."""
    assert tag("p", f"a{control}[31m") == "<p>a\ufffd[31m</p>"


def test_texts_cannot_become_markup() -> None:
    """Whatever a text is, an element has it as its text, and a data block has it as JSON."""
    for text in HOSTILE:
        assert "<" not in tag("p", text, title=text).removeprefix("<p ").removesuffix("</p>")
        block = data_block("x", json_of({text: text}))
        assert block.count("<") == 2
        assert json.loads(_BLOCK.findall(block.replace('id="x"', 'id="data-x"'))[0][1]) == {text: text}


def test_the_command_writes_into_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file, the command writes `report.html` into the run directory and prints where it is."""
    from click.testing import CliRunner

    from otel_rl.cli import main

    run = record(tmp_path / "runs" / "grpo" / "one", Shape(steps=2))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["report"], catch_exceptions=False)
    assert result.exit_code == 0
    assert str(run / "report.html") in result.output
    assert (run / "report.html").stat().st_mode & 0o777 == 0o600
    assert CliRunner().invoke(main, ["report", "baseline", "-o", "x.html"]).exit_code == 0
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_a_notebook_shows_a_run_and_its_report(tmp_path: Path) -> None:
    """`open_run` shows a table, and `report` a frame that cannot reach the notebook; names in them are escaped."""
    run = otel_rl.open_run(record(tmp_path / "run", Shape(steps=3, hostile=HOSTILE[1])))
    table, report = run._repr_html_(), otel_rl.report(run)
    assert "3 steps, the last is 2" in table
    assert "<code>spans</code></td><td>33</td>" in table
    assert "<script" not in table
    frame = report._repr_html_()
    assert frame.count("<") == 2
    assert 'sandbox="allow-scripts"' in frame
    assert report.write(tmp_path / "x.html").read_text() == report.html


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    """A file that cannot be written, and a directory that is not a run, end the command with one line."""
    from click.testing import CliRunner

    from otel_rl.cli import main

    run = record(tmp_path / "run", Shape(steps=2))
    result = CliRunner().invoke(main, ["report", str(run), "-o", str(tmp_path / "none" / "x.html")])
    assert result.exit_code == 1
    assert "none is not a directory that can be written" in result.output
    (tmp_path / "other").mkdir()
    result = CliRunner().invoke(main, ["report", str(tmp_path / "other")])
    assert result.exit_code == 1
    assert "is not a run directory" in result.output


def test_the_newest_autopsy_has_a_section(tmp_path: Path) -> None:
    """The page has the newest autopsy that names a cause, with its stacks, and no section if none saw a process."""
    run = record(tmp_path / "run", Shape(steps=2))
    assert 'id="autopsy"' not in page_of(run)
    ended = conclude(run, [], [], STARTED)
    write_atomically(_made(run / FOLDER) / "20251231T000000Z.json", msgspec.json.encode(ended))
    assert ended.verdict.advice == f"See how it ended: otel-rl top {run}"
    assert 'id="autopsy"' not in page_of(run)
    for when, kind, sentence in (
        ("20260101T000000Z", "sleep", "<b>Rank 1</b> sleeps."),
        ("20260102T000000Z", "well", "Nothing is overdue."),
    ):
        verdict = Verdict(kind=kind, sentence=sentence, sure="likely")
        groups = (StackGroup(who=("rank 1",), does="sleeps", stack=("train.py:1 step",)),)
        autopsy = Autopsy(run=str(run), time_unix_nano=STARTED, hosts=("a",), verdict=verdict, groups=groups)
        write_atomically(_made(run / FOLDER) / f"{when}.json", msgspec.json.encode(autopsy))

    page = page_of(run)
    assert "&lt;b&gt;Rank 1&lt;/b&gt; sleeps. (likely)" in page
    assert "train.py:1 step" in page
    assert "1 other in autopsy/" in page


def _made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def test_samples_are_bounded_and_cannot_act(tmp_path: Path) -> None:
    """Of texts, tokens and turns, a page has a part, and says what is missing. Nothing reverses a text."""
    many = [-0.5] * 20_000
    run = record(tmp_path / "run", Shape(steps=6, turns=True))
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    written = Written(author="assistant", text="\u202e" * 1_000_000, logprobs=many, trainer=many, tokens=range(20_000))
    for item in chat(5, 99, Written(author="user", text="q"), *[written] * 5, reward=2.0):
        writer.add(item)
    writer.save()
    page = page_of(run)

    (largest,) = (transcript for transcript in data_in(page)["samples"]["transcripts"] if transcript["reward"] == 2.0)
    assert largest["command"] == f"otel-rl samples 0123456789abcdef --trajectory {largest['id']}"
    turn = largest["turns"][1]
    begin, left, end = turn["text"].split("\n")
    assert (begin, end) == ("\\u202e" * 4_000, "\\u202e" * 2_000)
    assert left == "… (994,000 characters are not on this page) …"
    assert len(turn["engine"]) == 4_000
    assert turn["moreTokens"] == 16_000
    assert len(page) < 2_000_000
