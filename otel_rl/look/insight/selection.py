"""A choice among runs: the language of `otel-rl ls --where` and of the search of the page, and names of columns.

A text is a list of conditions, all of which hold: `lr>1e-6 state:hung project:math tag:good "two words"`.
"""

from __future__ import annotations

import math
import operator
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from otel_rl.recorder.errors.texts import meant
from otel_rl.recorder.facts.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = float | str | bool | None
"""A value of a run: of a parameter or of a metric; `None` if the run has none."""
Aggregate = Literal["", "last", "best", "min", "max", "mean"]
"""Which value of a metric; empty for a parameter, or the last value of a metric."""
Key = Literal["state", "project", "tag", "host"]
_MOST_CHARACTERS, _MOST_CONDITIONS = 4_000, 64
_TERM = re.compile(r'(?P<refused>-?)(?:"(?P<quoted>[^"]*)"|(?P<plain>(?:[^\s"]|"[^"]*")+))(?=\s|\Z)|(?P<rest>\S.*)')
_COMPARED = re.compile(r'(?P<name>[^<>=!"]+?)(?P<sign>>=|<=|!=|==|>|<|=)(?P<value>"[^"]*"|[^<>=!"]*)')
_AGGREGATE = re.compile(r"(?P<name>.+):(?:(?P<plain>last|best|min|max)|mean(?P<count>[1-9][0-9]{0,8}))")
_NUMBER = re.compile(r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?P<unit>%|ms|s|min|h|d)?")
_LABEL = re.compile(r'(?:"[^"]*"|[^",])+')
_UNITS = {"%": 0.01, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class SelectionError(ValueError):
    """A text that is not of the language, or asks for a value that nobody can name."""


class RunColumn(NamedTuple):
    """A value that each run can have: `lr`, `kl:best`, `loss:mean100`."""

    name: str  # the name of a parameter or of a metric
    aggregate: Aggregate = ""  # which value of a metric
    steps: int = 0  # number of the last steps that `mean` is of

    def __str__(self) -> str:
        return f"{self.name}:{self.aggregate}{self.steps or ''}" if self.aggregate else self.name


class RunTexts(NamedTuple):
    """A run that may be chosen."""

    state: State  # its state
    project: str  # its project
    tags: tuple[str, ...]  # its tags
    hosts: tuple[str, ...]  # its machines
    texts: tuple[str, ...]  # the texts in which words are looked for, such as its name


class Words(NamedTuple):
    """The condition that a run has a text, whatever the case."""

    text: str
    refused: bool = False  # if true, the run must not have it

    def __str__(self) -> str:
        return f'{_minus(self.refused)}"{self.text}"'


class Labels(NamedTuple):
    """The condition that a run has one of some labels, which can be globs, whatever the case."""

    key: Key
    labels: tuple[str, ...]
    refused: bool = False  # if true, the run must have none of them

    def __str__(self) -> str:
        labels = ",".join(f'"{label}"' for label in self.labels)
        return f"{_minus(self.refused)}{self.key}:{labels}"


class Compared(NamedTuple):
    """The condition that a value of a run is above, below, or equal to another one. A run without the value fails."""

    column: RunColumn
    sign: str
    text: str  # the other value as it was given
    number: float | None  # the other value; `None` if it is a text
    refused: bool = False  # if true, the run must fail

    def __str__(self) -> str:
        return f'{_minus(self.refused)}{self.column}{self.sign}"{self.text}"'


Condition = Words | Labels | Compared


class Selection(NamedTuple):
    """The conditions of a choice; a run that meets all of them is chosen."""

    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))

    @property
    def columns(self) -> tuple[RunColumn, ...]:
        """The values that it asks for."""
        compared = (condition.column for condition in self.conditions if isinstance(condition, Compared))
        return tuple(dict.fromkeys(compared))

    def admits(self, run: RunTexts, value: Callable[[RunColumn], Value]) -> bool:
        """Return whether a run is chosen; values, which take time to read, are only asked for if all else holds."""
        quick = [condition for condition in self.conditions if not isinstance(condition, Compared)]
        slow = [condition for condition in self.conditions if isinstance(condition, Compared)]
        return all(_has(condition, run) != condition.refused for condition in quick) and all(
            _holds(condition, value(condition.column)) != condition.refused for condition in slow
        )


