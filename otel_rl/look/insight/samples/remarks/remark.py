"""Remarks: statements about a run in words, each with samples that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.facts import Kind
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import Severity
from otel_rl.recorder.facts.states import Sure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.samples.sample import TextSample

_SHOWN = 3
_DIGITS = 12
"""Hexadecimal digits of a trace id by which `otel-rl samples` finds it: two of a million are alike once in 500 runs."""


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that samples show."""

    kind: Kind  # what it is about
    severity: Severity  # how much it matters
    sentence: str  # what, since when, and how many
    advice: str  # which samples to read, and what to do
    steps: tuple[int, int]  # the first and the last step that show it
    sure: Sure = "likely"  # how sure it is
    subject: str = ""  # what it is about, as of a finding


def short(trace_id: str) -> str:
    """Return the beginning of a trace id that names a trajectory."""
    return trace_id[:_DIGITS]


def place_of(sample: TextSample) -> str:
    """Return the options of `otel-rl samples` that show a sample."""
    if sample.trace_id:
        return of_trajectory(sample.trace_id)
    return f"--steps {sample.step}" + (f" --group {sample.group}" if sample.group >= 0 else "")


def of_trajectory(trace_id: str) -> str:
    """Return the option of `otel-rl samples` that shows a trajectory."""
    return f"--trajectory {short(trace_id)}"


def to_read(places: Iterable[str]) -> str:
    """Return how to read the first three samples at these places."""
    options = list(dict.fromkeys(places))[:_SHOWN]
    return f"Read otel-rl samples {wording.names(options)}." if options else ""
