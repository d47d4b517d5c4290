"""Printed lines in the terminal, in the report and in Python: found by step, process, text and time, and harmless."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.export import LogRecord, Process, Row
from otel_rl.look.insight.printed_lines import time_in
from otel_rl.look.page.report import write_report
from otel_rl.recorder.archive.writer import ArchiveWriter

_S = 1_000_000_000
_AT = 1_790_000_000 * _S


def line(number: int, text: str, *, rank: int = 0, step: int | None = None, **more: object) -> LogRecord:
    return LogRecord(0, _AT + number * _S, "", rank, "node1", number, "stdout", text, step=step, **more)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two ranks with six lines."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"id": "i", "project": "p", "name": "n"}))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    writer.add(*(Row(step, _AT + step * _S, {"loss": 1.0}) for step in range(3)))
    writer.add(*(Process(0, "", rank, 2, "node1", 7 + rank, _AT) for rank in range(2)))
    writer.add(
        line(0, "loading"),
        line(1, "step begins", step=0, phase="generate"),
        line(2, "retrying", rank=1, step=0, phase="generate", repeated=4112),
        line(3, "ValueError: no prompt", rank=1, step=1, phase="update"),
        line(4, "loss is high", step=1, phase="update", severity=13, logger="trainer"),
        line(5, "\x1b[31m</td><script>alert(1)</script>\u202ered", step=2),
    )
    writer.save(seals=True)
    return place


def printed(run: Path, *options: str) -> list[str]:
    """Return the texts that `otel-rl logs` finds."""
    result = CliRunner().invoke(main, ["logs", str(run), "--json", *options])
    assert result.exit_code == 0, result.output
    return [line["text"] for line in json.loads(result.stdout)["lines"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--steps", "1"], ["ValueError: no prompt", "loss is high"]),
        (["--rank", "1"], ["retrying", "ValueError: no prompt"]),
        (["--phase", "generate"], ["step begins", "retrying"]),
        (["--severity", "warning"], ["ValueError: no prompt", "loss is high"]),
        (["--severity", "error"], ["ValueError: no prompt"]),
        (["--grep", "LOSS|loading"], ["loading", "loss is high"]),
        (["--rank", "1", "--severity", "error", "--steps", ":0"], []),
        (["-n", "2", "--steps", "0:1"], ["ValueError: no prompt", "loss is high"]),
    ],
)
def test_lines_that_are_asked_for(run: Path, options: list[str], expected: list[str]) -> None:
    """Each option chooses, and of too many lines the last ones are shown."""
    assert printed(run, *options) == expected


def test_lines_around_a_time(run: Path) -> None:
    """The nearest ones are shown, in their order."""
    there = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_AT / _S + 3))

    assert printed(run, "--around", there, "-n", "3") == ["retrying", "ValueError: no prompt", "loss is high"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grep", "("], "missing )"),
        (["--around", "soon"], "'soon' is not a time"),
        (["--around", "12:00", "-f"], "give one of --around and --follow"),
    ],
)
def test_what_cannot_be_asked(run: Path, options: list[str], message: str) -> None:
    """The message says what is wrong, without a traceback."""
    result = CliRunner().invoke(main, ["logs", str(run), *options])

    assert result.exit_code != 0
    assert message in result.output


def test_the_text_of_a_terminal(run: Path) -> None:
    """It has time, process, step, phase, repeats and logger; nothing that was printed acts on the terminal."""
    shown = CliRunner().invoke(main, ["logs", str(run), "--text"]).stdout

    assert "rank 1     0 generate       retrying \u00d7 4,112" in shown
    assert "1 update         WARNING trainer: loss is high" in shown
    assert r"\x1b[31m" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_the_report(run: Path, tmp_path: Path) -> None:
    """It has the lines, with links to their steps, and texts stay texts."""
    write_report(run, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    section = html[html.index('<section id="printed"') :]
    section = section[: section.index("</section>")]

    assert '<a href="#step=1&amp;rank=1">1</a>' in section
    assert "retrying (4,112 times)" in section
    assert "<script>" not in section
    assert "\u202e" not in section


def test_a_run_without_lines(tmp_path: Path) -> None:
    """The report has no such part, and `otel-rl logs` says that nothing is recorded."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"id": "i", "project": "p", "name": "n"}))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    writer.add(Row(0, _AT, {"loss": 1.0}))
    writer.save(seals=True)
    write_report(place, tmp_path / "report.html")

    assert "Nothing that was printed is recorded" in CliRunner().invoke(main, ["logs", str(place), "--text"]).stdout
    assert '<section id="printed"' not in (tmp_path / "report.html").read_text()


def test_lines_in_python(run: Path) -> None:
    """`logs` returns columns, in the order of the times."""
    logs = otel_rl.open_run(run).logs(steps=1)

    assert [*logs["text"]] == ["ValueError: no prompt", "loss is high"]


def test_the_nearest_time_of_day() -> None:
    """Shortly after midnight, 23:59 is that of the day before."""
    midnight = int(time.mktime((2026, 5, 4, 0, 0, 30, 0, 0, -1)))

    assert time_in("23:59:30", midnight * _S) == (midnight - 60) * _S
    assert time_in("00:01", midnight * _S) == (midnight + 30) * _S
