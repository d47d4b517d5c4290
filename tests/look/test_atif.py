"""Trajectories as ATIF, read back with the package of that format, and as a run again."""

from __future__ import annotations

import json
import math
import os
from array import array
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.export import Message, Row, Trajectory
from otel_rl.look.export import atif
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.hostile import HOSTILE
from tests.real_parts import part

Document = part("atif").Trajectory
TRACES = [f"{n:032x}" for n in range(3)]
SPAN, TIME = "b" * 16, 1_700_000_000_123_456_789
IMAGE = {"type": "image", "source": {"media_type": "image/png", "path": "images/x.png"}}
CALLS = '[{"id":"c1","type":"function","function":{"name":"pytest","arguments":"{\\"path\\":\\"x.py\\"}"}}]'


def message(number: int, author: str, text: str, trace: int = 0, **more: Any) -> Message:
    return Message(0, 4 + trace, TIME + number, "", 1, TRACES[trace], SPAN, number, author, text=text, **more)


def trained(trace: int, reward: float = 0.7, **more: Any) -> Trajectory:
    return Trajectory(0, 4 + trace, TIME + 99, 1, "trained", 7, TRACES[trace], SPAN, reward, **more)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run with three trajectories: one with a tool, one of hostile texts, and one that no step trained on."""
    writer = ArchiveWriter(tmp_path / "run" / "archive" / "local", 1 << 60)
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
                pieces=("I run", " the tests."),
            )
        ],
        message(3, "tool", "1 failed", name="pytest"),
        message(4, "assistant", "Done.", cut=3),
        *(message(n, "assistant", text, 1) for n, text in enumerate(HOSTILE)),
        message(0, "critic", "Nobody asked.", 2),
    )
    components = {"format": 1.0, "style": math.nan}
    writer.add(trained(0, prompt_id="p", group_id="g", row="4", advantage=1.5, components=components), trained(1))
    writer.save(seals=True)
    return tmp_path / "run"


def documents(recorded: Path, place: Path) -> list[dict[str, Any]]:
    """Return the documents in the order of the files."""
    atif.write(open_run(recorded), place, None)
    return [json.loads(file.read_bytes()) for file in sorted(place.iterdir())]


def imported(source: Path, place: Path) -> tuple[int, dict[str, Any]]:
    """Make a run of trajectories; return the exit code, and what the command says."""
    result = CliRunner().invoke(main, ["export", str(source), "--to", "run", "-o", str(place), "--json"])
    return result.exit_code, json.loads(result.stdout)


def of_harbor(trial: Path, rewards: dict[str, float] | None = None, **more: Any) -> Path:
    """Write a trial as Harbor does; return the file of the trajectory."""
    calls = [{"tool_call_id": "c", "function_name": "bash", "arguments": {"keystrokes": "ls"}}]
    results = [{"source_call_id": "c", "content": [{"type": "text", "text": "x.py"}, IMAGE]}]
    steps: list[dict[str, Any]] = [
        {"source": "user", "message": "Fix it.", "timestamp": "2023-11-14T22:13:20.5Z"},
        {"source": "agent", "message": "", "reasoning_content": "Look.", "tool_calls": calls},
    ]
    steps[1] |= {"observation": {"results": results}, "metrics": {"completion_token_ids": [1, 2], "logprobs": [-1, -2]}}
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    agent = {"name": "terminus-2", "version": "2.0"}
    document = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": numbered, **more}
    (trial / "agent").mkdir(parents=True)
    result = {"schema_version": 1, "task_name": "fix", "verifier_result": {"rewards": rewards}}
    (trial / "result.json").write_text(json.dumps(result if rewards else {}))
    (trial / "agent" / "events.json").write_text("[")
    file = trial / "agent" / "trajectory.json"
    file.write_text(json.dumps(document))
    return file


def test_the_package_reads_what_it_writes(recorded: Path, tmp_path: Path) -> None:
    """Each document is valid, and the package loses nothing of it."""
    written = documents(recorded, tmp_path / "atif")

    assert len(written) == 3
    for document in written:
        assert Document.model_validate(document).to_json_dict() == document


def test_a_trajectory_with_a_tool(recorded: Path, tmp_path: Path) -> None:
    """The text of the tool is an observation of the turn that called it; log-probabilities are bit for bit."""
    document = Document.model_validate(documents(recorded, tmp_path / "atif")[0])
    turns = [(step.source, step.message) for step in document.steps]
    called = document.steps[2]

    assert document.schema_version == "ATIF-v1.8"
    assert turns == [("system", "Use tools."), ("user", "Fix it."), ("agent", "I run the tests."), ("agent", "Done.")]
    assert [
        (tool_call.tool_call_id, tool_call.function_name, tool_call.arguments) for tool_call in called.tool_calls
    ] == [("c1", "pytest", {"path": "x.py"})]
    assert [(result.source_call_id, result.content) for result in called.observation.results] == [("c1", "1 failed")]
    assert called.metrics.completion_token_ids == [11, 12]
    assert called.metrics.logprobs == [-0.5, -1 / 3]
    assert document.final_metrics.total_completion_tokens == 2


def test_what_the_format_lacks_is_in_extra(recorded: Path, tmp_path: Path) -> None:
    """Reward, advantage, origin and versions of a trajectory; mask and the trainer's log-probabilities of a turn."""
    written = documents(recorded, tmp_path / "atif")[0]
    facts, turn = written["extra"]["otel_rl"], written["steps"][2]["extra"]["otel_rl"]

    assert facts.items() >= {"reward": 0.7, "advantage": 1.5, "prompt_id": "p", "group_id": "g", "row": "4"}.items()
    assert (
        facts.items()
        >= {"components": {"format": 1.0, "style": "NaN"}, "outcome": "trained", "step": 4, "rank": 1}.items()
    )
    assert turn.items() >= {"policy_version": 7, "mask": [True, False], "number": 2}.items()
    assert turn["pieces"] == ["I run", " the tests."]
    assert turn["trainer_logprobs"] == [-0.25, "-Infinity"]
    assert written["steps"][1]["extra"]["otel_rl"]["tokens"] == [11, 12]
    assert written["steps"][3]["extra"]["otel_rl"]["cut"] == 3


