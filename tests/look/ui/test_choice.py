"""Which runs the list of the page shows, in which order: those of `otel-rl ls`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from otel_rl.look.ui.index import key_of
from otel_rl.recorder.archive.marks import FILE
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, served, until


@pytest.fixture
def page(tmp_path: Path):  # type: ignore[no-untyped-def] # a generator of the page
    record(tmp_path / "a", Shape(name="short", steps=5))
    record(tmp_path / "b", Shape(name="long", steps=30, project="math"))
    record(tmp_path / "c", Shape(name="hidden", steps=9))
    (tmp_path / "c" / FILE).write_text('{"archived": true, "tags": ["old"], "notes": "too slow"}')
    with served(tmp_path) as one:
        until(lambda: all(line["has_verdict"] for line in one.runs()["runs"]))
        yield one


def found(page: Served, **asked: Any) -> Any:
    """Return what the page gets."""
    return page.get(f"/found?{urlencode(asked, doseq=True)}").value


def test_groups(page: Served, tmp_path: Path) -> None:
    """They are those of `ls --group`, with the best run of each; without one, all runs are one group."""
    groups = found(page, group="project", all=1)["groups"]
    (whole,) = found(page, all=1)["groups"]

    assert [(group["label"], sorted(group["keys"])) for group in sorted(groups, key=lambda group: group["label"])] == [
        ("grpo-gsm8k", sorted(keys(tmp_path, "ac"))),
        ("math", keys(tmp_path, "b")),
    ]
    assert sorted(whole["keys"]) == sorted(keys(tmp_path, "abc"))
    assert whole["sentences"][0].startswith("grpo-gsm8k: Best of 2")


def keys(tmp_path: Path, names: str) -> list[str]:
    """Return the keys of runs by their directories."""
    return [key_of(tmp_path / name) for name in names]


def test_runs_by_words_labels_and_values(page: Served, tmp_path: Path) -> None:
    """The language is that of `ls --where`; archived runs are left out unless they are asked for."""
    assert sorted(found(page)["keys"]) == sorted(keys(tmp_path, "ab"))
    assert found(page, find="project:math state:finished lr<1e-5")["keys"] == keys(tmp_path, "b")
    assert found(page, find="SHORT")["keys"] == keys(tmp_path, "a")
    assert found(page, find="tag:old", all=1)["keys"] == keys(tmp_path, "c")


def test_the_order(page: Served, tmp_path: Path) -> None:
    """It is that of `ls --sort`, and the other way round where that is asked for."""
    assert found(page, sort="steps", all=1)["keys"] == keys(tmp_path, "bca")
    assert found(page, sort="steps", reverse=1, all=1)["keys"] == keys(tmp_path, "acb")


def test_further_columns(page: Served, tmp_path: Path) -> None:
    """They are parameters and metrics, and nothing where a run has none."""
    (key,) = keys(tmp_path, "a")

    assert found(page, columns=["lr", "num_tokens:max", "none"])["values"][key] == [1e-6, 37445.0, None]


@pytest.mark.parametrize("find", ["state:xyz", "lr>", '"', "a:b"])
def test_a_search_that_cannot_be_read(page: Served, find: str) -> None:
    """The answer says why, in the words of `ls`."""
    answer = found(page, find=find)

    assert answer["refused"]
    assert answer["keys"] == []


def test_marks(page: Served) -> None:
    """A line has the tags and notes of its run."""
    (line,) = [line for line in page.runs()["runs"] if line["name"] == "hidden"]

    assert (line["tags"], line["notes"]) == (["old", "archived"], "too slow")
