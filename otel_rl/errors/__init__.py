"""What can go wrong, and how it is said: exceptions, warnings by the thousand, interrupts that pass, signals that stop.

Every room may import it; it imports none.
"""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting is wrong; the message names it and says what to do."""


class UnavailableError(SettingsError):
    """The machine does not allow what the settings ask for; only `strict` makes `init` raise it."""


class UnwritableError(UnavailableError):
    """A directory cannot be written."""
