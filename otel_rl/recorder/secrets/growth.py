"""The time that a regular expression takes as a text grows."""

from __future__ import annotations

import re
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST = 8
_GROWTH = 1.25
"""The factor by which a text grows. At twice the length, an exponential expression would never end."""
_CLASS = re.compile(r"\\([dws])")
_OF_CLASS = {"d": "0", "w": "a", "s": " "}
_MOST = 24
"""The largest number of beginnings, and of repeated texts, that are tried."""


def slow_text(pattern: str, longest: int = 512, most_s: float = 0.02) -> tuple[str, int] | None:
    """Return a text and how often it is repeated, if the search of the result takes more than `most_s` of CPU time.

    The texts are made of the characters of the expression. They grow step by step to `longest` characters. A linear
    expression takes microseconds for 512 characters.
    """
    expression = re.compile(pattern)
    for before in _beginnings(pattern):
        for repeated in _repeated(pattern):
            for length in _lengths(longest):
                times = length // len(repeated) or 1
                text = f"{before}{repeated * times}\0"
                began = thread_time()
                expression.search(text)
                if thread_time() - began > most_s:
                    return repeated, times
    return None


def _lengths(longest: int) -> Iterator[int]:
    length = float(_FIRST)
    while length <= longest:
        yield int(length)
        length *= _GROWTH


def _beginnings(pattern: str) -> list[str]:
    """Return nothing, and the runs of literal characters: what is repeated can come after them."""
    return list(dict.fromkeys(("", *(run for run in re.findall(r"[\w ./:=-]{2,64}", pattern)))))[: _MOST // 4]


def _repeated(pattern: str) -> list[str]:
    """Return the characters of an expression, those that are next to each other in it, and its literal runs."""
    plain = _CLASS.sub(lambda found: _OF_CLASS[found[1]], pattern)
    characters = [one for one in plain if one.isalnum() or one in " _-./:=,;@+"]
    pairs = ["".join(pair) for pair in pairwise(characters)]
    singles = ["a", "0", *characters]
    return [*_beginnings(pattern)[1:], *[*dict.fromkeys(singles)][:_MOST], *[*dict.fromkeys(pairs)][:_MOST]]
