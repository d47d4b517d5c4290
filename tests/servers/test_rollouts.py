"""Rollouts in a real Jaeger behind a real Collector, as its API returns them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from otel_rl.serve.servers import PORTS
from tests.collector import wait_for
from tests.exporters.rollout import INPUT, OUTPUT_PARTS, send_rollouts
from tests.real_parts import needs_program
from tests.servers.running import A_WHILE, get, stack

pytestmark = [*map(needs_program, ("otelcol", "jaeger")), pytest.mark.timeout(900), pytest.mark.slow]
Spans = dict[str, dict[str, Any]]


def spans_of(operation: str) -> Spans:
    """Return the tags of the spans of a trace by name; none if Jaeger does not have it."""
    asked = urllib.parse.urlencode({"service": "policy", "operation": operation})
    found = get("jaeger", f"/api/traces?{asked}")
    traces = (found or {}).get("data") or [{"spans": []}]
    return {span["operationName"]: {tag["key"]: tag["value"] for tag in span["tags"]} for span in traces[0]["spans"]}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Spans]]:
    """The traces of a run by their root."""
    place = tmp_path_factory.mktemp("jaeger")
    names = "invoke_agent", "invoke_agent hostile", "chat"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        with stack(monkeypatch):
            address = f"http://127.0.0.1:{PORTS['otlp_http']}/v1/traces"
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
            send_rollouts(place)
            wait_for(lambda: all(map(spans_of, names)), "Jaeger lacks a trace", A_WHILE)
            yield {name: spans_of(name) for name in names}


def test_prompt_answer_tool_calls_and_reward_are_there(traces: dict[str, Spans]) -> None:
    """Tags have the messages as JSON, and the reward."""
    spans = traces["invoke_agent"]
    tags = spans["invoke_agent"]

    assert spans.keys() == {"invoke_agent", "chat policy", "execute_tool pytest"}
    assert json.loads(tags["gen_ai.input.messages"]) == INPUT
    output = json.loads(tags["gen_ai.output.messages"])
    assert [part for message in output for part in message["parts"]] == OUTPUT_PARTS
    assert tags["rl.trajectory.reward"] == 0.7


def test_a_completion_is_there(traces: dict[str, Spans]) -> None:
    """It has a trace of its own, with the answer and the reward."""
    (tags,) = traces["chat"].values()

    assert [one["parts"][0]["content"] for one in json.loads(tags["gen_ai.output.messages"])] == ["6"]
    assert tags["rl.trajectory.reward"] == 1.0


def test_a_hostile_text_is_text(traces: dict[str, Spans]) -> None:
    """It is cut, and is valid JSON in UTF-8."""
    (tags,) = traces["invoke_agent hostile"].values()
    (message,) = json.loads(tags["gen_ai.input.messages"])

    assert message["parts"][0]["content"].startswith("\\ud800 \N{REPLACEMENT CHARACTER} \x1b[31m <script>")
    assert message["parts"][0]["content"].endswith("characters more]")
