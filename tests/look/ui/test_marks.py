"""Marks from the page: who may change them, and that they are those of `otel-rl tag`, `rm` and Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.look.ui.index import key_of
from otel_rl.recorder.archive.marks import FILE, marks_of
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Reply, Served, served
from tests.security.other_users import NOBODY, needs_root


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has ended."""
    return record(tmp_path / "runs" / "a", Shape(steps=3, name="first"))


@pytest.fixture
def page(run: Path) -> Iterator[Served]:
    """The page over it."""
    with served(run.parent) as one:
        yield one


def post(page: Served, run: Path, token: str | None = None, **change: Any) -> Reply:
    """Post a change of a run."""
    return page.get(f"/run/{key_of(run)}/marks", token, "POST", json.dumps(change).encode())


def reading(page: Served) -> str:
    """Return the token that is shared for reading."""
    return str(page.get("/access").value["reading_token"])


def test_a_change_is_in_the_file_of_all_screens(page: Served, run: Path) -> None:
    """The page writes as `mark` does, and keeps what is not given; the list has it at once."""
    otel_rl.mark(run, add="old", notes="kept")
    page.runs()
    reply = post(page, run, name="best", add=["good"], remove=["old"], baseline=True)

    assert (reply.status, reply.value) == (200, {"name": "best", "tags": ["good"], "notes": "kept", "baseline": True})
    assert marks_of(run) == otel_rl.mark(run)
    (line,) = page.runs()["runs"]
    assert (line["name"], line["tags"], line["notes"]) == ("best", ["good", "baseline"], "kept")


def test_the_marks_of_a_run(page: Served, run: Path) -> None:
    """They come with the name that an empty one brings back."""
    otel_rl.mark(run, name="other")

    assert page.get(f"/run/{key_of(run)}/marks").value == {
        "name": "other",
        "first_name": "first",
        "marks": {"name": "other"},
    }


def test_a_run_is_deleted_after_a_question(page: Served, run: Path) -> None:
    """The question has its size and content; the run is gone from the list at once."""
    page.runs()
    asked = page.get(f"/run/{key_of(run)}/content").value
    assert "archive" in asked["described"]
    assert not asked["refused"]
    assert post(page, run, delete=True).status == 200

    assert not run.exists()
    assert page.runs()["runs"] == []
    assert post(page, run, delete=True).status == 404


def test_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    """It is refused in the words of `otel-rl rm`."""
    run = otel_rl.init(dir=str(tmp_path / "runs"), project="p", agent="off", exporters=[], quiet=True)
    with served(tmp_path / "runs") as page:
        place = Path(run.dir)
        asked = page.get(f"/run/{key_of(place)}/content").value
        reply = post(page, place, delete=True)
    run.finish()

    assert asked["refused"]
    assert reply.status == 403
    assert place.exists()


def test_a_token_for_reading_changes_nothing(page: Served, run: Path) -> None:
    """It reads all that the other one reads; no change is made with it, and the other does not follow from it."""
    token = reading(page)
    assert page.get("/runs", token).status == 200
    assert page.get("/access", token).value == {"may_change": False, "reading_token": token}
    reply = post(page, run, token, name="x")

    assert reply.status == 403
    assert b"for reading" in reply.body
    assert not (run / FILE).exists()
    assert token != page.token


@pytest.mark.parametrize("token", ["", "x" * 43])
def test_nobody_else_changes_anything(page: Served, run: Path, token: str) -> None:
    """Neither without a token nor with another one."""
    assert post(page, run, token, delete=True).status == 401
    assert run.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Host": "evil.example:9470"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
        {"Cookie": "token=anything"},
    ],
)
def test_requests_of_other_sites(page: Served, run: Path, headers: dict[str, str]) -> None:
    """A site that has no token, a name that leads to this machine, and a form that is sent unasked change nothing."""
    path = f"/run/{key_of(run)}/marks"
    reply = page.get(path, "", "POST", b'{"delete": true}', **headers)
    asked = page.get(path, "", "OPTIONS", **headers, **{"Access-Control-Request-Headers": "authorization"})

    assert reply.status == 401
    assert not any(name.startswith("access-control") for name in (*reply.headers, *asked.headers))
    assert run.exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"names": "x"}', b'{"add": "x"}', b'{"add": ["two words"]}', b'{"name": "\\u001b[31m"}'],
)
def test_a_change_that_cannot_be_made(page: Served, run: Path, body: bytes) -> None:
    """It is refused with the reason, and nothing is written."""
    reply = page.get(f"/run/{key_of(run)}/marks", None, "POST", body)

    assert reply.status == 400
    assert reply.body
    assert not (run / FILE).exists()


def test_a_change_that_is_too_large(page: Served, run: Path) -> None:
    """It is not read."""
    assert page.get(f"/run/{key_of(run)}/marks", None, "POST", b" " * 100_000).status == 413


@needs_root
def test_a_run_of_somebody_else(page: Served, run: Path) -> None:
    """It is read, and neither marked nor deleted."""
    import os

    os.chown(run, NOBODY, NOBODY)
    replies = [post(page, run, name="x"), post(page, run, delete=True)]

    assert [reply.status for reply in replies] == [403, 403]
    assert run.exists()
    assert page.get(f"/run/{key_of(run)}/content").value["refused"]


@pytest.mark.parametrize("path", ["/runs", "/found", "/access", "/", "/curves"])
def test_nothing_else_is_changed(page: Served, path: str) -> None:
    """Marks are the only thing that is posted."""
    assert page.get(path, None, "POST", b"{}").status == 405
