"""The list of runs that the page gets."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import otel_rl
from otel_rl.look.insight import facts_of
from otel_rl.look.reader.runs import open_run
from otel_rl.look.ui import index as index_module
from otel_rl.look.ui.index import RunIndex
from otel_rl.look.ui.run_line import run_line
from otel_rl.look.ui.tree import RunTree
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of
from tests.look.recorded import Shape, record
from tests.look.ui.pages import served, until


def test_what_a_run_says(tmp_path: Path) -> None:
    """A line has the first sentence of the facts, with its advice and how much it matters."""
    run = record(tmp_path / "runs" / "slow", Shape(steps=40, nan_from=20))
    with served(tmp_path / "runs") as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        (line,) = page.runs()["runs"]
    first = facts_of(open_run(run)).findings[0]

    assert (line["sentence"], line["advice"], line["severity"]) == (first.sentence, first.advice, first.severity)
    assert line["needs_somebody"] == (first.severity == "bad")
    assert line["parameters"]["lr"] == 1e-6


def test_only_what_has_changed(tmp_path: Path) -> None:
    """With a cursor, the answer has the runs that are new or changed, and the keys of those that were removed."""
    record(tmp_path / "a", Shape(steps=3))
    with served(tmp_path) as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        whole = page.runs()
        (tmp_path / "b").mkdir()
        record(tmp_path / "b" / "b", Shape(steps=3))
        until(lambda: len(page.runs()["runs"]) == 2)
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        news = page.runs(whole["cursor"])
        shutil.rmtree(tmp_path / "a")
        until(lambda: bool(page.runs(news["cursor"])["gone"]))
        after = page.runs(news["cursor"])

    assert whole["is_whole"]
    assert not news["is_whole"]
    assert [line["directory"] for line in news["runs"]] == ["b/b"]
    assert after["gone"] == [whole["runs"][0]["key"]]


def test_a_cursor_of_an_earlier_server(tmp_path: Path) -> None:
    """It means nothing: all runs are sent."""
    record(tmp_path / "a", Shape(steps=3))
    with served(tmp_path) as page:
        cursor = page.runs()["cursor"]
    with served(tmp_path) as page:
        assert page.runs(cursor)["is_whole"]


@pytest.mark.parametrize("cursor", ["x", "-", "-1", "%00", "9" * 4000])
def test_a_cursor_that_is_none(tmp_path: Path, cursor: str) -> None:
    """All runs are sent."""
    with served(tmp_path) as page:
        assert page.runs(cursor)["is_whole"]


def test_verdicts_are_kept(tmp_path: Path, own_cache: Path) -> None:
    """A run that ended is read once: the next server has its verdict from the cache, which is private."""
    record(tmp_path / "runs" / "a", Shape(steps=3))
    with served(tmp_path / "runs") as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        first = page.runs()["runs"]
    (kept,) = own_cache.iterdir()
    text = kept.read_text()
    kept.write_text(text.replace(first[0]["sentence"], "A sentence of the cache."))
    with served(tmp_path / "runs") as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        again = page.runs()["runs"]

    assert again == [first[0] | {"sentence": "A sentence of the cache."}]
    assert (own_cache.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_run_that_cannot_be_read(tmp_path: Path) -> None:
    """It hides no other one."""
    record(tmp_path / "good", Shape(steps=3))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("[")
    (tmp_path / "bad" / "archive").write_text("not a directory")
    with served(tmp_path) as page:
        until(lambda: any(line["has_verdict"] for line in page.runs()["runs"] if line["directory"] == "good"))
        shown = {line["directory"] for line in page.runs()["runs"]}

    assert shown <= {"good", "bad"}


def test_directories_are_listed_when_they_change(tmp_path: Path) -> None:
    """A tree finds runs that appear at any depth, loses those that are removed, and follows no link."""
    tree = RunTree([tmp_path])
    record(tmp_path / "a" / "b" / "run", Shape(steps=1))
    (tmp_path / "a" / "latest").symlink_to(tmp_path / "a" / "b" / "run")
    first = set(tree.look())
    record(tmp_path / "c", Shape(steps=1))
    second = set(tree.look())
    shutil.rmtree(tmp_path / "a")

    assert first == {tmp_path / "a" / "b" / "run"}
    assert second == first | {tmp_path / "c"}
    assert set(tree.look()) == {tmp_path / "c"}


def test_a_notebook_shows_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a cell is a frame with the page, which goes through the proxy of a hub; `repr` has no token."""
    record(tmp_path / "a", Shape(steps=3))
    page = otel_rl.ui(tmp_path)
    try:
        direct = page._repr_html_()
        monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/x/")
        proxied = page._repr_html_()
    finally:
        page.close()
    address, _, token = page.link.partition("#token=")
    port = address.rpartition(":")[2].rstrip("/")

    assert f'src="{page.link}"' in direct
    assert f'src="/user/x/proxy/{port}/#token={token}"' in proxied
    assert token not in repr(page)


def test_a_verb_that_serves(tmp_path: Path) -> None:
    """It prints the link alone on standard output, and ends at once by SIGTERM, whatever it reads."""
    for number in range(30):
        record(tmp_path / str(number), Shape(steps=200))
    command = [sys.executable, "-m", "otel_rl.cli", "ui", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        link = process.stdout.readline()
        address, _, token = link.strip().partition("#token=")
        request = urllib.request.Request(f"{address}runs", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert len(json.load(answer)["runs"]) == 30
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=30)

    assert process.returncode == 0
    assert (rest, token in errors) == ("", False)
    assert "whoever has it reads, marks and deletes these runs" in errors


def test_a_run_that_was_not_read_yet(tmp_path: Path) -> None:
    """A run whose archive alone knows how it ended has no state, and accuses nobody, until that was read."""
    path = record(tmp_path / "a", Shape(steps=3))
    line = run_line("key", tmp_path, present_of(place_of(path)), None)

    assert (line.state, line.severity, line.needs_somebody) == ("unread", "note", False)
    assert line.sentence == "Its records are being read."


def test_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first look at them goes on, those that are known are listed, and how many are still to come."""
    monkeypatch.setattr(index_module, "_MOST_LOOK_S", -1.0)
    for number in range(3):
        record(tmp_path / str(number), Shape(steps=2))
    index = RunIndex([tmp_path])
    begun = index.since()
    monkeypatch.undo()
    until(lambda: len(index.since().runs) == 3)
    ended = index.since()
    index.close()

    assert (len(begun.runs), begun.unread) == (0, 3)
    assert ended.unread == 0
