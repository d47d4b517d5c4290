"""The task: sums and differences of two small numbers, with answers that a program can check."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALPHABET = " 0123456789+-=<>"
"""One character is one token; the space is also the padding."""

PAD = ALPHABET.index(" ")
END = ALPHABET.index(">")
PROMPT_TOKENS = len("12+ 7=")
COMPLETION_TOKENS = len("<1234>")
LARGEST = 19
HELD_OUT = 96

EXACT_WEIGHT, FORMAT_WEIGHT = 0.9, 0.1
_WELL_FORMED = re.compile(r"<\d+>")


@dataclass(frozen=True)
class Problem:
    """A question and its only correct answer, such as ` 3+14=` and `<17>`."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class Scores:
    """The verdicts of the verifier on completions; each number is 0 or 1."""

    exact: list[float]
    formatted: list[float]

    @classmethod
    def of(cls, problems: Sequence[Problem], completions: Sequence[str]) -> Scores:
        """Check each completion: is it the answer, and does it have the format of one?"""
        return cls(
            [float(text == problem.answer) for problem, text in zip(problems, completions, strict=True)],
            [float(bool(_WELL_FORMED.fullmatch(text))) for text in completions],
        )

    @property
    def rewards(self) -> list[float]:
        """The rewards, between 0 and 1: weighted sums of both verdicts."""
        return [EXACT_WEIGHT * e + FORMAT_WEIGHT * f for e, f in zip(self.exact, self.formatted, strict=True)]

    @property
    def exact_match(self) -> float:
        """The share of correct answers, between 0 and 1."""
        return sum(self.exact) / len(self.exact)

    @property
    def well_formed(self) -> float:
        """The share of completions that have the format of an answer, between 0 and 1."""
        return sum(self.formatted) / len(self.formatted)


def problems(seed: int) -> tuple[list[Problem], list[Problem]]:
    """Return all problems in random order: those to train on, and those held out for evaluation."""
    numbers = range(LARGEST + 1)
    sums = [Problem(f"{a:2}+{b:2}=", f"<{a + b}>") for a in numbers for b in numbers]
    differences = [Problem(f"{a:2}-{b:2}=", f"<{a - b}>") for a in numbers for b in numbers if a >= b]
    everything = sums + differences
    random.Random(seed).shuffle(everything)
    return everything[HELD_OUT:], everything[:HELD_OUT]


def sloppy_answer(problem: Problem, chance: random.Random) -> str:
    """Return an answer for the warm-up: correct with probability 1/3, else close to it or unfinished."""
    value = int(problem.answer[1:-1])
    mistakes = (
        f"<{value + 1}>",
        f"<{abs(value - 1)}>",
        f"<{value + 10}>",
        f"<{abs(value - 10)}>",
        f"{value}>",
        f"<{value}=",
    )
    return problem.answer if chance.random() < 1 / 3 else chance.choice(mistakes)


def encode(text: str) -> list[int]:
    """Return the tokens of a text."""
    return [ALPHABET.index(character) for character in text]


def decode(tokens: list[int]) -> str:
    """Return the text of a completion, up to and including the first `>`."""
    end = tokens.index(END) + 1 if END in tokens else len(tokens)
    return "".join(ALPHABET[token] for token in tokens[:end])
