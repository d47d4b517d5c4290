"""Remarks: statements about a run in words, each with samples that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.insight import wording
from otel_rl.insight.facts import Kind, Severity, Sure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.insight.samples.sample import Sample

_SHOWN = 3
_DIGITS = 12
"""Hexadecimal digits of a trace id by which `otel-rl samples` finds it: two of a million are alike once in 500 runs."""


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that samples show.

    Attributes:
        kind: What it is about.
        severity: How much it matters.
        sentence: What, since when, and how many.
        advice: Which samples to read, and what to do.
        steps: The first and the last step that show it.
        sure: How sure it is.
    """

    kind: Kind
    severity: Severity
    sentence: str
    advice: str
    steps: tuple[int, int]
    sure: Sure = "likely"


def short(trace_id: str) -> str:
    """Return the beginning of a trace id that names a trajectory."""
    return trace_id[:_DIGITS]


def place_of(sample: Sample) -> str:
    """Return the options of `otel-rl samples` that show a sample."""
    if sample.trace_id:
        return of_trajectory(sample.trace_id)
    return f"--step {sample.step}" + (f" --group {sample.group}" if sample.group >= 0 else "")


def of_trajectory(trace_id: str) -> str:
    """Return the option of `otel-rl samples` that shows a trajectory."""
    return f"--trajectory {short(trace_id)}"


def to_read(places: Iterable[str]) -> str:
    """Return how to read the first three samples at these places."""
    found = list(dict.fromkeys(places))[:_SHOWN]
    return f"Read otel-rl samples {wording.names(found)}." if found else ""
