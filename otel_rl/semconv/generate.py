"""Writes what follows from the registry: this package's constants, and the table of metrics for people.

`python -m otel_rl.semconv.generate` in a checkout, after the registry was changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.semconv import registry

if TYPE_CHECKING:
    from otel_rl.semconv.registry import Group

_ROOT = Path(__file__).parents[2]
_CONSTANTS_HEAD = '''"""Every name that otel-rl emits, as a constant; `generate` writes this file from `model/`.

`rl.*` follows open-telemetry/semantic-conventions-genai#88 where that proposal has a name. Rooms above it and
exporters import it.
"""

from __future__ import annotations

'''
_TABLE_HEAD = """# Metrics

Made by `python -m otel_rl.semconv.generate` from the registry in `otel_rl/semconv/model/`. All gauges hold the
latest value. Where a name comes from: genai#88 is open-telemetry/semantic-conventions-genai#88; hw, process,
system and gen_ai are OpenTelemetry's own conventions. Reducer: how the values of several ranks become one,
where that is not their mean; a name that says `max`, `min` or `sum` itself is reduced by that.

| metric | in Prometheus | instrument | unit | attributes | what | reducer | source |
|---|---|---|---|---|---|---|---|
"""
_PREFIXES = {"metric": "METRIC_", "event": "EVENT_", "span": "SPAN_"}
_UNITS_IN_PROMETHEUS = {
    "s": "seconds",
    "By": "bytes",
    "By/{step}": "bytes",
    "By/s": "bytes_per_second",
    "J": "joules",
    "W": "watts",
    "Hz": "hertz",
    "Cel": "celsius",
}


def outputs() -> dict[Path, str]:
    """Return the content of each file that follows from the registry, by its path in the checkout."""
    return {
        Path("otel_rl/semconv/__init__.py"): _CONSTANTS_HEAD + _constants(),
        Path("docs/reference/metrics.md"): _TABLE_HEAD + "".join(map(_line, registry.metrics().values())),
    }


def prometheus_name(metric: Group) -> str:
    """Return what a metric is called when it is scraped; a histogram's series have suffixes more."""
    name = re.sub(r"\W", "_", metric.metric_name)
    unit = "per_second" if metric.unit.endswith("}/s") else _UNITS_IN_PROMETHEUS.get(metric.unit, "")
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    return f"{name}_total" if metric.instrument == "counter" else name


def _constants() -> str:
    names: dict[str, str] = {}
    for group in registry.groups():
        if group.type == "attribute_group":
            names |= {_constant(attribute): attribute for attribute in group.attribute_names}
        elif group.type in _PREFIXES:
            name = group.metric_name or group.name
            names[_PREFIXES[group.type] + _constant(name)] = name
    return "".join(f'{constant} = "{name}"\n' for constant, name in sorted(names.items()))


def _constant(name: str) -> str:
    return re.sub(r"\W", "_", name.removeprefix("rl.")).upper()


def _line(metric: Group) -> str:
    attributes = ", ".join(f"`{name}`" for name in metric.attribute_names)
    cells = (
        f"`{metric.metric_name}`",
        f"`{prometheus_name(metric)}`",
        metric.instrument or "",
        metric.unit and f"`{metric.unit}`",
        attributes,
        metric.brief,
        metric.reduce,
        metric.source,
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    for path, text in outputs().items():
        place = _ROOT / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