def test_a_trajectory_that_no_step_trained_on(recorded: Path, tmp_path: Path) -> None:
    """It has no outcome and no reward; a message of an unknown author is one of the system, and names its author."""
    written = documents(recorded, tmp_path / "atif")[2]

    assert written["extra"]["otel_rl"].keys() == {"attempt", "step", "rank", "trace_id", "span_id", "run"}
    assert written["agent"] == {"name": recorded.parent.name, "version": "unknown"}
    assert [(step["source"], step["extra"]["otel_rl"]["author"]) for step in written["steps"]] == [("system", "critic")]


def test_a_line_for_each(recorded: Path, tmp_path: Path) -> None:
    """A file that ends in .jsonl has the same documents; steps are chosen as for the other formats."""
    file = tmp_path / "some.jsonl"
    options = ["--to", "atif", "-o", str(file), "--steps", "5", "--json"]
    result = CliRunner().invoke(main, ["export", str(recorded), *options])

    assert json.loads(result.stdout)["files"] == {str(file): 1}
    assert [json.loads(line) for line in file.read_bytes().splitlines()] == documents(recorded, tmp_path / "atif")[1:2]


def test_a_run_without_messages(tmp_path: Path) -> None:
    """There is nothing to write, and the command says what to do."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    writer.add(Row(0, 1, {"loss": 0.5}))
    writer.save(seals=True)
    result = CliRunner().invoke(main, ["export", str(tmp_path), "--to", "atif"])

    assert result.exit_code == 0
    assert "otel_rl.init(content=True)" in result.stderr


@pytest.mark.parametrize("place", ["atif", "some.jsonl"])
def test_what_is_read_is_exported_again_as_it_was(recorded: Path, tmp_path: Path, place: str) -> None:
    """Exported, read and exported again, all documents are equal, what the format lacks and NaN included."""
    atif.write(open_run(recorded), tmp_path / place, None)
    expected = documents(recorded, tmp_path / "expected")

    code, printed = imported(tmp_path / place, tmp_path / "again")

    assert (code, printed["files"], printed["refused"]) == (0, {str(tmp_path / "again"): 3}, [])
    assert documents(tmp_path / "again", tmp_path / "second") == expected
    assert expected[0]["extra"]["otel_rl"]["components"] == {"format": 1.0, "style": "NaN"}


def test_a_run_that_is_read_can_be_looked_at(recorded: Path, tmp_path: Path) -> None:
    """It has finished, and has the id and the name of the run that was exported."""
    (recorded / "run.json").write_text('{"id": "r-1", "project": "p", "name": "n"}')
    documents(recorded, tmp_path / "atif")
    imported(tmp_path / "atif", tmp_path / "again")
    run = open_run(tmp_path / "again")
    answer = json.loads(CliRunner().invoke(main, ["samples", str(tmp_path / "again"), "--steps", "4", "--json"]).stdout)

    assert run.place[1:4] == ("r-1", "p", "n")
    assert run.sql("SELECT outcome FROM ends")["outcome"].tolist() == ["finished"]
    assert [shown["sample"]["reward"] for shown in answer["samples"]] == [0.7]


def test_a_job_of_harbor(tmp_path: Path) -> None:
    """Each trial has the rewards and the task of its result; other files are left out."""
    of_harbor(tmp_path / "job" / "fix__1", {"reward": 1.0, "style": 0.5})
    of_harbor(tmp_path / "job" / "fix__2", {"accuracy": 0.0})
    of_harbor(tmp_path / "job" / "other")
    code, printed = imported(tmp_path / "job", tmp_path / "run")
    run = open_run(tmp_path / "run")
    facts = run.trajectories()

    assert (code, printed["refused"], run.place.name, run.place.project) == (0, [], "job", "terminus-2")
    assert {*zip(facts["reward"], facts["group_id"], facts["components"], strict=True)} == {
        (1.0, "fix", '{"style":0.5}'),
        (0.0, "fix", None),
    }
    assert len({*run.messages()["trace_id"]}) == 3


def test_messages_of_another_program(tmp_path: Path) -> None:
    """Reasoning is part of the text, an image its type; tools have the name of the call; tokens are the turn's."""
    imported(of_harbor(tmp_path / "trial"), tmp_path / "run")
    rows = open_run(tmp_path / "run").messages()

    assert [*zip(rows["author"], rows["text"], rows["name"], strict=True)] == [
        ("user", "Fix it.", ""),
        ("assistant", "<think>\nLook.\n</think>\n", ""),
        ("tool", "x.py\n<image>", "bash"),
    ]
    assert rows["tokens"][1] == [1, 2]
    assert rows["logprobs"][1] == [-1.0, -2.0]
    assert {*rows["time_unix_nano"].tolist()} == {1_700_000_000_500_000_000}


