"""The time that redaction takes as a text doubles in length: plain text, and texts made to be slow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tables import Cell, Table
from otel_rl.recorder.secrets import begin, redact
from otel_rl.recorder.secrets.rules import RULES
from tests.recorder.secrets.samples import samples

if TYPE_CHECKING:
    from collections.abc import Sequence

_KIB = 1 << 10
_LENGTHS = tuple(32 * _KIB << doubling for doubling in range(6))
_SHORT = 3
"""How many of the lengths every text has; the steepest and the slowest text of each group then get all of them."""
_ROUNDS = 5
_NEAR = ("", "aB3x", " ", "=a1", "/@", "A", "-", "\n", ': "')
"""Texts behind the start of a secret that leave it incomplete; the next start comes at once."""


class _Text(NamedTuple):
    """A text that is made by repetition.

    Attributes:
        name: What the table calls it.
        begin: The text before the repetition.
        repeated: The text that is repeated.
    """

    name: str
    begin: str
    repeated: str

    def of(self, length: int) -> str:
        """Return the text with this number of characters."""
        return (self.begin + self.repeated * (length // len(self.repeated) + 1))[:length]


class _Growth(NamedTuple):
    """The least CPU time of a text at each length, in seconds."""

    text: _Text
    took: list[float]

    @property
    def ratio(self) -> float:
        """The mean factor of a doubling: 2 is linear, 4 is quadratic."""
        return float((self.took[-1] / self.took[0]) ** (1 / (len(self.took) - 1)))


def measure() -> list[Table]:
    """Return milliseconds at each length, and the factor of a doubling, for the worst text of each group."""
    begin()
    rows: list[list[Cell]] = []
    count = 0
    for group, texts in _groups().items():
        count += len(texts)
        short = [_grow(text, _LENGTHS[:_SHORT], 1) for text in texts]
        steepest = max(short, key=lambda one: one.ratio).text
        slowest = max(short, key=lambda one: one.took[-1]).text
        for what, text in {"steepest": steepest, "slowest": slowest}.items():
            one = _grow(text, _LENGTHS, _ROUNDS)
            rows.append([f"{group}: {what}, `{text.name}`", *(1e3 * took for took in one.took), one.ratio])
    heads = [f"{length // _KIB} KiB, ms" for length in _LENGTHS]
    note = (
        f"CPU time of `redact`, the best of {_ROUNDS} rounds. {count} texts were tried up to "
        f"{_LENGTHS[_SHORT - 1] // _KIB} KiB; "
        "each group has the one that grew most and the one that took longest. "
        "A factor of 2 per doubling is linear, 4 is quadratic."
    )
    return [Table("Redaction of a text that doubles in length", ["text", *heads, "factor per doubling"], rows, note)]


def _groups() -> dict[str, list[_Text]]:
    prose = Path(__file__).with_name("README.md").read_text()
    starts = list(dict.fromkeys(rule.start for rule in RULES))
    examples = {one.kind: one for one in samples()}.values()
    return {
        "plain text": [_Text("English", "", prose), _Text("one word", "", "word "), _Text("base64", "", "aB3x+/9Q")],
        "starts of secrets": [_Text(repr(start + rest), "", start + rest) for start in starts for rest in _NEAR],
        "white space behind a start": [_Text(repr(start), start, " \n") for start in starts],
        "one secret as long as the text": [
            _Text(repr(one.kind), one.text.partition(one.secret)[0] + one.secret, one.secret[-8:]) for one in examples
        ],
        "secrets that lack their end": [
            _Text(repr(one.kind), "", one.text.partition(one.secret)[0] + one.secret[:-1] + "\x00") for one in examples
        ],
        "secrets": [_Text(repr(one.kind), "", one.text + " ") for one in examples],
    }


def _grow(text: _Text, lengths: Sequence[int], rounds: int) -> _Growth:
    redact(text.of(_KIB))  # compile the patterns
    return _Growth(text, [_least(text.of(length), rounds) for length in lengths])


def _least(text: str, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        began = time.process_time()
        redact(text)
        took.append(time.process_time() - began)
    return min(took)
