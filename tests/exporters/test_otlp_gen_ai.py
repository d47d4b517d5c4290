"""Trajectories in the form of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import math

from opentelemetry.sdk.resources import Resource

from otel_rl.export import Row, Span, Trajectory
from otel_rl.recorder.settings.otel_environment import limits
from otel_rl_exporters.otlp import readable_records
from otel_rl_exporters.otlp_gen_ai import as_operation, evaluations

TRACE, ROOT = "a" * 32, "b" * 16


def span(name: str, **attributes: str | int) -> Span:
    return Span(name, TRACE, ROOT, "", 0, 1, {key.replace("__", "."): value for key, value in attributes.items()})


def test_a_trajectory_invokes_an_agent() -> None:
    """Its tokens are the output of the model; its own attributes stay."""
    found = as_operation(span("rl.trajectory", rl__trajectory__tokens=12, rl__policy__version=3))

    assert found.name == "invoke_agent"
    assert found.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.usage.output_tokens": 12,
        "rl.trajectory.tokens": 12,
        "rl.policy.version": 3,
    }


def test_a_request_to_the_model_is_a_chat() -> None:
    """With the model that the part names, and a provider, which the conventions require."""
    found = as_operation(span("rl.trajectory.model", rl__trajectory__part__name="policy"))

    assert found.name == "chat policy"
    assert found.attributes["gen_ai.operation.name"] == "chat"
    assert found.attributes["gen_ai.provider.name"] == "otel_rl"
    assert found.attributes["gen_ai.request.model"] == "policy"
    assert as_operation(span("rl.trajectory.model")).name == "chat"


def test_a_call_of_a_tool_names_the_tool() -> None:
    """In the name of the span too."""
    found = as_operation(span("rl.trajectory.tool", gen_ai__tool__name="pytest"))

    assert found.name == "execute_tool pytest"
    assert found.attributes == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pytest"}


def test_what_the_trainer_says_wins() -> None:
    """An attribute of a part that the trainer set is not replaced."""
    found = as_operation(span("rl.trajectory.model", gen_ai__provider__name="vllm"))

    assert found.attributes["gen_ai.provider.name"] == "vllm"


def test_other_spans_stay_as_they_are() -> None:
    """Also parts for which the conventions have no operation."""
    for name in ("rl.loop", "rl.trajectory.verifier", "rl.trajectory.environment", "chat"):
        assert as_operation(span(name)) == span(name)


def test_a_reward_and_its_components_are_evaluations_of_the_span() -> None:
    """Each is a log event under the span of the trajectory, in the order of the items."""
    trained = Trajectory(0, 7, 100, 2, "trained", 3, TRACE, ROOT, 0.5, components={"format": 1.0})
    found = readable_records([Row(7, 99, {"loss": 1.0}), trained], Resource.create(), limits({}))
    records = [(place, one.log_record) for place, one in found]

    assert [(place, one.event_name) for place, one in records[1:]] == [(1, "gen_ai.evaluation.result")] * 2
    assert [one.attributes for _, one in records[1:]] == [
        {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.value": score,
            "rl.loop.iteration": 7,
            "rl.rank": 2,
            "rl.trajectory.outcome": "trained",
        }
        for name, score in (("reward", 0.5), ("reward/format", 1.0))
    ]
    assert {(one.trace_id, one.span_id) for _, one in records[1:]} == {(int(TRACE, 16), int(ROOT, 16))}


def test_without_a_reward_or_a_span_there_is_no_evaluation() -> None:
    """An unknown reward is not one, and a receiver could not say what the reward is of."""
    assert evaluations(Trajectory(0, 7, 100, 2, "trained", 3, TRACE, ROOT, math.nan)) == []
    assert evaluations(Trajectory(0, 7, 100, 2, "trained", 3, "", "", 0.5)) == []
