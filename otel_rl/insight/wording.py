"""Numbers, times and lists as people read them: three significant digits, "41 s", "3 min 12 s", "71.2 GiB"."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS = 3
_LARGE, _SMALL = 1e6, 1e-4
"""Numbers outside of these are written with an exponent."""
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def number(value: float) -> str:
    """Return a number with three significant digits, such as `0.0123`, `41`, `1,180` or `1.2e-7`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    size = abs(value)
    if not _SMALL <= size < _LARGE:
        mantissa, exponent = f"{value:.{_DIGITS - 1}e}".split("e")
        return f"{_trimmed(mantissa)}e{int(exponent)}"
    if size >= 10 ** (_DIGITS - 1):
        return f"{round(value):,}"
    digits = _DIGITS - 1 - math.floor(math.log10(size))
    return _trimmed(f"{value:.{digits}f}")


def signed(value: float) -> str:
    """Return a difference, such as `+0.0123` or `-41`."""
    return f"{'+' if value > 0 else ''}{number(value)}"


def integer(value: int) -> str:
    """Return a whole number with separators, such as `1,200`."""
    return f"{value:,}"


def count(value: int, noun: str, plural: str = "") -> str:
    """Return a number of things, such as `1 step` or `1,200 steps`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def percent(share: float) -> str:
    """Return a fraction in percent, such as `61 %`, `0.4 %` or `less than 0.1 %`; all but all is not `100 %`."""
    value = 100 * share
    if 0 < value < 0.1:
        return "less than 0.1 %"
    digits = 1 if 0 < value < 1 or 99.5 <= value < 100 else 0
    return f"{min(value, 99.9) if digits else value:.{digits}f} %"


def seconds(value: float) -> str:
    """Return a duration, such as `0.12 ms`, `41 s`, `3 min 12 s`, `3 h 12 min` or `2 d 4 h`."""
    if not math.isfinite(value):
        return "unknown"
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 0.9995:
        return f"{number(value * 1e3)} ms" if value else "0 s"
    if value < _MINUTE:
        text = number(value)
        return f"{text} s" if text != "60" else "1 min"
    whole = round(value)
    for unit, name, smaller, of_smaller in (
        (_MINUTE, "min", 1, "s"),
        (_HOUR, "h", _MINUTE, "min"),
        (_DAY, "d", _HOUR, "h"),
    ):
        if whole < {_MINUTE: _HOUR, _HOUR: _DAY}.get(unit, math.inf):
            large, rest = divmod(round(whole / smaller) * smaller, unit)
            if name != "d" and large * unit >= {_MINUTE: _HOUR, _HOUR: _DAY}[unit]:
                continue  # 59 min 59.6 s is 1 h
            rest //= smaller
            return f"{large:,} {name} {rest} {of_smaller}" if rest else f"{large:,} {name}"
    raise AssertionError


def signed_seconds(value: float) -> str:
    """Return a difference of times, such as `+41 s` or `-3 min`."""
    return f"{'+' if value > 0 else ''}{seconds(value)}"


def clock(unix_nano: int) -> str:
    """Return the time of a day, here, such as `12:04:07`."""
    return time.strftime("%H:%M:%S", time.localtime(unix_nano / 1e9))


def memory(value: float) -> str:
    """Return bytes, such as `71.2 GiB` or `40 MiB`."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{number(value / unit)} {name}"
    return f"{number(value)} B"


def memory_of(value: float, limit: float) -> str:
    """Return bytes of a limit in the limit's unit, such as `71.2 of 80 GiB`."""
    for unit, name in _BYTES:
        if limit >= unit:
            return f"{number(value / unit)} of {number(limit / unit)} {name}"
    return f"{number(value)} of {number(limit)} B"


def large(value: float) -> str:
    """Return a large amount, such as `1,180`, `12.3 M` or `4.1 G`."""
    for unit, name in _COUNTS:
        if abs(value) >= unit:
            return f"{number(value / unit)} {name}"
    return number(value)


def names(items: Sequence[str], most: int = 3) -> str:
    """Return a list in words, such as `a, b and c` or `a, b, c and 4 more`."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    return " and ".join((", ".join(items[:-1]), items[-1])) if len(items) > 1 else "".join(items)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
