"""The text of any object, also of one that has none."""

from __future__ import annotations

from otel_rl.interrupts import let_pass

_LONGEST_TEXT = 4096


def text_of(value: object) -> str:
    """Return the text of any object, cut to 4,096 characters; its type where it has none."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))[:_LONGEST_TEXT]
    except Exception as error:  # an object whose own text cannot be had
        let_pass(error)
        return type(value).__name__


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
