"""Texts that match a regular expression: secrets are drawn when a test runs, so that no scanner finds one here."""

from __future__ import annotations

import random
import re
import string
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_ALPHABET = string.ascii_letters + string.digits + "+/=_-. "
_TRIES = 200
_CATEGORIES = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_WORD: string.ascii_letters + string.digits,
    codes.CATEGORY_NOT_SPACE: string.ascii_letters + string.digits,
}


def drawn(pattern: str, seed: object) -> str:
    """Return a short random text that a pattern matches as a whole; the same for each seed.

    Raises:
        ValueError: None was found: assertions of the pattern are too rarely true.
    """
    dice = random.Random(f"{pattern}{seed}")
    parsed, whole = parser.parse(pattern), re.compile(pattern)
    for _ in range(_TRIES):
        text = _text(parsed, dice)
        if whole.fullmatch(text):
            return text
    raise ValueError(f"found no text for {pattern!r}")


def _text(parsed: Any, dice: random.Random) -> str:
    return "".join(_part(code, given, dice) for code, given in parsed)


def _part(code: Any, given: Any, dice: random.Random) -> str:
    if code is codes.LITERAL:
        return chr(given)
    if code is codes.IN:
        return dice.choice(_members(given))
    if code in (codes.NOT_LITERAL, codes.ANY):
        return dice.choice(_ALPHABET.replace(chr(given or 0), ""))
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, most, repeated = given
        return "".join(_text(repeated, dice) for _ in range(least if least else dice.randint(0, min(1, most))))
    if code is codes.SUBPATTERN:
        return _text(given[-1], dice)
    if code is codes.BRANCH:
        return _text(dice.choice(given[1]), dice)
    return ""  # an assertion


def _members(given: list[tuple[Any, Any]]) -> str:
    found = ""
    for code, one in given:
        if code is codes.LITERAL:
            found += chr(one)
        elif code is codes.RANGE:
            found += "".join(map(chr, range(one[0], one[1] + 1)))
        elif code is codes.CATEGORY:
            found += _CATEGORIES[one]
    if given[0][0] is codes.NEGATE:
        return "".join(char for char in _ALPHABET if char not in found)
    return found
