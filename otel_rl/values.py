"""What trainers hold — floats, NumPy and torch scalars — as plain numbers, never waiting for a device."""

from __future__ import annotations

import numbers
import sys
from operator import countOf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLAIN = frozenset({float, int})
_NAMES = frozenset({str})
_LARGEST_INT = 1 << 63


class Unconvertible(TypeError):
    """A value is no number, or reading it would make the trainer wait."""


def is_plain(values: Mapping[str, object]) -> bool:
    """Tell whether all names are `str` and all values `float` or `int`, so that nothing has to be converted."""
    numbers_only = countOf(map(type, values.values()), float) == len(values) or PLAIN.issuperset(
        map(type, values.values())
    )
    return numbers_only and _NAMES.issuperset(map(type, values)) and "" not in values


def to_numbers(values: Mapping[str, object], refuse: Callable[[str, str], None]) -> dict[str, int | float]:
    """Return the values that are numbers; the others are given to `refuse` with a reason and a text."""
    kept: dict[str, int | float] = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            refuse("name", f"metric name {name!r} is no text")
            continue
        try:
            kept[str.__str__(name)] = to_number(value)
        except Exception as error:  # what a foreign object's conversion may raise is not known
            refuse("value", f"{name}: {error}")
    return kept


def to_number(value: object) -> int | float:
    """Return a real scalar as `int` or `float`, exactly.

    Raises:
        Unconvertible: It is a bool, a text, not a scalar, complex, or on a device.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool):
        raise Unconvertible("a bool is no number; log int(value) if it is meant to be one")
    if isinstance(value, int):
        return int(value) if -_LARGEST_INT <= value < 2 * _LARGEST_INT else float(value)
    _check_host(value)
    item = getattr(value, "item", None)
    if item is not None:
        if getattr(value, "size", None) not in (1, None) and not callable(value.size):  # type: ignore[attr-defined]
            raise Unconvertible(f"{value.size} values where one is expected")  # type: ignore[attr-defined]
        scalar = item()
        if isinstance(scalar, (str, bytes)):
            raise Unconvertible("a text is no number")
        return float(scalar) if not isinstance(scalar, (bool, int, float)) else to_number(scalar)
    if isinstance(value, numbers.Real):
        return float(value)
    raise Unconvertible(f"{type(value).__name__} is no number")


def _check_host(value: object) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise Unconvertible(
                f"a tensor on {value.device} would make the step wait for the device; "
                "log `.item()` where the trainer waits anyway"
            )
        if value.numel() != 1:
            raise Unconvertible(f"a tensor of shape {tuple(value.shape)} where one value is expected")
    elif type(value).__module__.startswith("jax") and any(d.platform != "cpu" for d in value.devices()):  # type: ignore[attr-defined]
        raise Unconvertible("a JAX array on a device would make the step wait; log float(value) where it is ready")
