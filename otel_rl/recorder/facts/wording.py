"""Numbers, times and lists as people read them: three significant digits, "41 s", "3 min 12 s", "71.2 GiB".

All numbers are rounded by one rule: of the shortest decimal number that is read as the same double, halves away from
zero. 2.675 becomes 2.68, although the double is below it. `look/page/assets/numbers.js` has the same rule and texts.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS = 3
_LARGE, _SMALL = 6, -4
"""Powers of ten from which on, and below which, numbers are written with an exponent."""
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_NEARLY_ALL = 1 - 1 / 2048
"""The part of a unit of bytes from which on a number of the smaller unit would be rounded up to 1,024."""
_COUNTS = ((0.9995e12, 1e12, "T"), (0.9995e9, 1e9, "G"), (999_999.5, 1e6, "M"))
_LAST_NS = 253_402_300_799 * 10**9
"""The last second of the year 9999."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def number(value: float, power: int = 0) -> str:
    """Return a number with three significant digits, such as `0.0123`, `41`, `1,180` or `1.2e-7`.

    Args:
        value: The number.
        power: The number of places by which its point is moved to the right; exact, as a product with 10 is not.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    digits, exponent = _decimal(value)
    size = len(f"{digits}") + exponent + power - 1
    shown = max(_DIGITS, size + 1) if size < _LARGE else _DIGITS
    size += len(f"{_in_units(value, shown - 1 - size, power)}") > shown  # 9.995 is 10
    if size < _SMALL or size >= _LARGE:
        units = _in_units(value, _DIGITS - 1 - size, power)
        mantissa = f"{units // 100}.{units % 100:02}"
        return f"{'-' if value < 0 else ''}{_trimmed(mantissa)}e{size}"
    return _trimmed(fixed(value, max(0, _DIGITS - 1 - size), power))


def fixed(value: float, decimals: int, power: int = 0) -> str:
    """Return a number with so many decimals, halves rounded away from zero; `power` as in `number`."""
    if not math.isfinite(value):
        return number(value)
    units = _in_units(value, decimals, power)
    whole, rest = divmod(units, 10**decimals)
    return f"{'-' if value < 0 and units else ''}{whole:,}{f'.{rest:0{decimals}}' if decimals else ''}"


def decimals(value: float, most: int) -> str:
    """Return a number with so many decimals at most, such as `41.3` or `41`."""
    return _trimmed(fixed(value, most))


def significant(value: float, digits: int = 2) -> float:
    """Return a number with so many significant digits, such as 148 as 150."""
    return float(f"{value:.{digits}g}")


def whole(value: float) -> int:
    """Return the nearest whole number, halves away from zero."""
    return -_in_units(value, 0, 0) if value < 0 else _in_units(value, 0, 0)


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
    if not math.isfinite(share):
        return "unknown"
    if share < 0:
        return f"-{percent(-share)}"
    if 0 < share < 0.001:
        return "less than 0.1 %"
    if 0.995 <= share < 1:
        return f"{_trimmed(fixed(min(share, 0.999), 1, 2))} %"
    return f"{_trimmed(fixed(share, 1 if share < 0.01 else 0, 2))} %"


def tenths(share: float, *, signed: bool = False) -> str:
    """Return a fraction in percent with one decimal and without the sign of percent, such as `3.4` or `+3.4`."""
    return f"{'+' if signed and share > 0 else ''}{fixed(share, 1, 2)}"


def seconds(value: float) -> str:
    """Return a duration, such as `0.12 ms`, `41 s`, `3 min 12 s`, `3 h 12 min` or `2 d 4 h`."""
    if not math.isfinite(value):
        return "unknown"
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 0.9995:
        return f"{number(value, 3)} ms" if value else "0 s"
    if value < 59.95:
        return f"{number(value)} s"
    nearest = whole(value)
    if nearest < _HOUR:
        return _in_two(nearest, _MINUTE, "min", 1, "s")
    if nearest < _DAY - _MINUTE // 2:
        return _in_two(nearest, _HOUR, "h", _MINUTE, "min")
    return _in_two(nearest, _DAY, "d", _HOUR, "h")


def signed_seconds(value: float) -> str:
    """Return a difference of times, such as `+41 s` or `-3 min`."""
    return f"{'+' if value > 0 else ''}{seconds(value)}"


def in_seconds(value: float) -> str:
    """Return a duration in whole seconds, such as `0 s` or `3 min 12 s`."""
    return seconds(whole(value))


def age(since_unix_nano: int, at_unix_nano: int) -> str:
    """Return how long ago something was, in whole seconds; a clock that is behind counts as now."""
    return in_seconds(max(0, at_unix_nano - since_unix_nano) / 1e9)


def clock(unix_nano: int) -> str:
    """Return the time of a day, here, such as `12:04:07`."""
    return time.strftime("%H:%M:%S", time.localtime(_within_years(unix_nano)))


def date(unix_nano: int) -> str:
    """Return a time with its day, such as `2026-05-04 12:04:07 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(_within_years(unix_nano)))


def _within_years(unix_nano: int) -> float:
    """Return a time in seconds, at least 1970 and at most 9999: a file of another user may have any number."""
    return min(max(unix_nano, 0), _LAST_NS) / 1e9


def memory(value: float) -> str:
    """Return bytes, such as `71.2 GiB` or `40 MiB`."""
    for unit, name in _BYTES:
        if abs(value) >= _NEARLY_ALL * unit:
            return f"{number(value / unit)} {name}"
    return f"{number(value)} B"


def memory_of(value: float, limit: float) -> str:
    """Return bytes of a limit in the limit's unit, such as `71.2 of 80 GiB`."""
    for unit, name in _BYTES:
        if limit >= _NEARLY_ALL * unit:
            return f"{number(value / unit)} of {number(limit / unit)} {name}"
    return f"{number(value)} of {number(limit)} B"


def large(value: float) -> str:
    """Return a large amount, such as `1,180`, `12.3 M` or `4.1 G`."""
    for least, unit, name in _COUNTS:
        if abs(value) >= least:
            return f"{number(value / unit)} {name}"
    return number(value)


def capitalized(text: str) -> str:
    """Return a text as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def names(items: Sequence[str], most: int = 3) -> str:
    """Return a list in words, such as `a, b and c` or `a, b, c and 4 more`."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    return " and ".join((", ".join(items[:-1]), items[-1])) if len(items) > 1 else "".join(items)


def _decimal(value: float) -> tuple[int, int]:
    """Return the digits of the shortest decimal number that is read as this one, without its sign, and their power."""
    mantissa, _, exponent = f"{abs(float(value))!r}".partition("e")
    before, _, after = mantissa.partition(".")
    return int(before + after), int(exponent or 0) - len(after)


def _in_units(value: float, decimals: int, power: int) -> int:
    """Return a number without its sign in units of its last decimal, halves rounded up."""
    digits, exponent = _decimal(value)
    dropped = -(exponent + power + decimals)
    if dropped <= 0:
        return digits * int(10**-dropped)
    unit = int(10**dropped)
    return (digits + unit // 2) // unit


def _in_two(nearest: int, unit: int, name: str, smaller: int, of_smaller: str) -> str:
    """Return whole seconds in two units, the smaller one rounded."""
    large, rest = divmod((nearest + smaller // 2) // smaller, unit // smaller)
    return f"{large:,} {name} {rest} {of_smaller}" if rest else f"{large:,} {name}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def attribute(name: str) -> str:
    """Return an attribute's name in a word: `kind` of `rl.anomaly.kind`, `host` of `host.name`."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 and parts[-1] == "name" else parts[-1]