def selection_of(text: str) -> Selection:
    """Return the choice that a text describes.

    Raises:
        SelectionError: It has an unknown word before a colon, a comparison without a number, or is too long.
    """
    if len(text) > _MOST_CHARACTERS:
        raise SelectionError(f"a selection has at most {_MOST_CHARACTERS:,} characters")
    conditions: list[Condition] = []
    for term in _TERM.finditer(text):
        if term["rest"]:
            raise SelectionError(f"a quotation mark is missing in {term['rest']}")
        refused = bool(term["refused"])
        condition = Words(term["quoted"]) if term["plain"] is None else _condition(term["plain"])
        conditions.append(condition._replace(refused=refused))
    if len(conditions) > _MOST_CONDITIONS:
        raise SelectionError(f"a selection has at most {_MOST_CONDITIONS} conditions")
    return Selection(tuple(conditions))


def column_of(text: str) -> RunColumn:
    """Return the column that a text names.

    Raises:
        SelectionError: It is empty.
    """
    name = text.strip()
    if not name:
        raise SelectionError("a column needs a name")
    if (known := _AGGREGATE.fullmatch(name)) is None:
        return RunColumn(name)
    if known["plain"]:
        return RunColumn(known["name"], known["plain"])  # type: ignore[arg-type] # one of the pattern
    return RunColumn(known["name"], "mean", int(known["count"]))


def _condition(text: str) -> Condition:
    if compared := _COMPARED.fullmatch(text):
        value = compared["value"].strip('"')
        number = _number(value)
        if number is None and (compared["sign"] in _ORDERED or not value):
            raise SelectionError(f"{text!r} needs a number behind {compared['sign']}")
        return Compared(column_of(compared["name"]), compared["sign"].replace("==", "="), value, number)
    if '"' not in text and any(sign in text for sign in "<>="):
        raise SelectionError(f"{text!r} is not a comparison such as lr>1e-6; quote a text that has one of < > =")
    key, colon, labels = text.partition(":")
    if not colon or '"' in key:
        return Words(text.replace('"', ""))
    if key not in get_args(Key):
        raise SelectionError(f"unknown {key}: in {text!r}, a text with a colon is quoted{meant(key, get_args(Key))}")
    wanted = tuple(filter(None, (label.replace('"', "") for label in _LABEL.findall(labels))))
    states = get_args(State)
    unknown = [label for label in wanted if not any(_matches(state, label) for state in states)]
    if key == "state" and unknown:
        raise SelectionError(f"unknown state {unknown[0]!r}: must be one of {', '.join(states)}")
    if not wanted:
        raise SelectionError(f"{text!r} needs a {key} behind the colon")
    return Labels(key, wanted)  # type: ignore[arg-type] # checked above


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    return None if match is None else float(match["number"]) * _UNITS.get(match["unit"] or "", 1.0)


def _has(condition: Words | Labels, run: RunTexts) -> bool:
    if isinstance(condition, Words):
        wanted = condition.text.casefold()
        return any(wanted in text.casefold() for text in run.texts)
    labels: Mapping[Key, tuple[str, ...]] = {
        "state": (run.state,),
        "project": (run.project,),
        "tag": run.tags,
        "host": run.hosts,
    }
    return any(_matches(label, glob) for label in labels[condition.key] for glob in condition.labels)


def _matches(label: str, glob: str) -> bool:
    return fnmatchcase(label.casefold(), glob.casefold())


def _holds(condition: Compared, value: Value) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return False
    if condition.sign in _ORDERED:
        number = condition.number
        return is_number and number is not None and _ORDERED[condition.sign](float(value), number)
    if is_number and condition.number is not None:
        is_equal = math.isclose(float(value), condition.number, rel_tol=1e-9)
    else:
        is_equal = str(value).casefold() == condition.text.casefold()
    return is_equal == (condition.sign == "=")


def _minus(refused: bool) -> str:
    return "-" if refused else ""
