"""Texts of arbitrary objects, even if their `str` raises."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from otel_rl.recorder.errors.sinks import one_line, shortened
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.secrets import LONGEST_SECRET, redacted, redacted_name, redacted_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST_NAME = 4096
"""The largest number of characters in the name of a metric, phase, attribute, column or parameter."""
_LONGEST_SHOWN = 120


def text_of(value: object) -> str:
    """Return the text of any object without secrets, truncated to 4,096 characters; its type if `str` raises."""
    try:
        text = str.__str__(value if isinstance(value, str) else str(value))
        return redacted_start(text, LONGEST_NAME)
    except Exception as error:  # an object whose `str` raises
        let_pass(error)
        return type(value).__name__


def encodable_text(text: str) -> str:
    """Return the text with lone surrogates escaped, because UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def name_of(value: object) -> str:
    """Return the text of a name without secrets, with lone surrogates escaped.

    Raises:
        ValueError: The name has more than 4,096 characters.
    """
    if isinstance(value, str) and str.__len__(value) > LONGEST_NAME:  # before the search, which takes time
        text = value
    else:
        text = encodable_text(redacted_name(value) if type(value) is str else text_of(value))
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a name of {len(text)} characters, which begins with {shown(text)}: {LONGEST_NAME} at most")
    return text


def shown(value: object) -> str:
    """Return a short representation of an object in one line, for error messages; two long ones stay different."""
    try:
        text = str.__str__(str.__repr__(value) if isinstance(value, str) else repr(value))
        if (more := len(text) - LONGEST_NAME - LONGEST_SECRET) > 0:  # the search takes time
            text = f"{text[:-more]}… [{more} characters more]"
    except Exception as error:  # an object whose `repr` raises
        let_pass(error)
        text = f"a {type(value).__name__}"
    return shortened(one_line(redacted(text)), _LONGEST_SHOWN)


def meant(name: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return the end of an error about an unknown name: the closest one, otherwise all known ones.

    Args:
        name: The unknown name.
        known: The known names.
        others: What to suggest for names that are known elsewhere.
    """
    names = dict(others or {}) | {one: one for one in known}
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {names[close[0]]}?" if close else f"; known are: {', '.join(sorted(known))}"


def type_of(error: BaseException) -> str:
    """Return the type of an exception with its module, except for builtins, as OpenTelemetry's SDK does."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ in (None, "builtins") else f"{kind.__module__}.{kind.__qualname__}"
