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


class Written(msgspec.Struct, frozen=True, kw_only=True):
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


def chat(
    step: int, number: int, *turns: Written, taken: bool = True, tool_seconds: float = 0.0, **facts: Any
) -> Iterator[Item]:
    """Yield the items of a trajectory; `facts` are fields of what the step recorded of it, unless it is not `taken`."""
    trace, span = trace_of(step, number), f"{step:08x}{number:08x}"
    time = BEGAN + step * 1_000_000_000 + number
    for place, turn in enumerate(turns):
        yield Message(
            attempt=0,
            step=step,
            time_unix_nano=time + place,
            role="",
            rank=0,
            trace_id=trace,
            span_id=span,
            number=place,
            author=turn.author,
            name=turn.name,
            text=turn.text,
            cut=turn.cut,
            calls="" if turn.calls is None else msgspec.json.encode(turn.calls).decode(),
            policy_version=turn.version,
            tokens=array("i", turn.tokens).tobytes(),
            logprobs=array("d", turn.logprobs).tobytes(),
            trainer_logprobs=array("d", turn.trainer).tobytes(),
            mask=bytes(map(int, turn.mask)),
            pieces=tuple(turn.pieces),
        )
    if taken:
        known = {"outcome": "trained", "policy_version": step, "reward": math.nan, "number": number, **facts}
        yield Trajectory(attempt=0, step=step, time_unix_nano=time, rank=0, trace_id=trace, span_id=span, **known)
    if tool_seconds:
        end = time + round(tool_seconds * 1e9)
        attributes = {semconv.GEN_AI_TOOL_NAME: "pytest"}
        yield Span(f"{semconv.SPAN_TRAJECTORY}.tool", trace, f"f{step:07x}{number:08x}", span, time, end, attributes)


def asked(question: str, answer: str, **known: Any) -> tuple[Written, Written]:
    """Return a question and the answer of the policy."""
    return Written(author="user", text=question), Written(author="assistant", text=answer, **known)
