"""Elements of HTML, in which every text is escaped: recorded names and texts cannot become markup."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

_VOID = frozenset({"br", "input", "meta"})
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that change the direction of the text behind them, and halves of pairs of UTF-16."""
_JSON = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""Inside of `<script>`, `</script>` and `<!--` mean something in JSON too."""


class Markup(str):
    """HTML that is safe: made by `tag` from texts that are escaped."""

    __slots__ = ()


def tag(element: str, /, *content: str, **attributes: str | bool | None) -> Markup:
    """Return an element. Contents that are not `Markup` are escaped.

    Args:
        element: Name of the element.
        content: Texts and elements inside it.
        attributes: Its attributes: `class_` is `class`, `data_step` is `data-step`; `True` has no value, `False` and
            `None` are left out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    start = f"<{element}{given}>"
    return Markup(start if element in _VOID else f"{start}{joined(*content)}</{element}>")


def joined(*content: str) -> Markup:
    """Return contents one after the other; those that are not `Markup` are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(_readable(part)) for part in content))


def json_of(value: Any) -> str:
    """Return a value as JSON. `JSON.parse` refuses NaN: a part that forgets to spell one fails here."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def data_block(identity: str, text: str) -> Markup:
    """Return an element that holds JSON; browsers never run it."""
    return Markup(f'<script type="application/json" id="{escape(identity)}">{text.translate(_JSON)}</script>\n')


def _attribute(key: str, value: str | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(_readable(value))}"'


def _readable(text: str) -> str:
    """Return a text without what HTML cannot hold, NUL and half of a pair of UTF-16, and what reverses others."""
    return _UNREADABLE.sub("\ufffd", text)
