"""The numbers among the values that frameworks give their trackers, as these chart them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.convert.values import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without texts and `None`; an array of one element is its element, at any depth."""
    return {
        name: value if type(value) in PLAIN else numbers(value) if isinstance(value, Mapping) else element(value)
        for name, value in values.items()
        if not isinstance(value, str) and value is not None
    }


def element(value: Any) -> Any:
    """Return the element of an array or tensor that has only one, on its device; other values as they are."""
    shape = getattr(value, "shape", None)
    # The shape of a DTensor is that of all ranks: to change it may be a collective.
    if not isinstance(shape, tuple) or math.prod(shape) != 1 or hasattr(value, "placements"):
        return value
    try:
        if (is_ready := getattr(value, "is_ready", None)) is not None and is_ready():
            return value.item()  # of JAX, which keeps it: a tracker that reads it next does not wait again
        return value.reshape(()) if shape else value
    except Exception:  # a foreign object may raise anything
        return value


def flat(values: Mapping[str, Any], prefix: str = "", between: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, their names joined with slashes."""
    for name, value in values.items():
        full = f"{prefix}{between}{name}" if prefix else str(name)
        if isinstance(value, dict):
            yield from flat(value, full, between)
        else:
            yield full, value