def test_trajectories_of_subagents(tmp_path: Path) -> None:
    """They are trajectories of their own, without the rewards of the whole."""
    steps = [{"step_id": 1, "source": "agent", "message": "Found it."}]
    agent = {"name": "finder", "version": "1"}
    sub = {"schema_version": "ATIF-v1.7", "trajectory_id": "t", "agent": agent, "steps": steps}
    of_harbor(tmp_path / "trial", {"reward": 1.0}, subagent_trajectories=[sub])
    imported(tmp_path / "trial", tmp_path / "run")

    assert len({*open_run(tmp_path / "run").messages()["trace_id"]}) == 2
    assert open_run(tmp_path / "run").trajectories()["reward"].tolist() == [1.0]


def test_a_secret_is_not_kept(tmp_path: Path) -> None:
    """It is redacted in texts and arguments, and the tokens that spell it are left out."""
    secret = "sk-ant-api03-" + "aB3" * 30
    file = of_harbor(tmp_path / "trial")
    file.write_text(file.read_text().replace("Look.", secret).replace('"ls"', json.dumps(secret)))
    imported(file, tmp_path / "run")
    rows = open_run(tmp_path / "run").messages()

    assert "<think>" in rows["text"][1]
    assert secret not in str([*rows["text"], *rows["calls"]])
    assert rows["tokens"][1] is None


OURS = {"trace_id": "a" * 32, "span_id": SPAN, "policy_version": 1, "outcome": "trained"}


