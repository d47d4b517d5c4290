"""The page of the rules of redaction; `python -m tests.docs.redaction_page` writes it."""

from __future__ import annotations

from pathlib import Path

from otel_rl.errors.redaction.formats import ASSIGNED, KEYS, WORDS
from otel_rl.errors.redaction.names import DOUBTFUL_NAMES, SECRET_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "secret-formats.md"
_BEGIN, _END = "<!-- rules -->\n", "<!-- end of rules -->\n"


def page(text: str) -> str:
    """Return the page with the tables of the rules, between its two comments."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    keys = _table(
        ("kind", "begins with", "goes on with"), [(one.kind, _codes(one.starts), _code(one.rest)) for one in KEYS]
    )
    assigned = _table(
        ("kind", "example, with `…` for the secret"),
        [(one.kind, _code(f"{one.before}…{one.after}".replace("\n", "\\n"))) for one in ASSIGNED],
    )
    words = _table(
        ("name", "after one of"),
        [(_code(name), _codes(before.split()) or "anything") for name, before in WORDS.items()],
    )
    names = "".join(f"- {_code(pattern)}\n" for pattern in SECRET_NAMES)
    doubtful = "".join(f"- {_code(pattern)}\n" for pattern in DOUBTFUL_NAMES)
    return (
        f"{before}{_BEGIN}\n## Keys\n\n{keys}\n## Values after a known text\n\n{assigned}\n"
        f"## Values assigned to a name, in a text\n\n{words}\n## Names of values\n\n{names}\n"
        f"## Names of values that must look like a key\n\n{doubtful}\n{_END}{after}"
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _codes(texts: tuple[str, ...] | list[str]) -> str:
    return " ".join(map(_code, texts))


def _code(text: str) -> str:
    """Return a text as code in a cell: Markdown has no other way for `|` there."""
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("*", "&#42;")
    return f"<code>{shown.replace('_', '&#95;').replace('`', '&#96;')}</code>"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
