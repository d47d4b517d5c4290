"""Each alert fires for the series that it is made for, and stays silent for others, by Prometheus's own tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from dashboards import rules
from tests.real_parts import needs_program

pytestmark = needs_program("promtool")
_RULES = rules.read()
_RUN = 'rl_run_id="r", rl_run_name="n"'
_HEARTBEAT = 'rl_telemetry_heartbeat_timestamp_seconds{instance="r/node1"}'
_ALIVE: rules.Series = [(_HEARTBEAT, "0+60x70")]
_DOWN = _RULES.alerts[-1]


def promtool(*arguments: str, directory: Path) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def of_a_run(series: str) -> str:
    name, _, labels = series.partition("{")
    return f"{name}{{{_RUN}, {labels}" if labels else f"{name}{{{_RUN}}}"


class Case(NamedTuple):
    """Series, and how many times an alert fires at a time after their start."""

    alert: rules.Alert
    series: rules.Series
    at: str
    firing: int

    @property
    def told(self) -> dict[str, object]:
        """The case as promtool reads it."""
        expression = f'count(ALERTS{{alertname="{self.alert.name}", alertstate="firing"}}) or vector(0)'
        expected = {"expr": expression, "eval_time": self.at, "exp_samples": [{"labels": "{}", "value": self.firing}]}
        return {
            "interval": "1m",
            "input_series": [{"series": of_a_run(name), "values": values} for name, values in self.series],
            "promql_expr_test": [expected],
        }


def check(cases: Iterable[Case | dict[str, object]], directory: Path) -> None:
    """Let promtool load the series of each case and count alerts that fire; it names the alerts that differ."""
    (directory / "rules.yml").write_text(rules.prometheus_rules(_RULES))
    tests = [case.told if isinstance(case, Case) else case for case in cases]
    told = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (directory / "test.yml").write_text(yaml.safe_dump(told))
    promtool("test", "rules", "test.yml", directory=directory)


def alive(alert: rules.Alert) -> rules.Series:
    return _ALIVE if alert.needs_agent else []


def test_each_fires(tmp_path: Path) -> None:
    """When it is what it is made for."""
    check([Case(one, [*one.fires, *alive(one)], one.at, 1) for one in _RULES.alerts], tmp_path)


def test_each_stays_silent(tmp_path: Path) -> None:
    """When it is not."""
    check([Case(one, [*one.silent, *alive(one)], one.silent_at or one.at, 0) for one in _RULES.alerts], tmp_path)


_IN_GENERATE = 'rl_stalled_processes{rl_phase="generate"'
_ROLLOUT = (f'{_IN_GENERATE}, rl_role="rollout", rl_stall_kind="hung", rl_stall_scope="process"}}', "3x40")
_WAITING = ('rl_stalled_processes{rl_phase="wait", rl_stall_kind="hung", rl_stall_scope="job"}', "4x40")
_GENERATING = (f'{_IN_GENERATE}, rl_stall_kind="hung", rl_stall_scope="job"}}', "2x40")
_SILENT = (f'{_IN_GENERATE}, rl_stall_kind="silent", rl_stall_scope="job"}}', "1x40")
_BROKEN = ('rl_broken_waits{rl_wait_kind="request", rl_wait_cause="dead"}', "2x40")
_HANGS: dict[str, tuple[rules.Series, str, dict[str, str]]] = {
    "a silent machine": ([_SILENT], "RLStalled", {}),
    "a rank that hangs": ([_GENERATING, _SILENT], "RLPhaseHung", {"rl_phase": "generate", "rl_stall_scope": "job"}),
    "ranks that wait for a role": (
        [_WAITING, _GENERATING, _ROLLOUT],
        "RLPhaseHung",
        {"rl_phase": "generate", "rl_role": "rollout", "rl_stall_scope": "process"},
    ),
    "a wait that can never end": (
        [_BROKEN, _WAITING, _ROLLOUT, _SILENT],
        "RLWaitBroken",
        {"rl_wait_kind": "request", "rl_wait_cause": "dead"},
    ),
}


@pytest.mark.parametrize(("series", "name", "labels"), _HANGS.values(), ids=_HANGS)
def test_one_alert_for_one_hang(series: rules.Series, name: str, labels: dict[str, str], tmp_path: Path) -> None:
    """The one that knows most of its cause: of several processes that hang, it is one alert too."""
    shown = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    firing = f'ALERTS{{alertname="{name}", alertstate="firing", {_RUN}, severity="critical"{shown and ", "}{shown}}}'
    expression = 'ALERTS{alertname=~"RLStalled|RLPhaseHung|RLWaitBroken"}'
    expected = {"expr": expression, "eval_time": "35m", "exp_samples": [{"labels": firing, "value": 1}]}
    case = Case(_RULES.alerts[0], [*series, *_ALIVE], "35m", 1).told | {"promql_expr_test": [expected]}
    check([case], tmp_path)


def test_a_dead_agent_says_nothing_about_the_training(tmp_path: Path) -> None:
    """Its last values are shown for a while, and those of its heartbeat."""
    dead = [Case(one, [*one.fires, (_HEARTBEAT, "0x70")], one.at, 0) for one in _RULES.alerts if one.needs_agent]
    check(dead, tmp_path)


def test_an_agent_that_is_silent(tmp_path: Path) -> None:
    """Without scraping there is no `up`: an old heartbeat is the sign, and a series that ended is none."""
    heartbeats = [
        ("0+60x20 1200x4", "24m", 0),  # it may only be late
        ("0+60x20 1200x4", "27m", 1),
        ("0+60x20 1200x4", "45m", 1),  # after the series is gone
        ("0+60x20 1200x4", "55m", 0),
        ("0+60x20 1200x4 _x10 2100+60x20", "45m", 0),  # another agent has taken over
        ("0+60x20 stale", "27m", 0),  # it ended orderly
        ("0+60x60", "45m", 0),
    ]
    check([Case(_DOWN, [(_HEARTBEAT, values)], at, firing) for values, at, firing in heartbeats], tmp_path)


def test_an_agent_that_cannot_be_scraped(tmp_path: Path) -> None:
    """Its target is there, and it has no series."""
    check([Case(_DOWN, [('up{job="otel-rl", instance="node1:9464"}', "1x10 0x30")], "15m", 1)], tmp_path)


def test_the_rules_are_well_formed(tmp_path: Path) -> None:
    """As Prometheus loads them, and faster ones too."""
    for faster in (1, 60):
        (tmp_path / "rules.yml").write_text(rules.prometheus_rules(_RULES, faster))
        assert "SUCCESS" in promtool("check", "rules", "rules.yml", directory=tmp_path)
