"""Rules over one completion: garbled, repeated, in a script that nobody asked for, copied from the prompt.

A rule gives a score between 0 and 1, and its threshold says from which score on a completion has the fault. Only what
Unicode and zlib know is used, so a language model's judgment is not among the rules. `python -m benchmarks texts`
measures how many clean texts each rule takes for faulty; `false_alarms` is the highest rate of any kind of text.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = re.compile(r"[^\W\d_]+")
_BAD = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Categories of Unicode that no text needs: control characters, unassigned and private ones, halves of pairs."""
_SPACES = frozenset("\t\n\v\f\r")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
"""Those of ASCII."""
_LEAST_BAD = 3
"""Bad characters, or words, that a garbled text has: the last token of a text that was cut can leave one or two."""
_LETTERS = frozenset({"Lu", "Ll", "Lt", "Lo"})
_TOGETHER = {**dict.fromkeys(("HIRAGANA", "KATAKANA", "BOPOMOFO"), "CJK"), "GREEK": ""}
"""Scripts that are written together; mathematics uses Greek letters in all of them."""
_WITHOUT_SPACES = frozenset({"CJK", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", ""})
"""Scripts in which a foreign word needs no space before it."""
_LEAST_FOREIGN = 10
_LEAST_BYTES, _ENDS = 200, (1_000, 4_000)
"""Bytes that a text needs to be looked at for repetitions, and the lengths of its end that are compressed."""
_FRAME = 8
"""Bytes that zlib adds to what it compresses."""
_PROBE, _PROBES, _LEAST_PASSAGES = 40, 20, 5
"""Characters of a passage that is looked for in the prompt, how many are, and how many a text needs."""
_SPARSE = re.compile(r"[\W_]{5}")
"""Five signs in a row, as in tables: such a passage says too little to be a copy."""


class TextRule(NamedTuple):
    """A fault of completions."""

    name: str  # what such completions are
    means: str  # what the rule looks at
    score: Callable[[str, str], float]  # how much of the fault a completion has, by its prompt and its text
    least: float  # the score from which on it has the fault
    false_alarms: float  # the highest measured number of clean texts in 10,000 that have the score
    is_of_task: bool  # if true, a task can ask for it; then it is said only if it became more frequent
    advice: str  # what to do


def garbled(_prompt: str, text: str) -> float:
    """Return the part of the characters that no text needs, or of the words that mix alphabets."""
    if text.isascii():
        bad = len(_CONTROLS.findall(text))
        return bad / len(text) if bad >= _LEAST_BAD else 0.0
    bad = sum(text.count(character) for character in set(text) if _is_bad(character))
    score = bad / len(text) if bad >= _LEAST_BAD else 0.0
    words = _WORD.findall(text)
    mixed = sum(1 for word in words if not word.isascii() and _mixes(word))
    return max(score, mixed / len(words) if mixed >= _LEAST_BAD else 0.0)


def repeated(_prompt: str, text: str) -> float:
    """Return the part of the text's end that compression saves."""
    data = text.encode(errors="replace")
    ends = {data[-length:] for length in _ENDS} if len(data) >= _LEAST_BYTES else ()
    return max((1 - (len(zlib.compress(end)) - _FRAME) / len(end) for end in ends), default=0.0)


def foreign(prompt: str, text: str) -> float:
    """Return the part of the letters whose script the prompt does not have; Latin and Greek are used in all texts.

    Without a prompt, the most frequent script of the text is the one that was asked for.
    """
    if text.isascii():
        return 0.0
    letters: Counter[str] = Counter()
    for character, number in Counter(text).items():
        letters[_script(character)] += number
    del letters[""]
    asked = (
        {_script(character) for character in set(prompt)}
        if prompt
        else {script for script, _ in letters.most_common(1)}
    )
    other = sum(number for script, number in letters.items() if script not in asked and script != "LATIN")
    return other / letters.total() if other >= _LEAST_FOREIGN else 0.0


def copied(prompt: str, text: str) -> float:
    """Return the part of evenly spaced passages of the text that are in the prompt."""
    if len(text) <= _PROBE or len(prompt) < _PROBE:
        return 0.0
    places = range(0, len(text) - _PROBE, max(_PROBE // 2, (len(text) - _PROBE) // _PROBES))
    passages = [passage for at in places if not _SPARSE.search(passage := text[at : at + _PROBE])]
    return sum(passage in prompt for passage in passages) / max(len(passages), _LEAST_PASSAGES)


RULES = (
    TextRule(
        "garbled",
        "characters that no text needs, or alphabets mixed within words",
        garbled,
        least=0.02,
        false_alarms=1.0,
        is_of_task=False,
        advice="Look at the tokenizer and the chat template, at the weights in the engine, and at the temperature.",
    ),
    TextRule(
        "repetitive",
        "their end repeats itself",
        repeated,
        least=0.94,
        false_alarms=5.0,
        is_of_task=False,
        advice="Look at entropy and KL from that step on, at the end-of-text token, and at the limit of the length.",
    ),
    TextRule(
        "in another script",
        "letters of a script that the prompt does not have",
        foreign,
        least=0.05,
        false_alarms=5.0,
        is_of_task=True,
        advice="If the task does not ask for it, pay for the language of the prompt, or raise the KL coefficient.",
    ),
    TextRule(
        "copied from the prompt",
        "most of their passages are in the prompt",
        copied,
        least=0.7,
        false_alarms=25.0,
        is_of_task=True,
        advice="Check that the verifier does not find the answer in a copy of the question.",
    ),
)
"""All rules, the most certain first."""


@lru_cache(8192)
def _is_bad(character: str) -> bool:
    return character == "\N{REPLACEMENT CHARACTER}" or (
        unicodedata.category(character) in _BAD and character not in _SPACES
    )


@lru_cache(8192)
def _script(character: str) -> str:
    """Return the script of a letter, such as `LATIN`; empty for other characters, and for a script of all texts."""
    plain = unicodedata.normalize("NFKC", character)[:1]  # mathematical and full-width letters are Latin ones
    if unicodedata.category(plain) not in _LETTERS:
        return ""
    name = unicodedata.name(plain, "").partition(" ")[0]
    return _TOGETHER.get(name, name)


def _mixes(word: str) -> bool:
    return len({script for letter in word if (script := _script(letter)) not in _WITHOUT_SPACES}) > 1
