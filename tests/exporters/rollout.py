"""A run that sends rollouts by OTLP, for the receivers that read them back."""

from __future__ import annotations

from pathlib import Path

import otel_rl

CALLS = [{"id": "c1", "type": "function", "function": {"name": "pytest", "arguments": '{"path":"x.py"}'}}]
HOSTILE = "\ud800 \0 \x1b[31m <script>alert(1)</script> " + "x" * 10_000_000
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "2 + 2?"}]}]
OUTPUT_PARTS = [
    {"type": "tool_call", "id": "c1", "name": "pytest", "arguments": {"path": "x.py"}},
    {"type": "tool_call_response", "id": "c1", "response": "1 passed"},
    {"type": "text", "content": "4"},
]


def send_rollouts(place: Path) -> None:
    """Record a trajectory that calls a tool, one of a hostile text, and a completion; all are delivered."""
    run = otel_rl.init(dir=place, project="policy", exporters=[], content=True, quiet=True)
    with run.trajectory(policy_version=7) as one:
        one.message("user", "2 + 2?")
        with one.part("model", name="policy"):
            one.message("assistant", "", tool_calls=CALLS)
        with one.part("tool", name="pytest"):
            one.message("tool", "1 passed", name="pytest")
        one.message("assistant", "4")
        one.rewarded(0.7)
    with run.trajectory(**{"gen_ai.agent.name": "hostile"}) as other:
        other.message("user", HOSTILE)
    run.completions(["3 + 3?"], ["6"], rewards=[1.0], tokens=[[21]], step=0)
    assert run.finish(60)
