"""The items that are made for the archive: processes, their environment, and trajectories."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from otel_rl.export import Item, Process, Trajectory
from otel_rl.recorder.agent.input.environment import command_of, commit_of, software
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import DeviceSeen, Finished, SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.trainer.tickets import NO_SCORES, GivenScores, consumed
from tests.recorder.agent.reducing import S, feed, logged, reducing, started, step


def processes(items: Sequence[Item]) -> list[Process]:
    return [item for item in items if isinstance(item, Process)]


def test_a_process_is_exported_when_something_is_known_of_it() -> None:
    """When it begins, when its devices are known, and when it has ended; nothing in between."""
    reducer = reducing()
    found = [
        processes(feed(reducer, "rank1", *records))
        for records in (
            [started(1, local=2)],
            [DeviceSeen(1, 0, "GPU-1", "H100", 80)],
            [StepStarted(0, S, b""), logged(0, loss=1.0)],
            [Finished(9 * S, "failed", ("ValueError", "no"), 3)],
        )
    ]
    running = Process(0, "", 1, 2, "host", 1, 0)
    ended = Process(0, "", 1, 2, "host", 1, 0, ("H100",), 9 * S, "failed", "ValueError: no", 3)
    ended = msgspec.structs.replace(ended, ended_step=0, down_order=1)

    assert found == [[running], [Process(0, "", 1, 2, "host", 1, 0, ("H100",))], [], [ended]]


def test_a_process_that_comes_to_life_again() -> None:
    """It runs again, and has no outcome."""
    reducer = reducing()
    feed(reducer, "rank0", started(), *step(0, S))
    lost = processes(feed(reducer, "rank0", StepStarted(1, 3 * S, b""), Lost(4 * S)))
    revived = processes(feed(reducer, "rank0", Revived(5 * S)))

    assert [one.outcome for one in (*lost, *revived)] == ["lost", None]


def test_trajectories_that_a_step_trained_on_or_dropped() -> None:
    """Each is an item, with its versions, tokens, reward and trace."""
    traced = {"policy_version": [3, 4], "tokens": [5, 7], "reward": 0.5, "traceparent": f"00-{1:032x}-{2:016x}-01"}
    traced |= {"prompt_id": "p", "group_id": "g", "row": 17, "components": {"format": 1}}
    plain = {"policy_version": None, "tokens": 9}
    reducer = reducing()
    feed(reducer, "rank2", started(2, local=1), StepStarted(8, S, b""))
    scores = GivenScores(advantages=(0.25, -0.25), losses=(1.5, 2.5))
    for outcome, ticket, found in (("trained", [traced, plain], scores), ("stale", [plain], NO_SCORES)):
        feed(reducer, "rank2", *consumed(ticket, 8, 2 * S, 4, outcome, pytest.fail, found))
    items = feed(reducer, "rank2", StepStarted(9, 3 * S, b""))
    found = [item for item in items if isinstance(item, Trajectory)]
    known = (0, 8, 2 * S, 2, "trained", 4, f"{1:032x}", f"{2:016x}", 0.5, 12, ((3, 5), (4, 7)), 0)

    assert found[0] == Trajectory(*known, "p", "g", "17", 0.25, 1.5, {"format": 1.0})
    assert [(one.outcome, one.trace_id, one.tokens, one.number) for one in found[1:]] == [
        ("trained", "", 9, 1),
        ("stale", "", 9, 0),
    ]
    assert math.isnan(found[1].reward)


def test_the_software_has_versions_of_what_is_installed() -> None:
    """Python, the platform, and packages; those that are not installed are left out."""
    found = software()

    assert found["package.otel-rl"]
    assert found["python"].startswith("3.")
    assert "package.megatron-core" not in found


def test_the_command_has_no_secrets(tmp_path: Path) -> None:
    """The value of an option that names one is redacted."""
    key = "sk-proj-0123456789abcdefghijklmnop"
    arguments = ["/bin/sh", "-c", "echo; read line", "train.py", "--api-key", key, "--lr", "3e-4"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        command = command_of(trainer.pid)["command"]
        trainer.kill()

    assert command == "/bin/sh -c echo; read line train.py --api-key [redacted] --lr 3e-4"
    assert command_of(trainer.pid) == {}


def test_the_commit_of_a_work_tree(tmp_path: Path) -> None:
    """Its hash, and whether files that git knows were changed; nothing where there is no work tree."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        asked = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return asked.stdout.strip()

    outside = commit_of(tmp_path)
    git("init", "-q")
    (tmp_path / "train.py").write_text("a")
    git("add", "train.py")
    git("commit", "-qm", "Begin")
    (tmp_path / "notes.txt").write_text("unknown to git")
    clean = commit_of(tmp_path)
    (tmp_path / "train.py").write_text("b")

    assert outside == {}
    assert clean == {"source.commit": git("rev-parse", "HEAD"), "source.dirty": "false"}
    assert commit_of(tmp_path) == clean | {"source.dirty": "true"}


def test_where_a_process_died() -> None:
    """Its step and its innermost phase, the cause, its exit code, and its place among the deaths of the attempt."""
    reducer = reducing()
    feed(reducer, "rank0", started(local=2), StepStarted(4, S, b""), SpanStarted(7, 0, bytes(16), 4, "train", S, b""))
    feed(reducer, "rank0", SpanStarted(8, 7, bytes(16), 4, "backward", 2 * S, b""))
    (lost,) = processes(feed(reducer, "rank0", Lost(3 * S, "oom_kill", 137)))

    assert (lost.outcome, lost.cause, lost.exit_code, lost.ended_unix_nano) == ("lost", "oom_kill", 137, 3 * S)
    assert (lost.ended_step, lost.ended_phase, lost.down_order) == (4, "backward", 1)


def test_the_phase_that_an_exception_left() -> None:
    """The phases end as the exception passes; the innermost one is named, unless the process went on after it."""
    error = ("builtins.ValueError", "no")
    passes = [
        *(StepStarted(4, S, b""), SpanStarted(7, 0, bytes(16), 4, "train", S, b"")),
        *(SpanStarted(8, 7, bytes(16), 4, "backward", 2 * S, b""), SpanEnded(8, 3 * S, b"", error=error)),
        *(SpanEnded(7, 3 * S, b"", error=error), StepEnded(4, 3 * S, b"", error=error)),
    ]
    caught = [StepStarted(5, 4 * S, b""), StepEnded(5, 5 * S, b"")]
    end = Finished(9 * S, "failed", error, 1)
    ends = [processes(feed(reducing(), "rank0", started(), *passes, *more, end))[-1] for more in ([], caught)]

    assert [(one.ended_step, one.ended_phase) for one in ends] == [(4, "backward"), (None, "")]
