"""The page of a run, as the server answers: the same data and the same sections as the report of the same moment."""

from __future__ import annotations

import json
import re
import shutil
import time
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from otel_rl.export import Row
from otel_rl.look.insight import Facts
from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.page.moment import PARTS
from otel_rl.look.page.report import page_of
from otel_rl.look.ui.run_page import RunPage, RunPages
from otel_rl.recorder.archive.runs import place_of
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests import samples
from tests.look.recorded import STARTED, Shape, growing, record
from tests.look.terminal.nows import process, wait, written
from tests.look.test_page import data_in
from tests.look.truth.construction import made
from tests.look.truth.drawn import RECIPES, Recipe
from tests.look.truth.generator import write
from tests.look.ui.pages import Served, served, until


def page_with_all(pages: RunPages, directory: Path) -> RunPage:
    """Return the page of a run once all of it was read."""
    place = place_of(directory)
    until(lambda: len(pages.page(place, ()).parts) == len(PARTS))
    return pages.page(place, ())


@pytest.mark.slow
@pytest.mark.timeout(samples.of(900, 7200))
@settings(max_examples=samples.of(20, 200), phases=[Phase.reuse, Phase.generate], deadline=None)
@given(recipe=RECIPES)
def test_it_is_the_report(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> None:
    """Each part is what the report inlines, and each section is in it: with attempts, NaN, holes, several machines."""
    directory = tmp_path_factory.mktemp("drawn") / "run"
    run = made(recipe)
    write(run, directory)
    pages = RunPages()
    with pytest.MonkeyPatch.context() as moment:
        moment.setattr(time, "time_ns", lambda: run.now)
        page = page_with_all(pages, directory)
        report = page_of(directory)
    served_parts = {name: json.loads(pages.part(place_of(directory), name)[1]) for name in PARTS}
    pages.close()

    assert served_parts == data_in(report)
    assert [section.id for section in page.sections if section.id != "now" and section.html not in report] == []
    assert page.header.partition("</h1>")[2].partition('<div class="buttons">')[0].removesuffix("</header>") in report


def test_the_title_has_the_numbers_of_the_verdict(tmp_path: Path) -> None:
    """Both are of the present, although the archive is a few steps behind."""
    record(tmp_path, Shape(steps=6, ends=""))
    written(tmp_path)
    pages = RunPages()
    page = page_with_all(pages, tmp_path)
    pages.close()

    assert "812 of 1,200 steps" in page.header
    assert "812 steps of 1,200" in str(page.sections[0].html)


def test_what_is_known_is_not_sent_again(tmp_path: Path) -> None:
    """A section whose digest is known comes without its content; one that is not comes with it."""
    record(tmp_path, Shape(steps=6))
    pages = RunPages()
    page = page_with_all(pages, tmp_path)
    known = {section.digest for section in page.sections[1:]}
    again = pages.page(place_of(tmp_path), known)
    pages.close()

    assert [section.id for section in again.sections if section.html is not None] == ["verdict"]


def test_a_run_that_goes_on_is_read_again(tmp_path: Path) -> None:
    """Newer files give other digests of what they change, and the same of what they do not."""
    steps = growing(tmp_path, Shape(steps=9, ends=""))
    list(islice(steps, 6))
    pages = RunPages()
    before = page_with_all(pages, tmp_path)
    list(steps)
    until(lambda: pages.page(place_of(tmp_path), ()).parts["steps"] != before.parts["steps"])
    after = pages.page(place_of(tmp_path), ())
    pages.close()

    assert after.parts["samples"] == before.parts["samples"]


def test_an_ended_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its files are the same, it is not read again, however often somebody asks."""
    record(tmp_path, Shape(steps=6))
    monkeypatch.setattr("otel_rl.look.ui.budget.EVERY_S", 0.0)
    monkeypatch.setattr("otel_rl.look.ui.budget._SHARE", 1e9)
    pages = RunPages()
    made_at = {page_with_all(pages, tmp_path).header for _ in range(5)}
    pages.close()

    assert len(made_at) == 1


def test_the_page_of_an_ended_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server shows it without reading the run; a file that was cut, and another state of the run, are read."""
    run, cache = record(tmp_path / "run", Shape(steps=6)), tmp_path / "kept"
    cache.mkdir()

    def shown() -> tuple[RunPage, dict[str, bytes]]:
        pages = RunPages(cache=cache)
        page = page_with_all(pages, run)
        parts = {name: pages.part(place_of(run), name)[1] for name in PARTS}
        pages.close()
        return page, parts

    first = shown()
    with monkeypatch.context() as patch:
        patch.setattr("otel_rl.look.ui.run_page.RunMoment", None)
        assert shown() == first
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_bytes(kept.read_bytes()[:-100])
    assert shown() == first
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    writer.add(Row(6, STARTED + 10**12, {"reward": 0.5}))
    writer.save(seals=True)
    assert shown()[1]["steps"] != first[1]["steps"]


def test_a_run_is_read_once_for_list_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list takes the facts that the page of a run has read, and the page those of an ended run from the list."""
    record(tmp_path / "ended", Shape(steps=6))
    written(record(tmp_path / "live", Shape(steps=6, ends="")))
    read: list[str] = []
    for module in ("page.moment", "ui.verdicts"):

        def counted(recorded: RecordedRun, by: str = module) -> Facts:
            read.append(f"{recorded.place.path.name} for {by}")
            return facts_of_recorded(recorded)

        monkeypatch.setattr(f"otel_rl.look.{module}.facts_of_recorded", counted)
    monkeypatch.setattr("otel_rl.look.ui.budget.EVERY_S", 600.0)

    def has_all(page: Served, key: str) -> bool:
        return len(page.get(f"/run/{key}").value["parts"]) == len(PARTS)

    with served(tmp_path) as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        for line in page.runs()["runs"]:
            until(partial(has_all, page, line["key"]))

    assert sorted(read) == ["ended for ui.verdicts", "live for ui.verdicts"]


def test_processes_of_now(tmp_path: Path) -> None:
    """Each process has a row with its phase and since when, and what it waits for: the words of `otel-rl top`."""
    record(tmp_path, Shape(steps=6, ends=""))
    owed = wait("rank 1", "collective", "update_actor", ("rank 0",), age_s=95)
    written(tmp_path, processes=[process(0), process(1, step=None, phases=())], waits=[owed])
    pages = RunPages()
    page = page_with_all(pages, tmp_path)
    pages.close()

    (now,) = [section for section in page.sections if section.id == "now"]
    assert page.sections.index(now) == 1
    text = re.sub("<[^>]+>", " ", str(now.html))
    assert re.search(r"rank 0 node0 \d+ s generate 812", " ".join(text.split()))
    assert "waits for rank 0 in update_actor" in text


def test_the_archive_is_saved_often_while_somebody_looks(tmp_path: Path) -> None:
    """The page asks the agent of a run that goes on for it, and not that of an ended one."""
    written(tmp_path / "live")
    record(tmp_path / "ended", Shape(steps=3))
    pages = RunPages()
    held = {name: pages.page(place_of(tmp_path / name), ()).is_held for name in ("live", "ended")}
    pages.close()

    assert held == {"live": True, "ended": False}
    assert [path.parent.name for path in tmp_path.rglob("watched")] == ["live"]


def test_who_asks_for_what_is_not_there(tmp_path: Path) -> None:
    """An unknown run, an unknown part, and a run that was removed while somebody looked are not found."""
    record(tmp_path / "a", Shape(steps=3))
    with served(tmp_path) as page:
        (line,) = page.runs()["runs"]
        until(lambda: "steps" in page.get(f"/run/{line['key']}").value["parts"])
        answers = [page.get(f"/run/{'0' * 16}"), page.get(f"/run/{line['key']}/part/nothing")]
        shutil.rmtree(tmp_path / "a")
        until(lambda: page.runs()["runs"] == [])
        answers.append(page.get(f"/run/{line['key']}"))

    assert [answer.status for answer in answers] == [404, 404, 404]


def test_a_part_that_the_browser_has(tmp_path: Path) -> None:
    """It is not sent again while its digest is the same."""
    record(tmp_path / "a", Shape(steps=3))
    with served(tmp_path) as page:
        path = f"/run/{page.runs()['runs'][0]['key']}"
        until(lambda: "curves" in page.get(path).value["parts"])
        digest = page.get(path).value["parts"]["curves"]
        answer = page.get(f"{path}/part/curves", **{"If-None-Match": f'"{digest}"'})

    assert answer.status == 304
