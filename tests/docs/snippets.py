"""The code blocks of README and the docs.

A comment before a block says how it is tested; readers do not see it:

- `<!-- snippet: check -->`: mypy checks it, since it needs a framework or a server.
- `<!-- snippet: file -->`: it runs as a program of its own; all other Python blocks of a page run one after the other.
- `<!-- snippet: torchrun -->`: the same, with two ranks.
- `<!-- snippet: slow -->`: it runs as a program of its own, but in the slow tests only.
- `<!-- setup … -->` holds code that runs before the next block.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)
_HOW = re.compile(r"<!-- snippet: (\w+) -->")
_BLOCK = re.compile(
    r"(?P<before>(?:<!-- (?:setup\n.*?|snippet: \w+ )-->\s*)*)"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A code block."""

    page: str  # path of the page in the repository
    line: int  # line of the page on which the code begins
    language: str  # language after the fence, such as `python`
    code: str  # the code
    setup: str  # code that has to run before it
    how: str  # how it is tested, if its page says so

    @property
    def id(self) -> str:
        """Name of the block in pytest."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return README, the docs, and the other texts for users and contributors."""
    places = ("*.md", "docs/**/*.md", "deploy/*.md", "benchmarks/README.md", "dashboards/*.md", "otel_rl/**/*.md")
    return sorted({path for place in places for path in ROOT.glob(place)})


def blocks() -> list[Block]:
    """Return all code blocks of all pages."""
    return [block for page in pages() for block in _of(page)]


def coming_from(framework: str) -> str:
    """Return the Python of a framework's section in the page on migrating; there is one block."""
    page = ROOT / "docs" / "how-to" / "migrate.md"
    lines = page.read_text().splitlines()
    first = lines.index(f"## {framework}")
    last = next((n for n in range(first + 1, len(lines)) if lines[n].startswith("## ")), len(lines))
    (code,) = [block.code for block in _of(page) if first < block.line <= last and block.language == "python"]
    return code


def _of(page: Path) -> list[Block]:
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        before, indent = match["before"], match["indent"]
        code = re.sub(f"^{indent}", "", match["code"], flags=re.MULTILINE)
        how = _HOW.search(before)
        line = text.count("\n", 0, match.start("code")) + 1
        setup = "".join(_SETUP.findall(before))
        name = str(page.relative_to(ROOT))
        found.append(Block(name, line, match["language"].split(" ")[0], code, setup, how[1] if how else ""))
    return found
