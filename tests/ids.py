"""Names of parametrized cases."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """Return the representation of a value without addresses, which differ between the workers of a test run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
