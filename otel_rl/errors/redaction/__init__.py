"""Redaction: the functions that every text and every named value passes before it leaves the trainer's memory.

The rules are data: `formats` has what secrets look like, `names` has what they are called, `search` finds them.
"""

from __future__ import annotations

from otel_rl.errors.redaction.search import (
    LONGEST_SECRET,
    REDACTED,
    RULES,
    begin,
    hides,
    is_secret,
    learn,
    redact,
    redacted,
    redacted_name,
    redacted_start,
    without_secret,
    without_secret_options,
)

__all__ = [
    "LONGEST_SECRET",
    "REDACTED",
    "RULES",
    "begin",
    "hides",
    "is_secret",
    "learn",
    "redact",
    "redacted",
    "redacted_name",
    "redacted_start",
    "without_secret",
    "without_secret_options",
]
