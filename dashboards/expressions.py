"""Templates of PromQL with the registry's names.

`<rl.train.kl rl.kl.from="reference">` selects the series of a metric with these attributes; `<rl.loop.duration:sum>`
selects one of the series of a histogram. `@run` is the list of labels that identify a run. The result works for scraped
metrics, and for metrics that Prometheus receives over OTLP, where a gauge with unit 1 is called `…_ratio`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.semconv import registry
from otel_rl.semconv.registry import prometheus_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERIES = re.compile(r"<([a-z][\w.]*)(?::(sum|count|bucket))?((?:\s+[\w.]+\s*(?:=~|!~|!=|=)\s*\"[^\"]*\",?)*)\s*>")
_MATCHER = re.compile(r"([\w.]+)\s*(=~|!~|!=|=)\s*(\"[^\"]*\")")
_RUN = (semconv.RUN_ID, semconv.RUN_NAME)
_OF_THE_RESOURCE = (*_RUN, semconv.RUN_PROJECT)


def promql(template: str, filters: Mapping[str, str] | None = None) -> str:
    """Return the PromQL of a template.

    Args:
        template: PromQL with names in angle brackets.
        filters: Matchers, such as `=~"$rank"`, by attribute; each is added to the metrics that have the attribute.

    Raises:
        ValueError: The metric is unknown, or does not have the attribute.
    """
    expression = _SERIES.sub(lambda match: _selector(match, filters or {}), " ".join(template.split()))
    return expression.replace("@run", ", ".join(label(name) for name in _RUN))


def label(attribute: str) -> str:
    """Return the label of an attribute in Prometheus."""
    return re.sub(r"\W", "_", attribute)


def _selector(match: re.Match[str], filters: Mapping[str, str]) -> str:
    name, part, told = match[1], match[2], _MATCHER.findall(match[3])
    metric = registry.metrics().get(name)
    if metric is None:
        raise ValueError(f"unknown metric {name}")
    if (metric.instrument == "histogram") != bool(part):
        raise ValueError(f"{name}: :sum, :count and :bucket are required for histograms, and only for them")
    known = (*metric.attribute_names, *_OF_THE_RESOURCE, *(("le",) if part == "bucket" else ()))
    for attribute, _, _ in told:
        if attribute not in known:
            raise ValueError(f"{name} does not have the attribute {attribute}")
    given = {attribute for attribute, _, _ in told}
    common = [(a, how) for a, how in filters.items() if a in known and a not in given]
    matchers = [f"{label(a)}{how}" for a, how in common] + [f"{label(a)}{how}{value}" for a, how, value in told]
    scraped = prometheus_name(metric) + (f"_{part}" if part else "")
    if metric.unit == "1" and metric.instrument == "gauge":
        scraped, matchers = "", [f'__name__=~"{scraped}(_ratio)?"', *matchers]
    return scraped + ("{" + ", ".join(matchers) + "}" if matchers else "")
