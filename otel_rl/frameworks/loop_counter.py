"""The variable in which a training loop counts its steps, found by where its value is logged.

A plain loop names its step only when it logs, after the work of the step. So that the work gets the same number,
the variable that holds the logged step is looked for on the stack. Some loops count between the two: then the
difference is added. A variable is believed once it has foretold a step: a loop has other variables, too.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.frames import read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Place = tuple[object, str]
    """The code of a function and the name of a variable, or a type and the name of an attribute of `self`."""

_USUAL = "global_step"
"""The variable that a process is believed to count in if it logs nothing."""

_OTHERS = ("otel_rl", "wrapt", "torch")
"""The packages whose functions are between a loop and this file."""


class LoopCounter:
    """The variable that counts the steps of a loop."""

    def __init__(self) -> None:
        self._ahead: dict[Place, int] = {}
        self._before: dict[Place, int] = {}
        self._logged: int | None = None
        self._is_certain = False

    def read(self) -> int | None:
        """Return the step that the loop begins to work on; `None` if no variable has foretold one yet."""
        self._before = dict(_variables(self._ahead if self._is_certain else ()))
        return max(self._foretold().values(), default=None) if self._is_certain else None

    def learn(self, step: int) -> None:
        """Look for the variable; call this where the loop logs first after its work."""
        if self._is_certain and not self._before:  # it logs in another thread, or elsewhere
            return
        right = {place: self._ahead[place] for place, foretold in self._foretold().items() if foretold == step}
        if not right:
            now = {place: step - self._before.get(place, step) for place, value in _variables() if value == step}
            self._ahead, self._is_certain = {place: ahead for place, ahead in now.items() if ahead >= 0}, False
        elif step != self._logged:
            self._ahead, self._is_certain = right, True
        self._logged = step

    def _foretold(self) -> dict[Place, int]:
        return {place: self._before[place] + ahead for place, ahead in self._ahead.items() if place in self._before}


def usual_counter() -> int | None:
    """Return the value of `global_step` in the functions that are being called; `None` if there is none."""
    return next((value for (_, name), value in _variables() if name == _USUAL), None)


def _variables(wanted: Collection[Place] = ()) -> Iterator[tuple[Place, int]]:
    """Yield the whole numbers in the variables of the functions that are being called, and in their `self`.

    Args:
        wanted: The only variables that are looked at; all if there are none.
    """
    owners = {owner for owner, _ in wanted}
    are_all_functions = bool(owners) and not any(isinstance(owner, type) for owner in owners)
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None:  # type: ignore[assignment] # the loop ends with it
        if are_all_functions and frame.f_code not in owners:
            continue
        if frame.f_globals.get("__name__", "").partition(".")[0] in _OTHERS:
            continue
        yield from read(frame, partial(_numbers, frame.f_code, wanted))


def _numbers(code: object, wanted: Collection[Place], variables: Mapping[str, Any]) -> list[tuple[Place, int]]:
    this = variables.get("self")
    return [
        ((owner, name), value)
        for owner, variables_of in ((code, variables), (type(this), getattr(this, "__dict__", {})))
        for name in ([attribute for where, attribute in wanted if where is owner] if wanted else [*variables_of])
        # Not `isinstance`: a flag is an `int` too, and would look like step 0 or 1.
        if type(value := variables_of.get(name)) is int
    ]
