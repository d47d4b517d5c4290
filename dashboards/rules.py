"""Recording and alerting rules for Prometheus, and the runbook, from `alerts.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from dashboards.expressions import promql

RUNBOOK = "https://github.com/otel-rl/otel-rl/blob/main/docs/how-to/runbook.md"
_RUNBOOK = """# Runbook

Each [alert](alerts.md) has an entry: what it means, what to look at, what to do, and its query. Names in italics are
dashboards and panels. `python -m dashboards` writes this page from `dashboards/alerts.yaml`.

"""
_HEAD = "# Made by `python -m dashboards` from dashboards/alerts.yaml.\n"
_FILE = Path(__file__).with_name("alerts.yaml")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(?<=[\[ (])(\d+)([smh])(?=[\]) ]|$)")
_AS_NUMBER = re.compile(r"@seconds\((\w+)\)")
Series = list[tuple[str, str]]


class Alert(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"lasts": "for"}):
    """An alert, its entry in the runbook, and test series for which it fires and does not fire."""

    name: str  # the name
    severity: Literal["critical", "warning"]  # whether the alert pages someone
    when: str  # the condition: PromQL with names of the registry
    lasts: str  # how long the condition must hold
    summary: str  # one sentence, with Prometheus's templates
    means: str  # the meaning of the alert
    look: str  # where to look for the cause
    do: str  # what to do
    fires: Series  # series for which it fires
    silent: Series  # series for which it does not fire
    needs_agent: bool = True
    """If true, it fires only while an agent of the run is alive: gauges of one that died say nothing. If false, it is
    about events, which counters keep, or about the agent.
    """
    at: str = "35m"  # the time at which it fires
    silent_at: str = ""  # the time at which it does not fire


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules: recorded expressions by name, and alerts."""

    record: dict[str, str]
    alerts: list[Alert]


def read() -> Rules:
    """Read the rules in `alerts.yaml`."""
    return msgspec.yaml.decode(_FILE.read_bytes(), type=Rules)


def prometheus_rules(rules: Rules, faster: int = 1) -> str:
    """Return the rule file that Prometheus loads.

    Args:
        rules: The rules.
        faster: The divisor of all durations, for short tests.
    """
    return _HEAD + _yaml({"groups": _groups(rules, faster)})


def kubernetes_rules(rules: Rules) -> str:
    """Return the same rules for the Prometheus operator."""
    metadata = {"name": "otel-rl", "labels": {"app.kubernetes.io/name": "otel-rl"}}
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata}
    return _HEAD + _yaml(rule | {"spec": {"groups": _groups(rules, 1)}})


def runbook(rules: Rules) -> str:
    """Return the runbook; the link of each alert goes to the heading of its entry."""
    entries = "".join(
        f"## {alert.name}\n\n*{alert.severity.capitalize()}.* {alert.means}\n\n"
        f"**Look at** {alert.look}\n\n**Do** {alert.do}\n\n```\n{_condition(alert)}\n```\n\n"
        for alert in rules.alerts
    )
    return _RUNBOOK + entries.rstrip() + "\n"


def _groups(rules: Rules, faster: int) -> list[dict[str, object]]:
    record = [{"record": name, "expr": _expression(expr, faster)} for name, expr in rules.record.items()]
    alerts = [_alert(alert, faster) for alert in rules.alerts]
    return [{"name": "otel-rl-recorded", "rules": record}, {"name": "otel-rl", "rules": alerts}]


def _yaml(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)


def _alert(alert: Alert, faster: int) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": _condition(alert, faster),
        "for": _shorter(re.fullmatch(r"(\d+)([smh])", alert.lasts), faster),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.means,
            "runbook_url": f"{RUNBOOK}#{alert.name.lower()}",
        },
    }


def _condition(alert: Alert, faster: int = 1) -> str:
    when = _expression(alert.when, faster)
    return f"({when}) and on (rl_run_id) rl:agent_alive" if alert.needs_agent else when


def _expression(template: str, faster: int = 1) -> str:
    written = _AS_NUMBER.sub(lambda match: str(_seconds(match[1]) // faster), template)
    if faster != 1:
        written = _DURATION.sub(lambda match: _shorter(match, faster), " ".join(written.split()))
    return promql(written)


def _shorter(match: re.Match[str] | None, faster: int) -> str:
    if match is None:
        raise ValueError("invalid duration: must be a number with s, m or h")
    seconds = int(match[1]) * _SECONDS[match[2]]
    return match[0] if faster == 1 else f"{seconds * 1000 // faster}ms"


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * _SECONDS[duration[-1]]
