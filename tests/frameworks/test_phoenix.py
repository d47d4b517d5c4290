# /// script
# requires-python = ">=3.11"
# dependencies = ["arize-phoenix==20.26.1"]
# ///
"""Rollouts in a real Phoenix, as its API returns them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector import free_port, wait_for
from tests.exporters.rollout import INPUT, OUTPUT_PARTS, send_rollouts

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
A_WHILE = 120.0
_TRACES = 3


@contextlib.contextmanager
def serving(place: Path) -> Iterator[str]:
    """Run a server that keeps everything in a directory, and is killed at the end; give its address."""
    port = free_port()
    options = {"WORKING_DIR": place, "HOST": "127.0.0.1", "PORT": port, "GRPC_PORT": free_port()}
    environment = {f"PHOENIX_{name}": str(value) for name, value in options.items()}
    environment |= {"PHOENIX_TELEMETRY_ENABLED": "false", "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false"}
    command = [sys.executable, "-m", "phoenix.server.main", "serve"]
    with (place / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=place, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: spans_of(address) is not None, "Phoenix does not answer", A_WHILE)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def spans_of(address: str) -> list[dict[str, Any]] | None:
    """Return the spans of the project that Phoenix has; `None` if it does not answer yet."""
    try:
        with urllib.request.urlopen(f"{address}/v1/projects/default/spans?limit=100", timeout=5) as answer:
            return json.load(answer)["data"]  # type: ignore[no-any-return]
    except urllib.error.HTTPError:
        return []  # the project begins with the first span
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The spans of a run by their name."""
    place = tmp_path_factory.mktemp("phoenix")
    with serving(place) as address, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{address}/v1/traces")
        send_rollouts(place)

        def is_there() -> bool:
            return len({span["context"]["trace_id"] for span in spans_of(address) or ()}) == _TRACES

        wait_for(is_there, "Phoenix lacks a trace", A_WHILE)
        yield {span["name"]: span for span in spans_of(address) or ()}


def test_prompt_answer_tool_calls_and_reward_are_there(spans: dict[str, dict[str, Any]]) -> None:
    """As they were sent, and as Phoenix's own messages, which its pages show; the model and the tool are below them."""
    root = spans["invoke_agent"]
    attributes = root["attributes"]
    output = json.loads(attributes["gen_ai.output.messages"])
    message = "llm.output_messages.{}.message.{}"

    assert json.loads(attributes["gen_ai.input.messages"]) == INPUT
    assert [part for one in output for part in one["parts"]] == OUTPUT_PARTS
    assert attributes["llm.input_messages.0.message.content"] == "2 + 2?"
    assert attributes[message.format(0, "tool_calls.0.tool_call.function.name")] == "pytest"
    assert [attributes[message.format(n, "content")] for n in (1, 2)] == ["1 passed", "4"]
    assert attributes["rl.trajectory.reward"] == 0.7
    assert {name: spans[name]["span_kind"] for name in ("invoke_agent", "chat policy", "execute_tool pytest")} == {
        "invoke_agent": "AGENT",
        "chat policy": "LLM",
        "execute_tool pytest": "TOOL",
    }
    assert spans["chat policy"]["parent_id"] == root["context"]["span_id"]


def test_a_completion_is_there(spans: dict[str, dict[str, Any]]) -> None:
    """It has a trace of its own, with the answer and the reward."""
    attributes = spans["chat"]["attributes"]

    assert attributes["llm.output_messages.0.message.content"] == "6"
    assert attributes["rl.trajectory.reward"] == 1.0


def test_a_hostile_text_is_text(spans: dict[str, dict[str, Any]]) -> None:
    """It is cut, UTF-8 can encode it, and no database has to store NUL."""
    text = spans["invoke_agent hostile"]["attributes"]["llm.input_messages.0.message.content"]

    assert text.startswith("\\ud800 \N{REPLACEMENT CHARACTER} \x1b[31m <script>alert(1)</script> xxx")
    assert text.endswith("characters more]")
