"""The ways by which metrics of agents reach Prometheus 3 other than its scrapes of agents, all at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.collector import free_port
from tests.prometheus import Prometheus, running
from tests.servers.running import DEPLOY, Collector

INTERVAL_S = 1
"""Seconds between two exports of an agent, between two scrapes of an agent, and between two evaluations of rules."""
COLLECTOR_S = 2
"""Seconds between two scrapes of the Collector, whose page has the series of all agents."""
BATCH_S = 1
"""Seconds for which the Collector waits for more, as in metrics.yaml."""
WAYS = ("OTLP", "Collector", "remote write")
"""Prometheus' own OTLP receiver, and the exporters `prometheus` and `prometheus_remote_write` of a Collector."""
_TRANSLATING = ("prometheus", "prometheus_remote_write")
"""The exporters of the Collector that translate names; Prometheus does it for the other one."""

NOT_BY_REMOTE_WRITE = ("NoUTF8EscapingWithSuffixes", "NoTranslation")
"""Strategies that the exporter refuses: remote write 1.0 has no names with dots."""


class Ways(NamedTuple):
    """One Prometheus for each of `WAYS`, and the variables with which agents send to all of them."""

    servers: dict[str, Prometheus]
    environment: dict[str, str]


@contextlib.contextmanager
def ways(directory: Path, rules: str = "", strategy: str = "") -> Iterator[Ways]:
    """Start a Collector that exports in all ways, with a Prometheus at the end of each.

    Args:
        directory: Where all of them keep their files.
        rules: The path of a file of rules, if there are any.
        strategy: How names become Prometheus' names; by default, as in the files of deploy/. With some, nothing is
            sent by remote write.
    """
    page = free_port()
    with contextlib.ExitStack() as stack:
        configs = _configs(rules, page, strategy)
        servers = [
            stack.enter_context(_server(directory / way.replace(" ", "-"), config, flag))
            for way, (config, flag) in zip(WAYS, configs, strict=True)
        ]
        otlp, _, written = servers
        settings = {
            "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:0",
            "exporters.prometheus.endpoint": f"127.0.0.1:{page}",
            "exporters.otlp_http/prometheus.endpoint": f"{otlp.url}/api/v1/otlp",
            "exporters.prometheus_remote_write.endpoint": f"{written.url}/api/v1/write",
            "service.pipelines.metrics.exporters": "[prometheus,otlp_http/prometheus,prometheus_remote_write]",
        }
        if strategy:
            settings["exporters.prometheus.translation_strategy"] = strategy
        if strategy in NOT_BY_REMOTE_WRITE:
            settings["service.pipelines.metrics.exporters"] = "[prometheus,otlp_http/prometheus]"
        elif strategy:
            settings["exporters.prometheus_remote_write.translation_strategy"] = strategy
        collector = stack.enter_context(Collector("metrics", directory, settings))
        environment = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{collector.port}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": str(INTERVAL_S * 1000),
        }
        yield Ways(dict(zip(WAYS, servers, strict=True)), environment)


def _configs(rules: str, page: int, strategy: str) -> list[tuple[dict[str, Any], str]]:
    """Return the configuration of the Prometheus of each way, from the files of deploy/, and its flag."""
    often = {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"}
    config = {"global": often, "rule_files": [rules] if rules else []}
    receiving = yaml.safe_load((DEPLOY / "prometheus" / "otlp.yml").read_text())
    if strategy:
        receiving["otlp"]["translation_strategy"] = strategy
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "collector.yml").read_text())
    job |= {"scrape_interval": f"{COLLECTOR_S}s", "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}
    return [
        (config | receiving, "--web.enable-otlp-receiver"),
        (config | {"scrape_configs": [job]}, "--web.enable-lifecycle"),
        (config, "--web.enable-remote-write-receiver"),
    ]


def _server(place: Path, config: dict[str, Any], flag: str) -> contextlib.AbstractContextManager[Prometheus]:
    place.mkdir()
    (place / "prometheus.yml").write_text(json.dumps(config))
    return running(place, flag)
