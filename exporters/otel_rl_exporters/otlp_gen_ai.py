"""Trajectories as OpenTelemetry's GenAI conventions have them: operations of an agent, and evaluations of them.

Source: open-telemetry/semantic-conventions-genai, at the commit that the registry's manifest names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Event

if TYPE_CHECKING:
    from otel_rl.export import AttributeValue, Span, Trajectory

_OPERATIONS = {
    semconv.SPAN_TRAJECTORY: ("invoke_agent", semconv.GEN_AI_AGENT_NAME),
    semconv.SPAN_COMPLETION: ("chat", ""),
    semconv.SPAN_TRAJECTORY_MODEL: ("chat", semconv.TRAJECTORY_PART_NAME),
    semconv.SPAN_TRAJECTORY_TOOL: ("execute_tool", semconv.GEN_AI_TOOL_NAME),
}
"""The operation of a span by its name, and the attribute that names what it is done with."""
_PROVIDER = "otel_rl"
"""The provider of a model whose provider is unknown; the conventions require one."""
_REWARD = "reward"


def as_operation(span: Span) -> Span:
    """Return a span of a trajectory as the conventions name and describe it; another span as it is."""
    if span.name not in _OPERATIONS:
        return span
    operation, named_by = _OPERATIONS[span.name]
    target = span.attributes.get(named_by, "")
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_OPERATION_NAME: operation}
    if tokens := span.attributes.get(semconv.TRAJECTORY_TOKENS):
        attributes[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] = tokens
    if operation == "chat":
        attributes[semconv.GEN_AI_PROVIDER_NAME] = _PROVIDER
        attributes |= {semconv.GEN_AI_REQUEST_MODEL: target} if target else {}
    # The trainer's own attributes win (tests/exporters/test_otlp_gen_ai.py).
    return replace(span, name=f"{operation} {target}".rstrip(), attributes=attributes | span.attributes)


def evaluations(trajectory: Trajectory) -> list[Event]:
    """Return the events of the reward of a trajectory and of its components, if it has a span that they can be of."""
    if not trajectory.span_id:
        return []
    where: dict[str, AttributeValue] = {semconv.TRAJECTORY_OUTCOME: trajectory.outcome}
    where |= {semconv.RUN_ATTEMPT: trajectory.attempt} if trajectory.attempt else {}
    components = {f"{_REWARD}/{name}": score for name, score in trajectory.components.items()}
    return [
        Event(
            semconv.EVENT_GEN_AI_EVALUATION_RESULT,
            trajectory.time_unix_nano,
            {semconv.GEN_AI_EVALUATION_NAME: name, semconv.GEN_AI_EVALUATION_SCORE_VALUE: score, **where},
            trajectory.step,
            trajectory.rank,
            trajectory.trace_id,
            trajectory.span_id,
        )
        for name, score in {_REWARD: trajectory.reward, **components}.items()
        if not math.isnan(score)
    ]
