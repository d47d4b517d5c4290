"""Trajectories as ATIF, read back with the package of that format."""

from __future__ import annotations

import json
import math
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from otel_rl.archive.reader import open_run
from otel_rl.archive.writer import Writer
from otel_rl.cli import main
from otel_rl.export import Message, Row, Trajectory
from otel_rl.view.export import atif
from tests.real_parts import part
from tests.view.hostile import HOSTILE

if TYPE_CHECKING:
    from pathlib import Path

Document = part("atif").Trajectory
TRACES = [f"{n:032x}" for n in range(3)]
SPAN, TIME = "b" * 16, 1_700_000_000_123_456_789
CALLS = '[{"id":"c1","type":"function","function":{"name":"pytest","arguments":"{\\"path\\":\\"x.py\\"}"}}]'


def message(number: int, author: str, text: str, trace: int = 0, **more: Any) -> Message:
    return Message(0, 4 + trace, TIME + number, "", 1, TRACES[trace], SPAN, number, author, text=text, **more)


def trained(trace: int, reward: float = 0.7, **more: Any) -> Trajectory:
    return Trajectory(0, 4 + trace, TIME + 99, 1, "trained", 7, TRACES[trace], SPAN, reward, **more)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run with three trajectories: one with a tool, one of hostile texts, and one that no step trained on."""
    writer = Writer(tmp_path / "run" / "archive" / "local", 1 << 60)
    logprobs, trainers = array("d", [-0.5, -1 / 3]).tobytes(), array("d", [-0.25, -math.inf]).tobytes()
    tokens = array("i", [11, 12]).tobytes()
    writer.add(
        message(0, "system", "Use tools."),
        message(1, "user", "Fix it.", tokens=tokens, mask=b"\0\0"),
        *[
            message(
                *(2, "assistant", "I run the tests."),
                calls=CALLS,
                policy_version=7,
                tokens=tokens,
                logprobs=logprobs,
                trainer_logprobs=trainers,
                mask=b"\1\0",
            )
        ],
        message(3, "tool", "1 failed", name="pytest"),
        message(4, "assistant", "Done.", cut=3),
        *(message(n, "assistant", text, 1) for n, text in enumerate(HOSTILE)),
        message(0, "critic", "Nobody asked.", 2),
    )
    components = {"format": 1.0}
    writer.add(trained(0, prompt_id="p", group_id="g", row="4", advantage=1.5, components=components), trained(1))
    writer.save(seals=True)
    return tmp_path / "run"


def documents(recorded: Path, place: Path) -> list[dict[str, Any]]:
    """Return the documents in the order of the files."""
    atif.write(open_run(recorded), place, None)
    return [json.loads(file.read_bytes()) for file in sorted(place.iterdir())]


def test_the_package_reads_what_it_writes(recorded: Path, tmp_path: Path) -> None:
    """Each document is valid, and the package loses nothing of it."""
    found = documents(recorded, tmp_path / "atif")

    assert len(found) == 3
    for one in found:
        assert Document.model_validate(one).to_json_dict() == one


def test_a_trajectory_with_a_tool(recorded: Path, tmp_path: Path) -> None:
    """The text of the tool is an observation of the turn that called it; log-probabilities are bit for bit."""
    found = Document.model_validate(documents(recorded, tmp_path / "atif")[0])
    turns = [(step.source, step.message) for step in found.steps]
    called = found.steps[2]

    assert found.schema_version == "ATIF-v1.8"
    assert turns == [("system", "Use tools."), ("user", "Fix it."), ("agent", "I run the tests."), ("agent", "Done.")]
    assert [(one.tool_call_id, one.function_name, one.arguments) for one in called.tool_calls] == [
        ("c1", "pytest", {"path": "x.py"})
    ]
    assert [(one.source_call_id, one.content) for one in called.observation.results] == [("c1", "1 failed")]
    assert called.metrics.completion_token_ids == [11, 12]
    assert called.metrics.logprobs == [-0.5, -1 / 3]
    assert found.final_metrics.total_completion_tokens == 2


def test_what_the_format_lacks_is_in_extra(recorded: Path, tmp_path: Path) -> None:
    """Reward, advantage, origin and versions of a trajectory; mask and the trainer's log-probabilities of a turn."""
    found = documents(recorded, tmp_path / "atif")[0]
    facts, turn = found["extra"]["otel_rl"], found["steps"][2]["extra"]["otel_rl"]

    assert facts.items() >= {"reward": 0.7, "advantage": 1.5, "prompt_id": "p", "group_id": "g", "row": "4"}.items()
    assert facts.items() >= {"components": {"format": 1.0}, "outcome": "trained", "step": 4, "rank": 1}.items()
    assert turn.items() >= {"policy_version": 7, "mask": [True, False], "number": 2}.items()
    assert turn["trainer_logprobs"] == [-0.25, "-Infinity"]
    assert found["steps"][1]["extra"]["otel_rl"]["tokens"] == [11, 12]
    assert found["steps"][3]["extra"]["otel_rl"]["cut"] == 3


def test_a_trajectory_that_no_step_trained_on(recorded: Path, tmp_path: Path) -> None:
    """It has no outcome and no reward; a message of an unknown author is one of the system, and names its author."""
    found = documents(recorded, tmp_path / "atif")[2]

    assert found["extra"]["otel_rl"].keys() == {"attempt", "step", "rank", "trace_id", "span_id", "run"}
    assert found["agent"] == {"name": recorded.parent.name, "version": "unknown"}
    assert [(step["source"], step["extra"]["otel_rl"]["author"]) for step in found["steps"]] == [("system", "critic")]


def test_a_line_for_each(recorded: Path, tmp_path: Path) -> None:
    """A file that ends in .jsonl has the same documents; steps are chosen as for the other formats."""
    file = tmp_path / "some.jsonl"
    options = ["--to", "atif", "-o", str(file), "--from", "5", "--to-step", "5", "--json"]
    result = CliRunner().invoke(main, ["export", str(recorded), *options])

    assert json.loads(result.stdout)["files"] == {str(file): 1}
    assert [json.loads(line) for line in file.read_bytes().splitlines()] == documents(recorded, tmp_path / "atif")[1:2]


def test_a_run_without_messages(tmp_path: Path) -> None:
    """There is nothing to write, and the command says what to do."""
    writer = Writer(tmp_path / "archive" / "local", 1 << 60)
    writer.add(Row(0, 1, {"loss": 0.5}))
    writer.save(seals=True)
    result = CliRunner().invoke(main, ["export", str(tmp_path), "--to", "atif"])

    assert result.exit_code == 0
    assert "otel_rl.init(content=True)" in result.stderr
