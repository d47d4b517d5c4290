"""Columns of numbers inside a page: little-endian arrays, compressed, in base64. `decode.js` reads them."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Packed = dict[str, Any]
_LEVEL = 6
_SCALE = 1e6
"""Times are whole microseconds in a page."""


def packed(values: np.ndarray[Any, Any] | Sequence[float], kind: str = "f8", level: int = _LEVEL) -> Packed:
    """Return a column of a NumPy type: `f8`, `f4`, `i4` or `u1`; a missing value is NaN."""
    array = np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
    return {"kind": kind, "count": len(array), "data": _text(array, level)}


def packed_steps(values: np.ndarray[Any, Any]) -> Packed:
    """Return ascending whole numbers as their differences, which compress to almost nothing."""
    return _differences(np.asarray(values, np.int64), 1.0)


def packed_times(seconds: np.ndarray[Any, Any]) -> Packed:
    """Return times in seconds as differences of microseconds."""
    return _differences(np.round(np.asarray(seconds, np.float64) * _SCALE).astype(np.int64), 1 / _SCALE)


def _differences(whole: np.ndarray[Any, Any], scale: float) -> Packed:
    first = int(whole[0]) if len(whole) else 0
    differences = np.diff(whole, prepend=first)
    if len(whole) and np.abs(differences).max() > np.iinfo(np.int32).max:
        return packed(whole * scale)
    return {**packed(differences, "i4"), "first": first, "scale": scale}


def _text(array: np.ndarray[Any, Any], level: int) -> str:
    """Bytes of equal weight lie side by side: they compress better."""
    size = array.dtype.itemsize
    shuffled = array.view(np.uint8).reshape(-1, size).T if size > 1 else array
    return base64.b64encode(gzip.compress(np.ascontiguousarray(shuffled).tobytes(), level, mtime=0)).decode("ascii")
