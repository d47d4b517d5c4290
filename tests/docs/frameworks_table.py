"""The table of the real frameworks in the docs; `python -m tests.docs.frameworks_table` writes it.

It is made of `tests/frameworks/results/*.yaml`, which the tests of the frameworks write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from otel_rl.semconv.dialect import framework
from otel_rl.semconv.frameworks import FRAMEWORKS

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "evidence" / "frameworks.md"
RESULTS = _ROOT / "tests" / "frameworks" / "results"
KEYS = (
    *("framework", "revision", "ran", "numbers", "equal", "different", "explained", "steps"),
    *("phase_coverage", "names", "mapped", "declared", "unknown"),
)
"""The keys of each file."""
_HEADINGS = (
    *("framework", "revision", "what ran", "numbers", "equal", "different", "steps"),
    *("time in phases", "names", "mapped", "known"),
)


def results() -> dict[str, dict[str, Any]]:
    """Return the content of each file, by its name."""
    return {path.stem: msgspec.yaml.decode(path.read_bytes()) for path in sorted(RESULTS.glob("*.yaml"))}


def page(text: str) -> str:
    """Return the page with the table of the files, between its two comments."""
    before, _, rest = text.partition("<!-- frameworks -->\n")
    _, _, after = rest.partition("<!-- end of frameworks -->\n")
    found = sorted(results().values(), key=_title)
    notes = "".join(f"- {_title(one)}: {_text(one['explained'])}\n" for one in found if one["explained"])
    head = f"| {' | '.join(_HEADINGS)} |\n{'|---' * len(_HEADINGS)}|\n"
    table = head + "".join(map(_line, found)) + (f"\n{notes}" if notes else "")
    return f"{before}<!-- frameworks -->\n\n{table}\n<!-- end of frameworks -->\n{after}"


def _line(one: dict[str, Any]) -> str:
    share = one["phase_coverage"]
    known = one["mapped"] + one["declared"]
    cells = (
        *(_title(one), _text(one["revision"]), _text(one["ran"])),
        *(one[key] for key in ("numbers", "equal", "different", "steps")),
        "" if share is None else f"{share:.0%}",
        *(one["names"], one["mapped"], "all" if known == one["names"] else known),
    )
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |\n".replace("|  |", "| |")


def _title(one: dict[str, Any]) -> str:
    """Return the title of the dialect, if it is one."""
    name: str = one["framework"]
    return framework(name).get("title", name) if name in FRAMEWORKS else name


def _text(value: object) -> str:
    """Return a text, the items of a list one after the other."""
    return "; ".join(map(str, value)) if isinstance(value, list) else " ".join(str(value).split())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
