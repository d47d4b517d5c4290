"""Steps that were refused, while the trainer is inside of them.

What is logged there without a step of its own belongs to no step: it must not end up in the row of another one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from otel_rl.trainer.with_blocks import entered_in, is_left, is_with

if TYPE_CHECKING:
    from types import FrameType

    from otel_rl.trainer.with_blocks import Block

RefusedSteps = dict[object, tuple["Block", object]]
"""The refused steps that were entered: where, and the one around it. It is empty nearly always, which is all that
`log` looks at."""

_here: ContextVar[object] = ContextVar("otel_rl_refused_step", default=None)


def enter(steps: RefusedSteps, step: object, frame: FrameType) -> None:
    """Take note that the trainer enters a refused step in `frame`."""
    steps[step] = entered_in(frame), _here.get()
    _here.set(step)


def leave(steps: RefusedSteps, step: object) -> None:
    """Take note that the trainer leaves it; one that was not refused is ignored."""
    found = steps.pop(step, None)
    if found is not None and _here.get() is step:
        _here.set(found[1])


def is_inside(steps: RefusedSteps, *, of_a_step: bool) -> bool:
    """Tell whether the caller is inside of a refused step.

    Inside of a step that is open, this is so for whoever entered the refused one; outside of any, for all threads.
    """
    _forget(steps, [step for step, (block, _) in steps.items() if is_left(block)])
    return bool(steps) and (not of_a_step or _here.get() in steps)


def forget_by_hand(steps: RefusedSteps) -> None:
    """Forget those that were entered without `with`: such a step lasts at most until the next one begins."""
    _forget(steps, [step for step, (block, _) in steps.items() if not is_with(block)])


def _forget(steps: RefusedSteps, which: list[object]) -> None:
    for step in which:
        steps.pop(step, None)
