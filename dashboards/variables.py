"""The variables, filters and annotations of all dashboards, and the needs of panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model

from dashboards.expressions import promql
from otel_rl import semconv

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")
FILTERS = {semconv.RUN_ID: '=~"$run"', semconv.ROLE: '=~"$role"', semconv.RANK: '=~"$rank"'}
"""The filters of a dashboard; each is added to the metrics that have the attribute."""
NEEDS = {
    "tokens": "Needs a trainer that says how many tokens it works on.",
    "samples": "Needs a trainer that says how many samples it works on.",
    "mfu": "Needs `flops.parameters` and `flops.peak`.",
    "evaluation": "Needs evaluations.",
    "parts": "Needs phases with parts.",
    "gpu": "Needs a GPU.",
    "torch_device": "Needs torch on a device.",
    "statistics": "Needs a trainer that logs more than the mean, or samples.",
    "components": "Needs a trainer with several reward functions.",
    "score": "Needs a trainer that logs scores beside rewards.",
    "groups": "Needs a trainer that tells groups apart.",
    "clipping": "Needs a trainer that logs what is clipped.",
    "ratio": "Needs a trainer that logs ratios.",
    "advantages": "Needs a trainer that logs advantages.",
    "mismatch": "Needs a trainer that compares engine and trainer.",
    "truncation": "Needs a trainer that logs what is cut off.",
    "agents": "Needs environments with turns.",
    "gradient": "Needs a trainer that logs it.",
    "learning_rate": "Needs a trainer that logs its learning rate.",
    "nonfinite": "Empty as long as all is finite.",
    "critic": "Needs a critic.",
    "asynchronous": "Needs `run.trajectory`, `run.trained`, `run.queue`, or a framework that logs these.",
    "aborted": "Needs a trainer that logs what is aborted.",
    "trajectory_parts": "Needs `trajectory.part`.",
    "engines": "Needs `hardware.engines`.",
    "ranks": "Needs two ranks or more.",
    "incomplete": "Empty as long as all rows are complete.",
    "refused": "Empty as long as nothing is refused.",
    "hardware_failures": "Empty as long as all can be measured.",
    "unknown_names": "Needs names that no dialect knows.",
}
_ALL = ".*"


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of a dashboard: name, label, query of its values, and whether only one can be selected."""

    name: str
    label: str
    values: str
    one: bool = False


_RUNS = 'query_result(max by (@run) (max_over_time(<rl.run.info rl.framework=~"$framework">[$__range])))'
_OF_EVERY_BOARD = (
    Variable("framework", "Framework", "label_values(<rl.run.info>, rl_framework)"),
    Variable("run", "Run", _RUNS),
    Variable("attempt", "Attempt", 'label_values(<rl.run.info rl.run.id=~"$run">, rl_run_attempt)'),
    Variable("role", "Role", 'label_values(<rl.rank.phase.time rl.run.id=~"$run">, rl_role)'),
    Variable("rank", "Rank", 'label_values(<rl.rank.phase.time rl.run.id=~"$run">, rl_rank)'),
)
RUN_REGEX = '/rl_run_id="(?<value>[^"]+)".*rl_run_name="(?<text>[^"]+)"/'
"""Extracts id and name of a run from Grafana's representation of a series."""


def of_every_board() -> list[Any]:
    """Return the variables of all dashboards."""
    return [
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        dashboard.DatasourceVariable("traces").label("Traces").type("tempo"),
        *map(built, _OF_EVERY_BOARD),
    ]


def built(variable: Variable) -> Any:
    """Return a variable in Grafana's format."""
    made = (
        dashboard.QueryVariable(variable.name).label(variable.label).query(promql(variable.values)).datasource(SOURCE)
    )
    made = made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
    if variable.values is _RUNS:  # "all" means the listed runs, of the selected frameworks
        return made.regex(RUN_REGEX).multi(True).include_all(True)
    return made if variable.one else made.multi(True).include_all(True).all_value(_ALL)


def queries(more: Iterable[Variable] = ()) -> dict[str, str]:
    """Return the PromQL of the values of all dashboards' variables, and of further ones."""
    return {variable.name: _as_promql(promql(variable.values)) for variable in (*_OF_EVERY_BOARD, *more)}


def _as_promql(query: str) -> str:
    """Convert Grafana's query of label values to PromQL."""
    asked, _, inside = query.removesuffix(")").partition("(")
    if asked == "query_result":
        return inside
    selector, _, label = inside.rpartition(", ")
    return f"count by ({label}) ({selector})"


_MARKS = {
    "Starts": ("green", "<rl.run.started.timestamp> * 1000", "{{rl_run_name}} begins"),
    "Evaluations": (
        "blue",
        """sum by (@run, rl_phase)
        (increase(<rl.phase.duration:count rl.phase=~".*(eval|valid|testing).*">[$__interval])) > 0""",
        "{{rl_run_name}} {{rl_phase}}",
    ),
    "Checkpoints": (
        "purple",
        """sum by (@run, rl_phase)
        (increase(<rl.phase.duration:count rl.phase=~".*(checkpoint|save).*">[$__interval])) > 0""",
        "{{rl_run_name}} {{rl_phase}}",
    ),
    "Hangs": (
        "orange",
        'ALERTS{alertname=~"RLPhaseHung|RLStalled|RLWaitBroken", alertstate="firing", rl_run_id=~"$run"}',
        "{{rl_run_name}} {{rl_phase}}",
    ),
    "Crashes": (
        "red",
        "sum by (@run, rl_rank, rl_role) (increase(<rl.processes.lost>[$__interval])) > 0",
        "{{rl_run_name}} {{rl_role}} rank {{rl_rank}}",
    ),
}
"""The annotations on all panels: color, PromQL and text by name."""


def annotation_queries() -> dict[str, str]:
    """Return the PromQL of the annotations by name."""
    return {name: promql(query, FILTERS) for name, (_, query, _) in _MARKS.items()}


def marks() -> list[Any]:
    """Return the annotations of starts, evaluations, checkpoints, hangs and crashes."""
    made = []
    for name, (color, query, text) in _MARKS.items():
        one = dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(color)
        one = one.expr(promql(query, FILTERS)).title_format(name).text_format(text)
        made.append(one.use_value_for_time(name == "Starts"))
    return made
