"""The lines of several runs over each other, and how they differ, as the page gets them."""

from __future__ import annotations

import base64
import gzip
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from otel_rl.look.insight.compare.columns import compare_each
from otel_rl.look.reader.runs import open_run
from otel_rl.look.ui.index import key_of
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, served

Packed = dict[str, Any]


def numbers(column: Packed) -> np.ndarray[Any, Any]:
    """Return what `decode.js` reads."""
    kind = np.dtype(column["kind"]).newbyteorder("<")
    data = np.frombuffer(gzip.decompress(base64.b64decode(column["data"])), np.uint8)
    return np.ascontiguousarray(data.reshape(kind.itemsize, -1).T).view(kind).ravel()


@pytest.fixture
def page(tmp_path: Path):  # type: ignore[no-untyped-def] # a generator of the page
    for name, shape in {
        "a": Shape(name="a", steps=50, resumed_at=30),
        "b": Shape(name="b", steps=80, nan_from=60, names=("odd, name & more",)),
        "c": Shape(name="c", steps=4100, metrics=0),
    }.items():
        record(tmp_path / name, shape)
    with served(tmp_path) as one:
        yield one


def curves(page: Served, tmp_path: Path, runs: str, *names: str, more: str = "") -> Any:
    """Return lines of runs by their directories."""
    keys = ",".join(key_of(tmp_path / name) for name in runs)
    return page.get(f"/curves?runs={keys}{''.join(f'&names={quote(name)}' for name in names)}{more}").value


def test_every_value_of_a_short_run(page: Served, tmp_path: Path) -> None:
    """Each step is a point with its value, bit for bit, and values that are not finite are counted."""
    answer = curves(page, tmp_path, "ab", "loss", "odd, name & more")
    rows = open_run(tmp_path / "a").rows("loss")
    first, second, odd = answer["lines"]

    assert [run["every"] for run in answer["runs"]] == [1, 1]
    assert numbers(answer["axes"][first["axis"]]).tolist() == rows["step"].tolist()
    assert numbers(first["values"]).tolist() == rows["value"].tolist()
    assert (first["low"], first["not_finite"]) == (None, None)
    assert (second["run"], second["not_finite"]) == (1, {"count": 20, "first": 60})
    assert (odd["run"], odd["name"]) == (1, "odd, name & more")


def test_a_long_run_has_ranges(page: Served, tmp_path: Path) -> None:
    """A point has the lowest, the highest and the mean value of its steps, and the answer says how many they are."""
    answer = curves(page, tmp_path, "c", "kl")
    (line,), every = answer["lines"], answer["runs"][0]["every"]
    values = open_run(tmp_path / "c").rows("kl")["value"]
    parts = [values[at : at + every] for at in range(0, len(values), every)]

    assert every > 1
    assert len(parts) <= 600
    assert numbers(line["low"]).tolist() == [part.min() for part in parts]
    assert numbers(line["high"]).tolist() == [part.max() for part in parts]
    assert numbers(line["values"]) == pytest.approx([part.mean() for part in parts])


def test_the_main_metrics_of_all_runs(page: Served, tmp_path: Path) -> None:
    """Without names, the main metrics are drawn, and all names are listed behind them."""
    answer = curves(page, tmp_path, "ab")

    assert answer["drawn"][0] == "reward"
    assert answer["names"][: len(answer["drawn"])] == answer["drawn"]
    assert {"train/extra_3", "odd, name & more"} <= {*answer["names"][answer["main"] :]}


def test_over_time(page: Served, tmp_path: Path) -> None:
    """The axis can be the time from the start of each run to the end of the step."""
    answer = curves(page, tmp_path, "a", "reward", more="&x=time")
    xs = numbers(answer["axes"][0])

    assert xs.tolist() == sorted(xs)
    assert 5 < xs[0] < 20
    assert answer["runs"][0]["last"] == pytest.approx(xs[-1])
    assert xs[20] - xs[19] > 180  # the run was down, and the second attempt repeats from step 20 on


def test_what_the_browser_has(page: Served, tmp_path: Path) -> None:
    """The tag is that of the files and of the question; with it, nothing is sent again until a file changes."""
    path = f"/curves?runs={key_of(tmp_path / 'a')}&names=loss"
    first = page.get(path)
    again = page.get(path, **{"If-None-Match": first.headers["etag"]})
    other = page.get(path + "&x=time", **{"If-None-Match": first.headers["etag"]})
    next((tmp_path / "a").rglob("rows/*.parquet")).unlink()
    lost = page.get(path, **{"If-None-Match": first.headers["etag"]})

    assert [reply.status for reply in (first, again, other, lost)] == [200, 304, 200, 200]


def test_a_run_that_is_gone(page: Served, tmp_path: Path) -> None:
    """It is left out, as a key that is none, and the other ones are drawn."""
    shutil.rmtree(tmp_path / "b")
    answer = page.get(f"/curves?runs={key_of(tmp_path / 'a')},{'0' * 16},..%2F..%2Fetc&names=loss").value

    assert [run["key"] for run in answer["runs"]] == [key_of(tmp_path / "a")]


@pytest.mark.parametrize("asked", ["names=x&" * 30, "x=wall", f"runs={','.join('abcdef' for _ in range(9))}&x=step%00"])
def test_too_much(page: Served, asked: str) -> None:
    """More than a page draws, and an axis that is none, are refused."""
    assert page.get(f"/curves?{asked}").status == 400


def test_how_runs_differ(page: Served, tmp_path: Path) -> None:
    """The sentences and numbers are those of `otel-rl compare`, of each run with the baseline."""
    keys = {name: key_of(tmp_path / name) for name in "ab"}
    said = page.get(f"/compared?runs={','.join(keys.values())}&baseline={keys['b']}").value
    own = compare_each(open_run(tmp_path / "b"), [open_run(tmp_path / "a")])

    assert said["base"] == keys["b"]
    assert said["sentences"] == [*own.sentences]
    assert said["steps"] == [own.first, own.last]
    assert len(said["metrics"]["lines"]) == len(own.metrics)


def test_runs_that_cannot_be_compared(page: Served, tmp_path: Path) -> None:
    """The answer says why."""
    record(tmp_path / "none", Shape(name="none", steps=0))
    alone = page.get(f"/compared?runs={key_of(tmp_path / 'a')}").value
    empty = page.get(f"/compared?runs={key_of(tmp_path / 'a')},{key_of(tmp_path / 'none')}").value

    assert alone["refused"] == "one run is not compared with itself"
    assert "no steps to compare" in empty["refused"]


def test_names_by_an_expression(page: Served, tmp_path: Path) -> None:
    """It finds names by RE2, where a browser's own would never end; one that cannot be read is said."""
    found = curves(page, tmp_path, "ab", more="&find=" + quote("^LOSS$|odd"))
    endless = curves(page, tmp_path, "ab", more="&find=" + quote("^(a+)+$"))
    broken = curves(page, tmp_path, "ab", more="&find=" + quote("(loss"))

    assert (found["drawn"], found["found"], found["refused"]) == (["loss", "odd, name & more"], 2, "")
    assert (endless["drawn"], endless["refused"]) == ([], "")
    assert broken["refused"].startswith("(loss is not a regular expression")
    assert broken["drawn"] == []
