"""The schemas of answers for programs, with a page of the docs; `python -m tests.docs.answers_page` writes them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.autopsy.doctor.examination import Examination
from otel_rl.cli.answers import MOST_BYTES
from otel_rl.cli.late.exported import Exported
from otel_rl.look.insight.compare.comparison import Comparison
from otel_rl.look.insight.printed_lines import Logs
from otel_rl.look.insight.samples.sample import Samples
from otel_rl.look.insight.why.answer import Why
from otel_rl.look.mcp.lines import Lines
from otel_rl.look.mcp.marked import MOST_BYTES as MOST_OF_TOOLS
from otel_rl.look.mcp.search import Matches
from otel_rl.look.terminal.listing import Listing
from otel_rl.look.terminal.show import RunStatus, Statuses
from otel_rl.look.verbs.tag import MarkedRuns
from otel_rl.recorder.archive.autopsies import Autopsy
from tests.docs.fields import meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "answers.md"
SCHEMAS = PAGE.with_suffix("")
COMMANDS: Mapping[str, type[msgspec.Struct]] = {
    "ls": Listing,
    "tag": MarkedRuns,
    "top": Statuses,
    "why": Why,
    "compare": Comparison,
    "samples": Samples,
    "logs": Logs,
    "export": Exported,
    "autopsy": Autopsy,
    "doctor": Examination,
}
TOOLS: Mapping[str, type[msgspec.Struct]] = {
    "runs": Listing,
    "status": RunStatus,
    "why": Why,
    "compare": Comparison,
    "find": Matches,
    **dict.fromkeys(("rows", "spans", "sql"), Lines),
}
_FILES = {Matches: "found", RunStatus: "status"}
"""Names of files that are older than the names of their classes: an address of the docs stays."""
_FIRST, *_MORE, _LAST = (name for name in COMMANDS if name != "export")
_ANSWERING = ", ".join((f"`otel-rl {_FIRST}`", *(f"`{name}`" for name in _MORE)))
_HEAD = f"""# Answers for programs

{_ANSWERING} and `{_LAST}` print text on a terminal, and one line
of JSON in a pipe or a file. `--json` and `--text` choose one of them everywhere. `--ascii`, `--markdown` of `compare`
and `--once` of `top` ask for text too. `otel-rl report` and `export` write files, and print their paths. `export`
prints JSON with `--json` alone.

```sh
otel-rl ls | jq -r '.runs[] | select(.state == "hung") | .path'
otel-rl why --json | jq -r '.sentences[]'
otel-rl why --json | jq -e '.state != "hung"'  # fails if the newest run hangs
otel-rl ls --text | grep hung
```

- An answer has at most {MOST_BYTES >> 20} MiB, one of a tool of [`otel-rl mcp`](../how-to/coding-agents.md) at most
  {MOST_OF_TOOLS // 1000} kB. To fit, all lists are cut to one length, from their ends, and long texts too. `left_out`
  has the number of items and of characters that are missing, by field.
- NaN and the infinities are null. Times are in seconds, or in nanoseconds since 1970 where the name says so.
- Characters that act on a terminal, or are invisible, are escaped. Parsed, they are the recorded ones.
- Later versions add fields, and remove none without a note in the changelog.

The answers of tools are in `recorded_data` of an object that marks them as data. These are the schemas, in JSON Schema
2020-12. `python -m tests.docs.answers_page` generates them from the classes.

| answer | schema |
|---|---|
"""


def pages() -> dict[Path, str]:
    """Return the page and the schemas, by their files."""
    users: dict[type[msgspec.Struct], list[str]] = {}
    for kind, names in (("`otel-rl {}`", COMMANDS), ("tool `{}`", TOOLS)):
        for name, answer in names.items():
            users.setdefault(answer, []).append(kind.format(name))
    rows = "".join(f"| {', '.join(names)} | [{_file(one)}](answers/{_file(one)}) |\n" for one, names in users.items())
    schemas = {SCHEMAS / _file(one): json.dumps(schema_of(one), indent=1, ensure_ascii=False) + "\n" for one in users}
    return {PAGE: f"{_HEAD}{rows}", **schemas}


def _file(answer: type[msgspec.Struct]) -> str:
    return f"{_FILES.get(answer, answer.__name__.lower())}.json"


def schema_of(answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of an answer as it is printed."""
    schema: dict[str, Any] = _nullable(msgspec.json.schema(answer))
    for struct in _structs(msgspec.inspect.type_info(answer), {}).values():
        properties = schema["$defs"][struct.__name__].get("properties", {})
        for name, text in meanings(struct).items():
            properties[name] = {"description": text, **properties[name]}
    root = schema["$defs"][answer.__name__]
    root["properties"]["left_out"] = {
        "description": "Number of items and characters that were left out, by field.",
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    root["required"] = [*root["required"], "left_out"]
    return schema


def _structs(type_info: Any, found: dict[str, type[msgspec.Struct]]) -> dict[str, type[msgspec.Struct]]:
    """Return the structs that a type has at any depth, by their names."""
    if isinstance(type_info, msgspec.inspect.StructType):
        if type_info.cls.__name__ in found:
            return found
        found[type_info.cls.__name__] = type_info.cls
    for name in getattr(type_info, "__struct_fields__", ()):
        value = getattr(type_info, name)
        for one in value if isinstance(value, tuple) else (value,):
            _structs(one, found)
    return found


def _nullable(schema: Any) -> Any:
    """Return a schema in which each number can be null, and no default is stated: fields are never omitted.

    Docstrings of classes lose their indentation: not every version of msgspec removes it.
    """
    if isinstance(schema, list):
        return [_nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _nullable(value) for name, value in schema.items() if name != "default"}
    if isinstance(text := schema.get("description"), str):
        found["description"] = inspect.cleandoc(text)
    return found | ({"type": ["number", "null"]} if found.get("type") == "number" else {})


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text)
