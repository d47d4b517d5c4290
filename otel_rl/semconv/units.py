"""Conversion of the units that frameworks log in to those of the registry, by their UCUM codes."""

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
    """Return what a number in the unit `given` is multiplied by to be in the unit `wanted`.

    Raises:
        ValueError: The two measure different things, or the conversion is not known.
    """
    if given == wanted or _DIMENSIONLESS.issuperset((given, wanted)):
        return 1.0
    if (given, wanted) not in _FACTORS:
        raise ValueError(f"no conversion from {given!r} to {wanted!r} is known")
    return _FACTORS[given, wanted]
