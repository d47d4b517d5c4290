"""The variables of functions that are being called."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

T = TypeVar("T")
_HERE = 3
"""References to a copy of a function's variables that only its frame and `read` have; one is the count's argument."""


def read(frame: FrameType, look: Callable[[Mapping[str, Any]], T]) -> T:
    """Return what `look` finds among the variables of a function, and keep none of them.

    Before Python 3.13, a frame keeps the copy that it hands out, so the tensors in it would stay after the function has
    dropped them. `locals()` hands out the same copy: if the script has it, which the count of references shows, it is
    left as it is.
    """
    variables = frame.f_locals
    result = look(variables)
    if (
        isinstance(variables, dict)
        and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        and sys.getrefcount(variables) <= _HERE
    ):
        variables.clear()
    return result
