"""Refused steps that the trainer is inside of.

Values that are logged there without `step=` belong to no step: they must not appear in the row of another one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from otel_rl.trainer.with_blocks import entered_in, is_left, is_with

if TYPE_CHECKING:
    from types import FrameType

    from otel_rl.trainer.with_blocks import Block

RefusedSteps = dict[object, tuple["Block", object]]
"""Refused steps that were entered: the block, and the surrounding one. It is nearly always empty, and `log` looks only
at that."""

_here: ContextVar[object] = ContextVar("otel_rl_refused_step", default=None)


def enter(steps: RefusedSteps, step: object, frame: FrameType) -> None:
    """Register that the trainer enters a refused step in `frame`."""
    steps[step] = entered_in(frame), _here.get()
    _here.set(step)


def leave(steps: RefusedSteps, step: object) -> None:
    """Unregister a refused step; other steps are ignored."""
    found = steps.pop(step, None)
    if found is not None and _here.get() is step:
        _here.set(found[1])


def is_inside(steps: RefusedSteps, *, of_a_step: bool) -> bool:
    """Return whether the caller is inside a refused step.

    If a step is open, only the context that entered the refused one is inside; otherwise all threads are.
    """
    _forget(steps, [step for step, (block, _) in steps.items() if is_left(block)])
    return bool(steps) and (not of_a_step or _here.get() in steps)


def forget_by_hand(steps: RefusedSteps) -> None:
    """Forget refused steps that were entered without `with`: they last at most until the next step begins."""
    _forget(steps, [step for step, (block, _) in steps.items() if not is_with(block)])


def _forget(steps: RefusedSteps, which: list[object]) -> None:
    for step in which:
        steps.pop(step, None)
