"""Secrets of every kind, made when a test runs: scanners of a forge must not find one in this repository."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import NamedTuple

from otel_rl.recorder.secrets.formats import ASSIGNED, KEPT, KEYS, Assigned
from tests.recorder.secrets.drawing import drawn

_DATA = Path(__file__).parents[2] / "data" / "secrets"
_SECRET = re.compile("⟦(.*)⟧")
_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


class Sample(NamedTuple):
    """A secret of a kind, and a text with it."""

    kind: str
    text: str
    secret: str


def of_assigned(rule: Assigned, seed: int = 0) -> Sample:
    """Return a text with a secret that is known by what comes before it."""
    pattern, length = rule.example
    secret = _varied((pattern * length)[:length], f"{rule.kind}{seed}")
    return Sample(rule.kind, rule.before + secret + rule.after, secret)


def samples(seed: int = 0) -> list[Sample]:
    """Return a secret for each start of each rule; two seeds have none in common."""
    keys = [(key.kind, f"(){re.escape(start)}{key.rest}") for key in KEYS for start in key.starts]
    kept = [(_of_pattern(kind, pattern, seed), starts) for kind, starts, pattern in KEPT]
    return [
        *(_of_pattern(kind, pattern, seed) for kind, pattern in keys),
        *(one for one, starts in kept if any(map(one.text.count, starts))),
        *(of_assigned(rule, seed) for rule in ASSIGNED),
    ]


def _of_pattern(kind: str, pattern: str, seed: int) -> Sample:
    text = drawn(pattern, seed)
    found = re.fullmatch(pattern, text)
    assert found
    return Sample(kind, text, text[found.end(1) :])


def names_of_secrets() -> list[str]:
    """Return the names of secrets that are known from services, clouds, frameworks and files."""
    return [line for line in (_DATA / "names.txt").read_text().splitlines() if not line.startswith("#")]


def texts_with_secrets(seed: int = 0) -> list[Sample]:
    """Return a text with a secret for each kind that is known from services, files and commands."""
    found = []
    for line in (_DATA / "texts.txt").read_text().splitlines():
        if not line.startswith("#"):
            kind, text = line.split("\t")
            before, pattern, after = _SECRET.split(text)
            secret = drawn(pattern, seed)
            found.append(Sample(kind, "".join((_lines(before), secret, _lines(after))), secret))
    return found


def _lines(text: str) -> str:
    """Return a text with its line breaks; a second backslash leaves the first one in the text."""
    return re.sub(r"(?<!\\)\\n", "\n", text).replace("\\\\", "\\")


def _varied(example: str, seed: str) -> str:
    """Return an example with other letters and digits, of the same classes."""
    dice = random.Random(seed)
    is_hexadecimal = not re.search("[g-zG-Z]", example)
    classes = ("abcdef", "ABCDEF", string.digits) if is_hexadecimal else _CLASSES
    return "".join(next((dice.choice(one) for one in classes if c in one), c) for c in example)
