"""The rules of secrets in texts, and the quick search for those that a text needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.secrets.formats import ASSIGNED, ENDS_OF_WORDS, KEPT, KEYS, WORDS, assigned_to
from otel_rl.recorder.secrets.names import has_changes, is_random

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rule(NamedTuple):
    """A fixed text near the start of a secret, by which it is found quickly, and a pattern.

    The first group of the pattern stays in the text.
    """

    start: str
    pattern: str


_ESCAPES = (r"[0-9;\[]m", r"\\[nrtbf]", r"\\[ux]..", r"\\u....", r"%[0-9A-Fa-f]{2}", r"[^\x00-\x7f]")
"""Text that may end with a letter before a key: colors of terminals, escapes of JSON and URLs, other languages."""
_AFTER_ESCAPE = re.compile(f"(?:{'|'.join(_ESCAPES)})$", re.DOTALL)


def _of_key(start: str, rest: str) -> str:
    """Return the pattern of a key, which does not begin inside of a word that may end as it begins."""
    begin, letters = re.escape(start), ENDS_OF_WORDS.get(start)
    after = "|".join(f"(?<={escape}{begin})" for escape in _ESCAPES)
    outside = f"(?:(?<![{letters}]{begin})|{after})" if letters else ""
    return f"(){begin}{outside}(?P<words>{rest})"


KEY_RULES = (
    *(Rule(start, pattern) for _, starts, pattern in KEPT for start in starts),
    *(Rule(start, _of_key(start, key.rest)) for key in KEYS for start in key.starts),
)
"""Rules of secrets without white space, which have at least `SHORTEST_KEY` characters."""
VALUE_RULES = (
    *(Rule(start, one.pattern) for one in ASSIGNED for start in one.starts),
    *(Rule(word, assigned_to(one)) for word in WORDS for one in dict.fromkeys((word, word.upper(), word.capitalize()))),
)
"""Rules of secrets that are recognized by what comes before them; their starts are in lower case."""
RULES = (*KEY_RULES, *VALUE_RULES)
LONGEST_BEFORE = 48
"""The number of characters before a secret that are looked at."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}$")
"""The end of base64 before a key: it can contain any short text that begins a key, and at length also a longer one."""
_SHORT_START = 5
_STARTS = tuple(dict.fromkeys(rule.start for rule in KEY_RULES))
SHORTEST_KEY = 12
"""The smallest number of characters of a key, and of a secret that is learned."""
_PIVOTS = ("_", "-", ".", ":", "=", "")


def _by_pivot(rules: Iterable[Rule]) -> dict[str, list[str]]:
    """Return the starts by a character that they have: most are not looked for in a text without that character."""
    starts = [start for start in dict.fromkeys(rule.start for rule in rules) if start.isascii()]
    return {pivot: [one for one in starts if pivot == next(filter(one.count, _PIVOTS), "")] for pivot in _PIVOTS}


_KEY_STARTS, _VALUE_STARTS = _by_pivot(KEY_RULES), _by_pivot(VALUE_RULES)
_OTHER_STARTS = {"": [start for start in dict.fromkeys(rule.start for rule in VALUE_RULES) if not start.isascii()]}
"""Words of other languages: most texts are ASCII, and these are not looked for in them."""
_compiled: dict[str, list[re.Pattern[str]]] = {}


def is_inside(before: str, key: str) -> bool:
    """Return whether a key is a part of a word, or of base64, by the characters before it."""
    start = max(filter(key.startswith, _STARTS), key=len, default="")
    is_behind_letter = before[-1:].isalnum() and _AFTER_ESCAPE.search(before) is None
    if is_behind_letter and (before[-1] in ENDS_OF_WORDS.get(start, "") or not has_changes(key)):
        return True
    run = _BASE64.search(before) if is_behind_letter or key[:4].isalnum() else None
    if run is None or not is_random(run[0]):
        return False
    return len(start) < _SHORT_START or len(run[0]) == LONGEST_BEFORE


def patterns_for(text: str, long_words: str) -> list[re.Pattern[str]]:
    """Return the patterns of the starts that a text has; keys are looked for in its long words alone."""
    small = text.lower()
    starts = _in(small, _VALUE_STARTS) + ([] if small.isascii() else _in(small, _OTHER_STARTS))
    if long_words:
        starts = _in(long_words, _KEY_STARTS) + starts
    return [pattern for start in starts for pattern in _compiled.get(start) or _compile(start)]


def _in(text: str, starts_by_pivot: dict[str, list[str]]) -> list[str]:
    """Return the starts that a text has."""
    return [start for pivot, starts in starts_by_pivot.items() if pivot in text for start in starts if start in text]


def _compile(start: str) -> list[re.Pattern[str]]:
    """Compile the patterns of a start when it is first seen: all of them would take 50 ms."""
    _compiled[start] = found = [re.compile(rule.pattern) for rule in RULES if rule.start == start]
    return found
