"""Trajectories with messages, as items of an archive."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from otel_rl import semconv
from otel_rl.export import Item, Message, Span, Trajectory

BEGAN = 1_790_000_000_000_000_000


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message: its author and text, and what else is known of it."""

    author: str
    text: str
    name: str = ""
    calls: object = None
    cut: int = 0
    version: int = -1
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    trainer: Sequence[float] = ()
    mask: Sequence[bool] = ()
    pieces: Sequence[str] = ()


def trace_of(step: int, number: int) -> str:
    """Return the trace id of a trajectory."""
    return f"{step:04x}{number:04x}{1:024x}"


def told(
    step: int, number: int, *said: Said, taken: bool = True, tool_seconds: float = 0.0, **facts: Any
) -> Iterator[Item]:
    """Yield the items of a trajectory; `facts` are fields of what the step recorded of it, unless it is not `taken`."""
    trace, span = trace_of(step, number), f"{step:08x}{number:08x}"
    time = BEGAN + step * 1_000_000_000 + number
    for place, one in enumerate(said):
        yield Message(
            attempt=0,
            step=step,
            time_unix_nano=time + place,
            role="",
            rank=0,
            trace_id=trace,
            span_id=span,
            number=place,
            author=one.author,
            name=one.name,
            text=one.text,
            cut=one.cut,
            calls="" if one.calls is None else msgspec.json.encode(one.calls).decode(),
            policy_version=one.version,
            tokens=array("i", one.tokens).tobytes(),
            logprobs=array("d", one.logprobs).tobytes(),
            trainer_logprobs=array("d", one.trainer).tobytes(),
            mask=bytes(map(int, one.mask)),
            pieces=tuple(one.pieces),
        )
    if taken:
        known = {"outcome": "trained", "policy_version": step, "reward": math.nan, "number": number, **facts}
        yield Trajectory(attempt=0, step=step, time_unix_nano=time, rank=0, trace_id=trace, span_id=span, **known)
    if tool_seconds:
        end = time + round(tool_seconds * 1e9)
        attributes = {semconv.GEN_AI_TOOL_NAME: "pytest"}
        yield Span(f"{semconv.SPAN_TRAJECTORY}.tool", trace, f"f{step:07x}{number:08x}", span, time, end, attributes)


def asked(question: str, answer: str, **known: Any) -> tuple[Said, Said]:
    """Return a question and the answer of the policy."""
    return Said(author="user", text=question), Said(author="assistant", text=answer, **known)