def ours(**more: Any) -> dict[str, Any]:
    """Return a document with facts of otel-rl."""
    return {"extra": {"otel_rl": OURS | more}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"schema_version": "ATIF-v2.0"}, "schema_version"),
        ({"steps": []}, "length >= 1"),
        ({"steps": 4}, "array"),
        ({"steps": [{"step_id": 7, "source": "user", "message": "x"}]}, "sequential"),
        ({"steps": [{"step_id": 1, "source": "robot", "message": "x"}]}, "robot"),
        ({"extra": {"otel_rl": 1}}, "object"),
        (ours(step=1 << 63), "out of range"),
        (ours(step=-2), "out of range"),
        (ours(step="x"), "`int`"),
        (ours(components={"a": "b"}), "`float`"),
        (ours(type="row"), "row"),
        (ours(versions=[[1]]), "length 2"),
    ],
)
def test_what_is_not_a_trajectory_is_refused(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    """The sentence names the file and the reason, and no run is left; nothing is raised."""
    file = of_harbor(tmp_path / "trial", **more)
    code, printed = imported(file, tmp_path / "run")

    assert (code, printed["files"], (tmp_path / "run").exists()) == (1, {}, False)
    assert printed["refused"][0].startswith(f"{file}: not read as a trajectory in ATIF 1: ")
    assert why in printed["refused"][0]


@pytest.mark.parametrize(
    "given",
    [
        {"number": 1 << 70},
        {"time_unix_nano": "later"},
        {"at": "x"},
        {"tokens": [1 << 40]},
        {"tokens": [1]},
        {"mask": [True]},
        {"trainer_logprobs": {"a": 1}},
        {"cut": "x"},
        {"author": None},
    ],
)
def test_what_otel_rl_does_not_add_to_a_message(tmp_path: Path, given: dict[str, Any]) -> None:
    """It is refused, or left out if it is not a field of a message; nothing is raised."""
    file = of_harbor(tmp_path / "trial")
    document = json.loads(file.read_text())
    document["steps"][1]["extra"] = {"otel_rl": {"number": 1, "time_unix_nano": TIME, **given}}
    file.write_text(json.dumps(document))
    code, printed = imported(file, tmp_path / "run")

    assert code == ("at" not in given) == len(printed["refused"])


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": ' * 100_000, b"null", b"\0" * 4096])
def test_damaged_files_are_refused_one_by_one(tmp_path: Path, data: bytes) -> None:
    """The other trajectories are read, and the command exits with 1."""
    of_harbor(tmp_path / "job" / "good")
    bad = of_harbor(tmp_path / "job" / "bad")
    bad.write_bytes(data)
    code, printed = imported(tmp_path / "job", tmp_path / "run")

    assert (code, printed["files"]) == (1, {str(tmp_path / "run"): 1})
    assert [text.split(":")[0] for text in printed["refused"]] == [str(bad)]


def test_a_trajectory_with_too_many_messages(tmp_path: Path) -> None:
    """It is refused, since readers could not show it in time."""
    steps = [{"step_id": number, "source": "user", "message": "x"} for number in range(1, 100_002)]
    of_harbor(tmp_path / "job" / "good")
    of_harbor(tmp_path / "job" / "long", steps=steps)
    code, printed = imported(tmp_path / "job", tmp_path / "run")

    assert (code, printed["files"]) == (1, {str(tmp_path / "run"): 1})
    assert "more than 100,000 messages" in printed["refused"][0]


def test_a_trajectory_that_is_there_twice(recorded: Path, tmp_path: Path) -> None:
    """The second one is refused, with the place of the first one."""
    documents(recorded, tmp_path / "atif")
    atif.write(open_run(recorded), tmp_path / "atif" / "all.jsonl", None)
    code, printed = imported(tmp_path / "atif", tmp_path / "again")

    assert (code, printed["files"]) == (1, {str(tmp_path / "again"): 3})
    assert f"all.jsonl:2: not read as a trajectory in ATIF 1: it is the same as {tmp_path}" in printed["refused"][1]


def test_a_place_with_a_run(recorded: Path, tmp_path: Path) -> None:
    """It is not changed: the command says to give another directory."""
    documents(recorded, tmp_path / "atif")
    options = ["--to", "run", "-o", str(recorded)]
    result = CliRunner().invoke(main, ["export", str(tmp_path / "atif"), *options])

    assert result.exit_code == 1
    assert "give another directory: -o DIR" in result.stderr


def test_a_place_with_files_of_others(recorded: Path, tmp_path: Path) -> None:
    """Directories that are there already stay, also where nothing could be read."""
    place = tmp_path / "new"
    (place / ".archive").mkdir(parents=True)
    (place / ".archive" / "own").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.json").write_text("[]")
    documents(recorded, tmp_path / "atif")

    assert imported(tmp_path / "nothing.json", tmp_path / "empty")[0] == 1
    assert imported(tmp_path / "atif", place)[0] == 0
    assert (tmp_path / "empty").is_dir()
    assert (place / ".archive" / "own").exists()


def test_a_pipe_and_a_loop_of_links(tmp_path: Path) -> None:
    """A pipe is refused without waiting for a writer; links in a directory are not followed."""
    of_harbor(tmp_path / "job" / "good")
    os.mkfifo(tmp_path / "job" / "trajectory.json")
    (tmp_path / "job" / "loop").symlink_to(tmp_path / "job")
    of_harbor(tmp_path / "elsewhere")
    other = next(path for path in (tmp_path / "elsewhere").rglob("*.json"))
    (tmp_path / "job" / "trajectory_link.json").symlink_to(other)
    code, printed = imported(tmp_path / "job", tmp_path / "run")

    assert (code, printed["files"], len(printed["refused"])) == (1, {str(tmp_path / "run"): 1}, 2)
    assert all("not a regular file" in refused for refused in printed["refused"])
