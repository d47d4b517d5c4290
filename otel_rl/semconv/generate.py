"""Generates files from the registry and the dialects: constants, and tables of metrics and frameworks.

Run `python -m otel_rl.semconv.generate` in a checkout after a change of the registry or of a dialect.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.semconv import dialect, registry
from otel_rl.semconv.frameworks import Framework

if TYPE_CHECKING:
    from otel_rl.semconv.registry import Group

_ROOT = Path(__file__).parents[2]
_DIALECTS = _ROOT / "otel_rl/frameworks/dialects"
_FRAMEWORKS = _DIALECTS / "__init__.py"
_CONSTANTS = _ROOT / "otel_rl/semconv/__init__.py"
_CONSTANTS_HEAD = '''"""The names of the registry that code emits; `semconv/generate.py` writes this file from `model/`.

`rl.*` follows open-telemetry/semantic-conventions-genai#88 where that proposal has a name. Rooms above it and
exporters import it.
"""

from __future__ import annotations

'''
_FRAMEWORKS_HEAD = '''"""The frameworks that otel-rl knows. Their dialects are in this folder.

`python -m otel_rl.semconv.generate` writes this table from `*.yaml`, so that a trainer need not read YAML.
"""

from __future__ import annotations

from otel_rl.semconv.frameworks import Framework

FRAMEWORKS: dict[str, Framework] = {
'''
_METRICS_HEAD = """# Metrics

These are the metrics that OpenTelemetry and Prometheus receive. Trackers receive the names that the trainer logs
([names](../explanation/names.md)). A gauge holds the latest value.

*Reducer* says how the values of several ranks become one. If it is empty, they are averaged, unless the name says
`max`, `min` or `sum` itself. *Source* says where a name comes from: genai#88 is
open-telemetry/semantic-conventions-genai#88; hw, process, system and gen_ai are OpenTelemetry's own conventions.
`python -m otel_rl.semconv.generate` writes this page from the [registry](registry.md).

| metric | in Prometheus | instrument | unit | attributes | what | reducer | source |
|---|---|---|---|---|---|---|---|
"""
_AXES_HEAD = """
## Axes

A row has a step and a time, and values that count something else: batches of prompts, updates of the optimizer, trained
tokens. This is where each framework has them; `step` is the row's own. All are columns in every tracker. W&B draws over
one of them with its option `over`, such as `{wandb = {over = "tokens"}}`, and over its own time without an option.

| dialect | axis | metric |
|---|---|---|
"""
_CAPTURE = "| any trainer that logs to W&B, TensorBoard, MLflow, SwanLab or trackio | | `--capture` |"
_OF_THE_DOCS = ("title", "line", "needs_line")
"""Fields of the section `framework`: the title and the line in Markdown, and whether the hooks need that line."""
_PREFIXES = {"metric": "METRIC_", "event": "EVENT_", "span": "SPAN_"}


def outputs() -> dict[Path, str]:
    """Return the content of each generated file, by its path in the checkout."""
    files = {path.stem: dialect.parse(path.read_bytes()) for path in sorted(_DIALECTS.glob("*.yaml"))}
    frameworks = {name: file.framework for name, file in files.items()}
    front, guide = Path("README.md"), Path("docs/how-to/frameworks.md")
    entries = "".join(_entry(*item) for item in frameworks.items())
    head = "| framework | one line | without code changes |"
    metrics = map(_line, registry.metrics().values())
    axes = (f"| {name} | {axis} | `{metric}` |\n" for name, file in files.items() for axis, metric in file.axes.items())
    return {
        _CONSTANTS.relative_to(_ROOT): _CONSTANTS_HEAD + _constants(),
        Path("docs/reference/metrics.md"): "".join((_METRICS_HEAD, *metrics, _AXES_HEAD, *axes)),
        _FRAMEWORKS.relative_to(_ROOT): _formatted(f"{_FRAMEWORKS_HEAD}{entries}}}\n"),
        front: _replaced(front, f"{head}\n|---|---|---|", _CAPTURE, _rows(frameworks)),
        guide: _replaced(
            guide, f"{head} example |\n|---|---|---|---|", f"{_CAPTURE} |", _rows(frameworks, examples=True)
        ),
    }


def _replaced(path: Path, before: str, after: str, lines: str) -> str:
    """Return the text of a file with other lines between two texts.

    Raises:
        ValueError: A text is not in the file.
    """
    text = (_ROOT / path).read_text()
    start = text.index(before) + len(before)
    return f"{text[:start]}\n{lines}{text[text.index(after, start) :]}"


def _entry(name: str, section: dict[str, Any]) -> str:
    """Return a framework's entry in the table in Python.

    Raises:
        TypeError: The section has an unknown field.
    """
    fields = {field: value for field, value in section.items() if field not in _OF_THE_DOCS}
    framework = Framework(**fields | {"modules": tuple(fields.get("modules", ()))})
    given = ", ".join(f"{field}={value!r}" for field, value in framework._asdict().items() if value)
    return f"{name!r}: Framework({given}),\n"


def _formatted(python: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "-"]
    return subprocess.run(command, input=python, cwd=_ROOT, capture_output=True, text=True, check=True).stdout


def _rows(frameworks: dict[str, dict[str, Any]], *, examples: bool = False) -> str:
    """Return the lines of the frameworks that have a title in a table of Markdown, by title.

    Without examples, those without a line of code are one row, the last one.
    """
    rows, plain = [], []
    for title, name in sorted((entry["title"], name) for name, entry in frameworks.items() if "title" in entry):
        entry = frameworks[name]
        if not examples and not entry.get("line"):
            plain.append(title)
            continue
        cells = [title, entry.get("line", ""), "yes" if "hooks" in entry and not entry.get("needs_line") else ""]
        if examples:
            examples_of = sorted((_ROOT / "tests/frameworks/examples").glob(f"{name}_*.py"))
            cells.append("".join(f"[{path.name}](../../{path.relative_to(_ROOT)})" for path in examples_of[:1]))
        rows.append("".join(f"| {cell} " if cell else "| " for cell in cells) + "|\n")
    return "".join(rows) + (f"| {', '.join(plain)} | | yes |\n" if plain else "")


def _constants() -> str:
    """Return the constants that code names; dialects name metrics themselves."""
    names = {"SCHEMA_URL": registry.manifest()["schema_url"]} | {
        _constant(name): name for name in registry.attributes()
    }
    for group in registry.groups():
        if group.type in _PREFIXES:
            name = group.metric_name or group.name
            names[_PREFIXES[group.type] + _constant(name)] = name
    code = [path for folder in ("otel_rl", "exporters") for path in (_ROOT / folder).rglob("*.py")]
    words = {word for path in code if path != _CONSTANTS for word in re.findall(r"\w+", path.read_text())}
    return "".join(f'{constant} = "{name}"\n' for constant, name in sorted(names.items()) if constant in words)


def _constant(name: str) -> str:
    return re.sub(r"\W", "_", name.removeprefix("rl.")).upper()


def _line(metric: Group) -> str:
    attributes = ", ".join(f"`{name}`" for name in metric.attribute_names)
    cells = (
        f"`{metric.metric_name}`",
        f"`{registry.prometheus_name(metric)}`",
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
