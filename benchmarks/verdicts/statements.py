"""What otel-rl says of a run: the statements of `why`, of `top`, and of the events that its agent emits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCUSING_EVENTS = {
    "rl.autopsy.concluded",
    "rl.memory.exhausted",
    "rl.memory.growing",
    "rl.numerics.nonfinite",
    "rl.phase.stalled",
    "rl.policy.diverged",
    "rl.process.lost",
    "rl.straggler",
    "rl.training.anomaly",
    "rl.wait.broken",
}
"""Events that say that something is wrong."""


class Statement(msgspec.Struct, frozen=True):
    """Something that was said.

    Attributes:
        place: Where: `why`, `top`, or the name of an event.
        text: The sentence with its advice; of an event, its attributes.
        accuses: Whether it says that something is wrong.
        at: When it was said, in seconds since 1970.
    """

    place: str
    text: str
    accuses: bool
    at: float


def of_why(answer: dict[str, Any], at: float) -> Iterator[Statement]:
    """Return the statements of `otel-rl why --json`."""
    owed, autopsy, steps = answer.get("owed") or {}, answer.get("autopsy") or {}, answer.get("steps") or {}
    verdict = autopsy.get("verdict") or {}
    is_ill = answer.get("state") in {"hung", "failed", "crashed", "lost"}
    for sentence in answer.get("sentences", []):
        yield Statement("why", sentence, is_ill, at)
    advice = answer.get("advice") or ""
    if advice:
        yield Statement("why", advice if isinstance(advice, str) else " ".join(advice), False, at)
    yield from _findings("why", answer.get("findings", []), at)
    for sentence in owed.get("verdicts", []):
        yield Statement("why", sentence, True, at)
    for sentence in [*owed.get("sentences", []), *steps.get("sentences", [])]:
        yield Statement("why", sentence, False, at)
    if verdict:
        said = [verdict.get("sentence", ""), verdict.get("advice", ""), *verdict.get("consequences", [])]
        yield Statement("why", " ".join(said), verdict.get("kind") != "well", at)


def of_top(answer: dict[str, Any], at: float) -> Iterator[Statement]:
    """Return the statements of `otel-rl top --once --json`."""
    for run in answer.get("runs", []):
        yield from _findings("top", run.get("findings", []), at)
        if reason := run.get("summary", {}).get("reason"):
            yield Statement("top", reason, True, at)


def _findings(place: str, findings: list[dict[str, Any]], at: float) -> Iterator[Statement]:
    for finding in findings:
        text = " ".join([finding["sentence"], finding["advice"], *finding["also"]])
        yield Statement(place, text, finding["severity"] in {"bad", "warning"}, at)


def of_events(path: Path) -> Iterator[Statement]:
    """Return the events that arrived, each a line with the time and a line of JSON."""
    lines = path.read_text().splitlines() if path.exists() else []
    for arrived, body in zip(lines[::2], lines[1::2], strict=False):
        try:
            event = json.loads(body)
            at = float(arrived)
        except ValueError:
            continue  # is being written
        values = map(str, event.get("attributes", {}).values())
        words = [one for one in values if not one.startswith("/")]  # the path of the run has the scenario's name
        yield Statement(event["name"], " ".join(words), event["name"] in ACCUSING_EVENTS, at)
