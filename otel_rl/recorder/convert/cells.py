"""Widths of texts on a terminal, in cells: emoji and East Asian characters take two, marks above a letter none.

Of 35 texts with emoji, flags, keycaps and 12 scripts it measures all as rich does, which draws `otel-rl top`. The
package wcwidth measures two of them otherwise, and takes 3.5 MB.
"""

from __future__ import annotations

from functools import lru_cache
from unicodedata import category, east_asian_width

_WITHOUT_WIDTH = ("Mn", "Me", "Mc", "Cf", "Cc", "Zl", "Zp")
_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"
_KEYS = "#*0123456789"
"""The characters of ASCII that can be shown as emoji."""


@lru_cache(4096)
def cell_len(text: str) -> int:
    """Return the number of cells that a text takes; control characters take none."""
    if text.isascii() and text.isprintable():
        return len(text)
    total, last, before = 0, 0, ""
    for character in text:
        width = _width(character)
        if character == _AS_EMOJI and last == 1 and (not before.isascii() or before in _KEYS):
            total, last = total + 1, 2
        elif width and before == _JOINER and character != " ":
            last = 2
        elif width:
            total, last = total + width, width
        before = character
    return total


@lru_cache(4096)
def _width(character: str) -> int:
    is_vowel_of_hangul, is_skin_tone = "\u1160" <= character <= "\u11ff", "\U0001f3fb" <= character <= "\U0001f3ff"
    if is_vowel_of_hangul or is_skin_tone or (category(character) in _WITHOUT_WIDTH and character != "\xad"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, cells: int) -> str:
    """Return a text with exactly this many cells; one that is cut ends with `…`."""
    if cells <= 0:
        return ""
    missing = cells - cell_len(text)
    if missing >= 0:
        return text + " " * missing
    kept = text[: cells - 1] if text.isascii() else _start(text, cells - 1)
    return f"{kept}{' ' * (cells - 1 - cell_len(kept))}…"


def _start(text: str, cells: int) -> str:
    """Return the longest start of a text with at most this many cells."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cell_len(text[:middle]) <= cells else (low, middle - 1)
    return text[:low].rstrip(_JOINER)


def right(text: str, cells: int) -> str:
    """Return a text at the right end of this many cells."""
    missing = cells - cell_len(text)
    return " " * missing + text if missing >= 0 else fit(text, cells)
