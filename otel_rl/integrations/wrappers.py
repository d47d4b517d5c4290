"""Wrapped functions that can be pickled and copied, as functions can: Ray sends what a script's classes refer to."""

from __future__ import annotations

from copy import deepcopy
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    Function = wrapt.FunctionWrapper[..., Any]
    Method = wrapt.BoundFunctionWrapper[..., Any]
else:
    Function, Method = wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper


class _Method(Method):
    """A wrapped method, of an object or of none."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        instance = self._self_instance
        return _found(self) if instance is None else (getattr, (instance, self.__name__))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        instance = self._self_instance
        return self if instance is None else getattr(deepcopy(instance, memo), self.__name__)


class Wrapped(Function):
    """A wrapped function. Where it is loaded, it is what has its name there, hooked into or not."""

    __bound_function_wrapper__ = _Method

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return _found(self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Any:
        return self


def _found(function: Any) -> tuple[Any, ...]:
    return resolve_name, (f"{function.__module__}:{function.__qualname__}",)
