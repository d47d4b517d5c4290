"""Whether the `with` block that entered a span has been left.

An interrupt at the first instruction of `__exit__`, such as a Ctrl-C, hides the end of a block from its span. But a
`with` statement looks up `__exit__` when it begins, and holds what it found until its block has been left, in whatever
way: CPython then drops it from the frame's stack, even if a traceback keeps the frame.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable

    Block = ref[MethodType]
    """Alive until the block has been left."""

Method = TypeVar("Method", bound="Callable[..., Any]")


class _Watched:
    """An `__exit__` that gives each `with` statement a bound method of its own, and the span a weak reference to it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, span: Any, owner: type | None = None) -> Callable[..., Any]:
        if span is None:
            return self._method
        bound = MethodType(self._method, span)
        if span._block is None or span._block() is None:  # who only looks at a span that is entered changes nothing
            span._block = ref(bound)
        return bound


def watched(method: Method) -> Method:
    """Make an `__exit__` set `_block` of its object, for `is_left`, when a `with` statement enters it."""
    return cast("Method", _Watched(method))


def is_left(block: Block | None) -> bool:
    """Return whether a block has certainly been left; false if there was no `with` statement."""
    return block is not None and block() is None
