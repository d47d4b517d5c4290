"""The text of any object, also of one that has none."""

from __future__ import annotations

from otel_rl.errors.interrupts import let_pass

LONGEST_NAME = 4096
"""Characters of the name of a metric, a phase, an attribute, a column or a parameter; the agent takes none longer."""
_LONGEST_TEXT = LONGEST_NAME


def text_of(value: object) -> str:
    """Return the text of any object, cut to 4,096 characters; its type where it has none."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))[:_LONGEST_TEXT]
    except Exception as error:  # an object whose own text cannot be had
        let_pass(error)
        return type(value).__name__


def encodable_text(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 does not have, written as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def name_of(value: object) -> str:
    """Return the text of a name, as a record can hold it.

    Raises:
        ValueError: It has more than 4,096 characters.
    """
    text = encodable_text(value if type(value) is str else text_of(value))
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a name of {len(text)} characters, which begins with {shown(text)}: {LONGEST_NAME} at most")
    return text


def shown(value: object) -> str:
    """Return what an object looks like in an error message: short, and in one line."""
    try:
        text = str.__str__(str.__repr__(value) if isinstance(value, str) else repr(value))
    except Exception as error:  # likewise
        let_pass(error)
        text = f"a {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}…"


def type_of(error: BaseException) -> str:
    """Return the type of an exception with its module, as OpenTelemetry has it: builtins are without."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ in (None, "builtins") else f"{kind.__module__}.{kind.__qualname__}"
