"""Wrapped functions that can be pickled and copied, as functions can: Ray sends what a script's classes refer to."""

from __future__ import annotations

from copy import deepcopy
from pkgutil import resolve_name
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

import wrapt

if TYPE_CHECKING:
    Function = wrapt.FunctionWrapper[..., Any]
    Method = wrapt.BoundFunctionWrapper[..., Any]
else:
    Function, Method = wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper


class _Copied:
    """Pickles and copies as a function does, or as a method of its object."""

    def _owner(self) -> Any:
        """Return the object whose method this is; `None` for a function."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        owner, function = self._owner(), cast("Any", self)
        if owner is not None:
            return getattr, (owner, function.__name__)
        return resolve_name, (f"{function.__module__}:{function.__qualname__}",)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        owner = self._owner()
        return self if owner is None else getattr(deepcopy(owner, memo), cast("Any", self).__name__)


class _Method(_Copied, Method):
    """A wrapped method of a class, of an object or of none."""

    def _owner(self) -> Any:
        return self._self_instance


class Wrapped(_Copied, Function):
    """A wrapped function, or a method of one object. Where it is loaded, it is what has its name there."""

    __bound_function_wrapper__ = _Method

    def _owner(self) -> Any:
        return self.__wrapped__.__self__ if isinstance(self.__wrapped__, MethodType) else None
