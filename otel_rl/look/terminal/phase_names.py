"""Names of phases in little room: as short as they can be without two of them becoming one."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from otel_rl.cli.lines import safe
from otel_rl.recorder.convert.cells import cell_len, fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_WORDS = re.compile(r"[^\W_]+")
_SHORT = 3
"""Letters of a short name, if they tell it apart."""


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short form of each name: its first letters, or those of the word that no other one has."""
    known = sorted({name for name in names if name})
    level = dict.fromkeys(known, 0)
    while True:
        same: dict[str, list[str]] = defaultdict(list)
        for name in known:
            same[_form(name, known, level[name])].append(name)
        alike = [name for group in same.values() if len(group) > 1 for name in group]
        if not alike:
            return {name: safe(form) for form, (name,) in same.items()}
        for name in alike:
            level[name] += 1


def _form(name: str, names: list[str], level: int) -> str:
    """Return a form of a name; those of higher levels are longer."""
    words = _WORDS.findall(name.removeprefix("rl.")) or [name]
    forms: tuple[Callable[[], str], ...] = (
        lambda: words[0][:_SHORT],
        lambda: _first_own_word(words, names)[:_SHORT],
        lambda: words[-1],
        lambda: next((name[:n] for n in range(_SHORT + 1, len(name)) if _is_alone(name[:n], names)), name),
    )
    return forms[level]() if level < len(forms) else name


def _first_own_word(words: list[str], names: list[str]) -> str:
    """Return the first word that not all names with the same first letters have at its place."""
    alike = [of for other in names if (of := _WORDS.findall(other))[:1] and of[0][:_SHORT] == words[0][:_SHORT]]
    for place, word in enumerate(words):
        if any(other[place : place + 1] != [word] for other in alike):
            return word
    return words[0]


def _is_alone(prefix: str, names: list[str]) -> bool:
    return sum(name.startswith(prefix) for name in names) == 1


def cut(name: str, cells: int) -> str:
    """Return a name that fits: of a longer one, its beginning and its end, which tell most names apart."""
    text = safe(name)
    if cell_len(text) <= cells:
        return text
    end = (cells - 1) // 2
    return f"{fit(text, cells - 1 - end).rstrip('…')}…{text[-end:]}" if end > 0 else fit(text, cells)
