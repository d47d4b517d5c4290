"""Whether what was said is right: the label against the statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.verdicts.labels import Form, Scenario
    from benchmarks.verdicts.statements import Statement

Grade: TypeAlias = Literal["right", "partly", "silent", "wrong", "quiet", "accused", "broken"]
"""The last three: a control that is not accused, one that is, and a program that did not do what it is to do."""


class Judgment(msgspec.Struct, frozen=True):
    """The grade of a scenario.

    Attributes:
        scenario: Its name.
        grade: The grade.
        seconds: From the moment that the program marked, or from its end, to the first right statement.
        said: The statement that decides.
    """

    scenario: str
    grade: Grade
    seconds: float | None
    said: str


def judge(scenario: Scenario, form: Form, statements: Sequence[Statement], since: float) -> Judgment:
    """Return the grade. A statement that is wrong outweighs one that is right."""
    label = scenario.label
    if wrong := next((one for one in statements if _has_any(label.wrong, one)), None):
        return _judgment(scenario, "accused" if scenario.kind == "control" else "wrong", wrong)
    if scenario.kind == "control":
        accusing = next((one for one in statements if one.accuses), None)
        return _judgment(scenario, "accused" if accusing else "quiet", accusing)
    right = [one for one in statements if _has_all(label.cause(form), one)]
    if right:
        first = min(right, key=lambda one: one.at)
        return _judgment(scenario, "right", first, max(0.0, first.at - since))
    place = next((one for one in statements if label.place and _has_all(label.place, one)), None)
    return _judgment(scenario, "partly" if place else "silent", place)


def _judgment(scenario: Scenario, grade: Grade, said: Statement | None, seconds: float | None = None) -> Judgment:
    return Judgment(scenario.name, grade, seconds, f"{said.place}: {said.text}" if said else "")


def _has_all(expressions: Sequence[str], statement: Statement) -> bool:
    return all(re.search(one, statement.text, re.IGNORECASE | re.DOTALL) for one in expressions)


def _has_any(expressions: Sequence[str], statement: Statement) -> bool:
    return any(re.search(one, statement.text, re.IGNORECASE | re.DOTALL) for one in expressions)
