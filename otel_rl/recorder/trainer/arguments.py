"""The arguments of the run's methods, checked: invalid ones are refused and counted, and never raise."""

from __future__ import annotations

import math
import operator
from types import MappingProxyType
from typing import TYPE_CHECKING

from otel_rl.recorder.convert.values import WHOLE, to_number, to_whole
from otel_rl.recorder.errors.sinks import shortened
from otel_rl.recorder.errors.texts import LONGEST_NAME, name_of, shown, text_of
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.records import UNKNOWN
from otel_rl.recorder.secrets import redacted_name, redacted_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.trainer.recorder import Recorder


def refuse_extra(
    recorder: Recorder,
    call: str,
    extra: tuple[object, ...],
    unknown: Mapping[str, object] = MappingProxyType({}),
    fix: str = "",
) -> None:
    """Refuse arguments that a call does not have, where Python would raise a `TypeError`."""
    given = [*map(shown, extra), *(f"{name}={shown(value)}" for name, value in unknown.items())]
    if given:
        recorder.refuse(call, f"{call}() does not take {', '.join(given)}{fix}")


def cut_name(recorder: Recorder, call: str, name: object) -> str:
    """Return the text of a name of at most 4,096 characters; a longer one ends in its hash, and is counted.

    Refuse a missing name, and return an empty text.
    """
    if name is None or (isinstance(name, str) and not str.__len__(name)):
        recorder.refuse("name", f"{call}: {shown(name)} is not a name; give it a text")
        return ""
    if isinstance(name, str) and str.__len__(name) > LONGEST_NAME:
        recorder.refuse("name", f"{call} {shown(name)}: its name is cut to {LONGEST_NAME} characters")
        whole = str.__str__(name)
        return shortened(redacted_start(whole, LONGEST_NAME), LONGEST_NAME, of=whole)
    return redacted_name(name) if type(name) is str else text_of(name)


def to_whole_or_none(recorder: Recorder, call: str, name: str, value: object) -> int | None:
    """Return an argument as an integer; `None` if it is invalid."""
    try:
        return None if value is None else to_whole(value, UNKNOWN)
    except Exception as error:
        recorder.refuse(call, f"{call}: {name}: {text_of(error)}")
        return None


def to_amount(recorder: Recorder, reason: str, what: str, value: object) -> int | float | None:
    """Return a weight, a depth or a time; refuse one that is invalid, and return `None`."""
    try:
        number = to_number(value)
        if 0 <= number < math.inf:
            return number
        recorder.refuse(reason, f"{what}={number}: must be 0 or more, and finite")
    except Exception as error:
        recorder.refuse(reason, f"{what}: {text_of(error)}")
    return None


def to_step(step: object) -> int:
    """Return the number of a step.

    Raises:
        ValueError: It is not an integer, or is negative or too large.
    """
    try:
        # `True` is an integer for Python, and would begin step 1 (recorder/trainer/test_refused.py).
        if isinstance(step, bool):
            raise TypeError
        number = int.__index__(operator.index(step))  # type: ignore[arg-type] # what is not an integer raises
    except Exception as error:  # a foreign object may raise anything
        let_pass(error)
        raise ValueError(f"step {shown(step)} is not an integer, but a {type(step).__name__}") from None
    if not 0 <= number < WHOLE:
        raise ValueError(f"step {shown(step)} is {'negative' if number < 0 else 'too large'}")
    return number


def column_names(recorder: Recorder, table: object, columns: Mapping[str, list[object]]) -> dict[str, list[object]]:
    """Return the columns whose names a record can hold; the others are refused, one by one."""
    values_by_name: dict[str, list[object]] = {}
    for name, cells in columns.items():
        try:
            known = name_of(name)
            if known in values_by_name:
                raise ValueError(f"two columns are called {shown(known)}")
            values_by_name[known] = cells
        except ValueError as error:
            recorder.refuse("table", f"table {text_of(table)}: {error}")
    return values_by_name
