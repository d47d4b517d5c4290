"""Trajectories and completions in the traces of a real MLflow server, as its own client reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.exporters.mlflow_server import serving
from tests.exporters.rollout import INPUT, OUTPUT_PARTS, send_rollouts
from tests.exporters.trackers import empty_database
from tests.real_parts import needs

pytestmark = [needs("mlflow"), pytest.mark.slow]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The traces of a run by their root: a trajectory that calls a tool, one of a hostile text, and a completion."""
    import mlflow

    place = tmp_path_factory.mktemp("mlflow")
    with serving(place, empty_database()) as address, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{address}/v1/traces")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-mlflow-experiment-id=0")
        send_rollouts(place)
        found = mlflow.MlflowClient(address).search_traces(locations=["0"])
        yield {next(span.name for span in one.data.spans if not span.parent_id): one for one in found}


def test_prompt_answer_tool_calls_and_reward_are_there(traces: dict[str, Any]) -> None:
    """As the request and the response of the trace; the spans are of MLflow's own types."""
    trace = traces["invoke_agent"]
    spans = {span.name: span for span in trace.data.spans}
    root = spans["invoke_agent"]

    assert {name: span.span_type for name, span in spans.items()} == {
        "invoke_agent": "AGENT",
        "chat policy": "CHAT_MODEL",
        "execute_tool pytest": "TOOL",
    }
    assert root.inputs == INPUT
    assert [part for message in root.outputs for part in message["parts"]] == OUTPUT_PARTS
    assert root.attributes["rl.trajectory.reward"] == 0.7
    assert "2 + 2?" in trace.info.request_preview
    assert "4" in trace.info.response_preview


def test_a_completion_is_there(traces: dict[str, Any]) -> None:
    """It has a trace of its own, with the prompt, the answer and the reward."""
    (span,) = traces["chat"].data.spans

    assert span.inputs == [{"role": "user", "parts": [{"type": "text", "content": "3 + 3?"}]}]
    assert [message["parts"] for message in span.outputs] == [[{"type": "text", "content": "6"}]]
    assert span.attributes["rl.trajectory.reward"] == 1.0


def test_a_hostile_text_is_text(traces: dict[str, Any]) -> None:
    """It is cut, UTF-8 can encode it, and no database has to store NUL."""
    (message,) = traces["invoke_agent hostile"].data.spans[0].inputs
    (part,) = message["parts"]

    assert part["content"].startswith("\\ud800 \N{REPLACEMENT CHARACTER} \x1b[31m <script>alert(1)</script> xxx")
    assert part["content"].endswith("characters more]")
    assert len(part["content"]) < 1 << 17
