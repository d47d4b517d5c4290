"""The table of docs/reference/attacks.md: `ATTACK_FIGURES=FILE pytest tests/security`, then this module with FILE."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.security.strangers import Used

_VARIABLE = "ATTACK_FIGURES"
_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "attacks.md"
_BEGIN = "<!-- figures -->\n"
_REDACTION = _PAGE.with_name("redaction.md")
_SEARCH_BEGIN, _SEARCH_END = "<!-- search -->\n", "<!-- end of search -->\n"
_HEAD = """
| attacked | attack | answer | memory, MiB | descriptors | disk, MiB | an own row, s |
|---|---|---|---|---|---|---|
"""


def note_search(secrets: int, kinds: int, places: int, size: int) -> None:
    """Write the extent of the search for secrets into the page, if the variable is set."""
    if os.environ.get(_VARIABLE):
        found = (
            f"A test puts {secrets} secrets of {kinds} kinds into one run, through every entrance, and searches\n"
            f"{places:,} places ({size / 1e6:.0f} MB) for them: files, databases, pages, requests and outputs."
            " It found none.\n"
        )
        before, _, rest = _REDACTION.read_text().partition(_SEARCH_BEGIN)
        _REDACTION.write_text(before + _SEARCH_BEGIN + found + rest[rest.index(_SEARCH_END) :])


def note(attacked: str, attack: str, answer: str, used: Used) -> None:
    """Add a line to the file that the variable names, if it is set."""
    if place := os.environ.get(_VARIABLE):
        with Path(place).open("a") as file:
            file.write(json.dumps([attacked, attack, answer, *used]) + "\n")


def table(text: str) -> str:
    """Return the table of the lines of such a file; the last line of an attack is the valid one."""
    found = {tuple(line[:2]): line for line in map(json.loads, text.splitlines())}
    rows = (
        f"| {where} | {attack} | {answer} | {memory:.0f} | {descriptors} | {disk:.0f} | {late:.1f} |\n"
        for where, attack, answer, memory, descriptors, disk, late in found.values()
    )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    page = _PAGE.read_text()
    _PAGE.write_text(page[: page.index(_BEGIN) + len(_BEGIN)] + table(Path(sys.argv[1]).read_text()))
