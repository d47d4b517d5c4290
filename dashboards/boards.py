"""Grafana dashboards from the files in `boards/`, built with Grafana's SDK.

They are in Grafana's classic format, which Grafana 10 to 13 import. Every query uses the variables that all boards
share. One of them is the attempt, which limits each query to the time range of that attempt.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, StackingConfig, VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model

from dashboards import variables
from dashboards.expressions import promql
from dashboards.rules import RUNBOOK
from otel_rl import semconv

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOARDS = Path(__file__).with_name("boards")
_TAG = "otel-rl"
_SCREEN = 24
_HEIGHTS = {"stat": 4, "timeseries": 8, "bargauge": 8}
_ATTEMPT = '<rl.run.info rl.run.attempt=~"$attempt">'
Kind = Literal["timeseries", "stat", "bargauge"]
Thresholds: TypeAlias = list[tuple[float | None, str]]


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A panel in a file."""

    title: str  # the title, in a few words
    what: str  # the description, shown as a tooltip
    unit: str  # Grafana's id of the unit
    show: list[tuple[str, str]]  # the queries: PromQL with names of the registry, and the legend
    kind: Kind = "timeseries"  # the type of panel
    width: int = 8
    height: int = 0
    legend: Literal["bottom", "right"] = "bottom"  # the placement of the legend
    needs: str = ""  # what a run must have for the panel to show data; empty if every run has it
    alert: str = ""  # the alert on the same value; the panel links to its entry in the runbook
    traces: bool = False  # if true, the panel links to the traces of steps
    always: bool = False  # if true, the query selects its runs itself
    names: bool = False  # if true, a number is shown with the name of its series
    stack: bool = False
    min: float | None = None
    max: float | None = None
    decimals: int | None = None
    thresholds: Thresholds = msgspec.field(default_factory=lambda: [(None, "green")])


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Panels that answer one question."""

    title: str
    panels: list[Panel]


class Board(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dashboard in a file."""

    title: str
    uid: str
    what: str
    rows: list[Row]
    variables: list[variables.Variable] = []


def boards() -> dict[str, Board]:
    """Return the dashboards by file name."""
    return {path.stem: read(path) for path in sorted(_BOARDS.glob("*.yaml"))}


def read(path: Path) -> Board:
    """Read the dashboard in a file.

    Raises:
        msgspec.ValidationError: The file has an invalid or unknown field.
    """
    return msgspec.yaml.decode(path.read_bytes(), type=Board)


def queries(panel: Panel) -> list[str]:
    """Return the PromQL of a panel, with Grafana's variables in it."""
    found = []
    for template, _ in panel.show:
        within = template if panel.always or "$series" in template else f"({template}) and on (rl_run_id) {_ATTEMPT}"
        found.append(promql(within, variables.FILTERS))
    return found


def grafana_json(board: Board) -> str:
    """Return the JSON that Grafana imports."""
    built = dashboard.Dashboard(board.title).uid(board.uid).description(board.what).tags([_TAG])
    built = built.editable().refresh("30s").time("now-1h", "now").tooltip(model.DashboardCursorSync.CROSSHAIR)
    built = built.link(_to_the_others())
    for variable in (*variables.of_every_board(), *map(variables.built, board.variables)):
        built = built.with_variable(variable)
    for annotation in variables.marks():
        built = built.annotation(annotation)
    ids = itertools.count(1)
    top = 0
    for row in board.rows:
        built = built.with_row(dashboard.Row(row.title).id(next(ids)).grid_pos(model.GridPos(1, _SCREEN, 0, top)))
        top += 1
        for panel, place in _placed(row.panels, top):
            built = built.with_panel(_panel(panel).id(next(ids)).grid_pos(place))
            bottom = place.y + place.h
        top = bottom
    return str(JSONEncoder(sort_keys=True, indent=2).encode(built.build())) + "\n"


def _placed(panels: list[Panel], top: int) -> Iterator[tuple[Panel, model.GridPos]]:
    """Yield each panel with its position: from left to right, in lines as high as their highest panel."""
    left = height = 0
    for panel in panels:
        if left + panel.width > _SCREEN:
            left, top, height = 0, top + height, 0
        place = model.GridPos(panel.height or _HEIGHTS[panel.kind], panel.width, left, top)
        left, height = left + panel.width, max(height, place.h)
        yield panel, place


def _panel(panel: Panel) -> Any:
    built = {"timeseries": _timeseries, "stat": _stat, "bargauge": _bargauge}[panel.kind](panel)
    description = panel.what if not panel.needs else f"{panel.what} {variables.NEEDS[panel.needs]}"
    built = built.title(panel.title).description(description).unit(panel.unit).datasource(variables.SOURCE)
    steps = [model.Threshold(value, color) for value, color in panel.thresholds]
    built = built.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    for option in ("min", "max", "decimals"):
        if getattr(panel, option) is not None:
            built = getattr(built, option)(getattr(panel, option))
    for letter, expression, (_, legend) in zip("ABCDEFGH", queries(panel), panel.show, strict=False):
        query = prometheus.Dataquery().expr(expression).legend_format(legend or "__auto").ref_id(letter)
        query = query.range() if panel.kind == "timeseries" else query.instant()
        built = built.with_target(query.exemplar(True) if panel.traces and "_bucket" in expression else query)
    if panel.alert:
        built = built.links(
            [dashboard.DashboardLink(f"Runbook: {panel.alert}").url(f"{RUNBOOK}#{panel.alert.lower()}")]
        )
    return built.data_links([_to_traces()]) if panel.traces else built


def _timeseries(panel: Panel) -> Any:
    built = timeseries.Panel().line_width(1).fill_opacity(30 if panel.stack else 8).span_nulls(False)
    if panel.stack:
        built = built.stacking(StackingConfig().mode(common_model.StackingMode.NORMAL))
    legend = VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST).show_legend(True)
    return built.legend(legend.placement(common_model.LegendPlacement(panel.legend)).calcs(["lastNotNull"]))


def _stat(panel: Panel) -> Any:
    mode = common_model.BigValueTextMode
    built = stat.Panel().graph_mode(common_model.BigValueGraphMode.NONE).reduce_options(_last())
    return built.color_mode(common_model.BigValueColorMode.VALUE).text_mode(
        mode.VALUE_AND_NAME if panel.names else mode.AUTO
    )


def _bargauge(_: Panel) -> Any:
    built = bargauge.Panel().orientation(common_model.VizOrientation.HORIZONTAL).reduce_options(_last())
    return built.display_mode(common_model.BarGaugeDisplayMode.GRADIENT)


def _last() -> Any:
    return ReduceDataOptions().calcs(["lastNotNull"])


def _to_the_others() -> Any:
    link = dashboard.DashboardLink("RL").type(model.DashboardLinkType.DASHBOARDS).tags([_TAG]).as_dropdown(True)
    return link.include_vars(True).keep_time(True)


def _to_traces() -> Any:
    """Return a link to Grafana's Explore with the steps of the clicked series' run, in the visible time range."""
    run = f'resource.{semconv.RUN_ID}="${{__field.labels.rl_run_id}}"'
    query = {"refId": "A", "queryType": "traceql", "query": f'{{ {run} && name="{semconv.SPAN_LOOP}" }}'}
    panes = {"rl": {"datasource": "${traces}", "queries": [query], "range": {"from": "${__from}", "to": "${__to}"}}}
    url = f"/explore?schemaVersion=1&panes={msgspec.json.encode(panes).decode()}"
    return dashboard.DashboardLink("Traces of steps").url(url).target_blank(True)
