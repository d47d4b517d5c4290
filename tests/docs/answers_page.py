"""The schemas of answers for programs, with a page of the docs; `python -m tests.docs.answers_page` writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.archive.autopsies import Autopsy
from otel_rl.autopsy.doctor.examination import Examination
from otel_rl.insight.compare.comparison import Comparison
from otel_rl.insight.owed import Owed
from otel_rl.insight.samples.sample import Samples
from otel_rl.insight.why.answer import Why
from otel_rl.view.answers import MOST_BYTES
from otel_rl.view.mcp.found import Found
from otel_rl.view.mcp.lines import Lines
from otel_rl.view.mcp.marked import MOST_BYTES as MOST_OF_TOOLS
from otel_rl.view.terminal.listing import Listing
from otel_rl.view.terminal.show import Status, Statuses

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "answers.md"
SCHEMAS = PAGE.with_suffix("")
COMMANDS: Mapping[str, type[msgspec.Struct]] = {
    "ls": Listing,
    "top": Statuses,
    "owes": Owed,
    "why": Why,
    "compare": Comparison,
    "samples": Samples,
    "autopsy": Autopsy,
    "doctor": Examination,
}
TOOLS: Mapping[str, type[msgspec.Struct]] = {
    "runs": Listing,
    "status": Status,
    "owes": Owed,
    "why": Why,
    "compare": Comparison,
    "find": Found,
    **dict.fromkeys(("rows", "spans", "sql"), Lines),
}
_HEAD = f"""# Answers for programs

`otel-rl ls`, `top`, `owes`, `why`, `compare`, `samples`, `autopsy` and `doctor` print text on a terminal, and one line
of JSON in a pipe or a file. `--json` and `--text` choose one of them everywhere. `--ascii`, `--markdown` of `compare`
and `--once` of `top` ask for text too. `otel-rl report` writes a file, and prints its path.

```sh
otel-rl ls | jq -r '.runs[] | select(.state == "hung") | .path'
otel-rl why --json | jq -r '.sentences[]'
otel-rl owes | jq -e '.verdicts == []'     # fails if something can never end
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
    return f"{answer.__name__.lower()}.json"


def schema_of(answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of an answer as it is printed."""
    schema: dict[str, Any] = _nullable(msgspec.json.schema(answer))
    for one in schema["$defs"].values():
        _describe(one)
    root = schema["$defs"][answer.__name__]
    root["properties"]["left_out"] = {
        "description": "Number of items and characters that were left out, by field.",
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    root["required"] = [*root["required"], "left_out"]
    return schema


def _describe(schema: dict[str, Any]) -> None:
    """Move the descriptions of attributes in a docstring to the fields that they are about."""
    brief, _, attributes = schema.get("description", "").partition("Attributes:")
    for name, text in re.findall(r"^ {8}(\w+): (.+(?:\n {12}.+)*)", attributes, re.MULTILINE):
        schema["properties"][name] = {"description": " ".join(text.split()), **schema["properties"][name]}
    schema["description"] = brief.strip()


def _nullable(schema: Any) -> Any:
    """Return a schema in which each number can be null, and no default is stated: fields are never omitted."""
    if isinstance(schema, list):
        return [_nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _nullable(value) for name, value in schema.items() if name != "default"}
    return found | ({"type": ["number", "null"]} if found.get("type") == "number" else {})


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text)
