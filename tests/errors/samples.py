"""Secrets of every kind, made when a test runs: scanners of a forge must not find one in this repository."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.errors.redaction.formats import ASSIGNED, KEYS

if TYPE_CHECKING:
    from otel_rl.errors.redaction.formats import Assigned, Key

_DATA = Path(__file__).parents[1] / "data" / "secrets"
_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


class Sample(NamedTuple):
    """A secret of a kind, and a text with it."""

    kind: str
    text: str
    secret: str


def of_key(key: Key, start: str, seed: int = 0) -> Sample:
    """Return a secret that begins with `start`, in the form of the example of a rule, with other characters."""
    pattern, length = key.example
    secret = start + _varied((pattern * length)[:length], f"{key.kind}{start}{seed}")
    return Sample(key.kind, secret, secret)


def of_assigned(rule: Assigned, seed: int = 0) -> Sample:
    """Return a text with a secret that is known by what comes before it."""
    pattern, length = rule.example
    secret = _varied((pattern * length)[:length], f"{rule.kind}{seed}")
    return Sample(rule.kind, rule.before + secret + rule.after, secret)


def samples(seed: int = 0) -> list[Sample]:
    """Return a secret for each start of each rule; two seeds have none in common."""
    return [
        *(of_key(key, start, seed) for key in KEYS for start in key.starts),
        *(of_assigned(rule, seed) for rule in ASSIGNED),
    ]


def _varied(example: str, seed: str) -> str:
    """Return an example with other letters and digits, of the same classes; one of known structure stays as it is."""
    dice = random.Random(seed)
    if "eyJ" in example or "AgE" in example or "AA" in example[:2]:
        return example[:-8] + "".join(dice.choices(string.ascii_letters + string.digits, k=8))
    if re.search(r"[a-zA-Z].*[-.]|[-.].*[a-zA-Z]", example):  # it has parts; their letters may have a meaning
        return re.sub("[0-9]", lambda _: dice.choice(string.digits), example)
    is_hexadecimal = not re.search("[g-zG-Z]", example) and "0" in example and "a" in example
    classes = ("abcdef", "ABCDEF", string.digits) if is_hexadecimal else _CLASSES
    return "".join(next((dice.choice(one) for one in classes if c in one), c) for c in example)


def names_of_secrets() -> list[str]:
    """Return the names of secrets that are known from services, clouds, frameworks and files."""
    return [line for line in (_DATA / "names.txt").read_text().splitlines() if not line.startswith("#")]
