"""The dashboards as files: they conform to Grafana's schemas and to otel-rl's own rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dashboards.__main__ import outputs
from dashboards.boards import boards
from dashboards.expressions import promql
from dashboards.variables import FILTERS, RUN_REGEX

_SCHEMAS = Path(__file__).with_name("grafana-schemas")
_MADE = outputs()
_BOARDS = {path.stem: json.loads(text) for path, text in _MADE.items() if path.suffix == ".json"}
every_board = pytest.mark.parametrize("board", _BOARDS.values(), ids=list(_BOARDS))


def panels(board: Any) -> list[Any]:
    """Return the panels, without the headings of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def valid(instance: Any, file: str, definition: str) -> None:
    """Check against a part of one of Grafana's schemas."""
    schema = json.loads((_SCHEMAS / f"{file}.jsonschema.json").read_text())
    jsonschema.validate(instance, {**schema, "$ref": f"#/definitions/{definition}"})


def test_the_files_are_what_is_made() -> None:
    """`python -m dashboards` was run after the last change."""
    for path, text in _MADE.items():
        assert path.read_text() == text, path.name


@every_board
def test_grafanas_schemas(board: Any) -> None:
    """The dashboard, the options of each panel by its kind, and each query."""
    valid(board, "dashboard", "Dashboard")
    for panel in panels(board):
        valid(panel["options"], panel["type"], "Options")
        if panel["type"] == "timeseries":
            valid(panel["fieldConfig"]["defaults"]["custom"], "timeseries", "FieldConfig")
        for target in panel["targets"]:
            valid(target, "prometheus", "Dataquery")


def test_ids() -> None:
    """Of dashboards, and of the panels of each."""
    assert len({board["uid"] for board in _BOARDS.values()}) == len(_BOARDS)
    for board in _BOARDS.values():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)


@every_board
def test_every_panel_says_what_it_is(board: Any) -> None:
    """Title, description, unit and thresholds."""
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert defaults["unit"]
        assert defaults["thresholds"]["steps"]


@every_board
def test_no_data_source_is_hard_coded(board: Any) -> None:
    """Each is the variable's."""
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(board))) == {"${datasource}", board["uid"]}


@every_board
def test_no_two_panels_overlap(board: Any) -> None:
    """On a screen of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells
        taken |= cells


def test_variables() -> None:
    """The same ones in all."""
    for board in _BOARDS.values():
        names = [variable["name"] for variable in board["templating"]["list"]]
        assert names[:7] == ["datasource", "traces", "framework", "run", "attempt", "role", "rank"]


def test_runs_are_chosen_by_their_names() -> None:
    """And known by their ids, as Grafana writes a series in a list of values."""
    pattern = RUN_REGEX.strip("/").replace("(?<", "(?P<")
    found = re.search(pattern, '{rl_run_id="7f3c", rl_run_name="a b"} 1 1700000000000')

    assert found is not None
    assert found.groupdict() == {"value": "7f3c", "text": "a b"}


def test_alerts_that_panels_link_to_are_in_the_runbook() -> None:
    """By the heading that the link goes to."""
    runbook = next(text for path, text in _MADE.items() if path.name == "runbook.md")
    headings = {line.removeprefix("## ") for line in runbook.splitlines() if line.startswith("## ")}
    linked = {panel.alert for board in boards().values() for row in board.rows for panel in row.panels if panel.alert}

    assert linked <= headings


@pytest.mark.parametrize(
    "template", ["<rl.train.nothing>", '<rl.train.kl rl.nothing="x">', "<rl.loop.duration>", "<rl.train.kl:sum>"]
)
def test_what_the_registry_does_not_have_cannot_be_asked_for(template: str) -> None:
    """A metric, an attribute, or a part of a histogram."""
    with pytest.raises(ValueError, match=r"rl\.[\w.]+"):
        promql(template)


def test_both_spellings() -> None:
    """A gauge with unit 1 is called otherwise where Prometheus takes in OTLP."""
    assert promql("<hw.gpu.utilization>", FILTERS) == '{__name__=~"hw_gpu_utilization(_ratio)?", rl_run_id=~"$run"}'
    assert promql("<rl.train.kl>", FILTERS) == 'rl_train_kl{rl_run_id=~"$run"}'
