"""Conversion of frameworks' units to those of the registry, by UCUM codes."""

from __future__ import annotations

_FACTORS = {
    ("GiBy", "By"): 2.0**30,
    ("MiBy", "By"): 2.0**20,
    ("KiBy", "By"): 2.0**10,
    ("GBy", "By"): 1e9,
    ("MBy", "By"): 1e6,
    ("ms", "s"): 1e-3,
    ("us", "s"): 1e-6,
    ("min", "s"): 60.0,
    ("h", "s"): 3600.0,
    ("%", "1"): 1e-2,
    ("{TFLOP}", "{FLOP}"): 1e12,
    ("{TFLOP}/s", "{FLOP}/s"): 1e12,
    ("{GFLOP}/s", "{FLOP}/s"): 1e9,
    ("s/{token}", "s"): 1.0,
    ("ms/{token}", "s"): 1e-3,
    ("us/{token}", "s"): 1e-6,
}
_DIMENSIONLESS = frozenset({"", "1", "nat"})


def factor(given: str, wanted: str) -> float:
    """Return the factor that converts a number from the unit `given` to `wanted`.

    Raises:
        ValueError: The conversion is unknown, or impossible.
    """
    if given == wanted or _DIMENSIONLESS.issuperset((given, wanted)):
        return 1.0
    if (given, wanted) not in _FACTORS:
        raise ValueError(f"unknown conversion from {given!r} to {wanted!r}")
    return _FACTORS[given, wanted]
