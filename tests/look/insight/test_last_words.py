"""The verdict of a death has the last error of the process that ended first, and what a known message means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import Ended, LogRecord, Process, Row
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import Finding
from otel_rl.look.insight.known_messages import KNOWN_MESSAGES, known
from otel_rl.recorder.archive.writer import ArchiveWriter

_S = 1_000_000_000
_AT = 1_790_000_000 * _S
_TRACE = ["Traceback (most recent call last):", '  File "/app/train.py", line 12, in <module>', "    train()"]
DEATHS = {
    "a full GPU": [*_TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."],
    "a failed kernel": [
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1308: Assertion `srcIndex < srcSelectDimSize` failed.",
        *_TRACE,
        "RuntimeError: CUDA error: device-side assert triggered",
        "CUDA kernel errors might be asynchronously reported at some other API call.",
    ],
    "a full disk": [*_TRACE, "OSError: [Errno 28] No space left on device: '/ckpt/step_100'"],
    "no descriptors": [*_TRACE, "OSError: [Errno 24] Too many open files: '/data/shard-7'"],
    "no shared memory": ["RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error."],
    "a missing package": [*_TRACE, "ModuleNotFoundError: No module named 'flash_attn'"],
    "a closed port": [*_TRACE, "ConnectionRefusedError: [Errno 111] Connection refused"],
    "a service that refuses": ["openai.RateLimitError: Error code: 429 - {'error': 'Too Many Requests'}"],
    "a question": [*_TRACE, "EOFError: EOF when reading a line"],
    "a rank's exception": ["[rank3]: ValueError: prompt 7 has no answer"],
    "a fault": ["Fatal Python error: Segmentation fault", "Current thread 0x00007f (most recent call first):"],
    "no host memory": ["numpy.core._exceptions._ArrayMemoryError: Unable to allocate", "MemoryError"],
}
_DECISIVE = {
    "a failed kernel": "RuntimeError: CUDA error: device-side assert triggered",
    "a fault": "Fatal Python error: Segmentation fault",
}


def words(
    place: Path, *of_ranks: list[str], ends: tuple[int, ...] = (), outcome: str = "crashed", cause: str = ""
) -> list[Finding]:
    """Return the findings about what ranks printed that ended badly, one second after each other."""
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps({"id": "i", "project": "p", "name": "n"}))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    last = _AT + 100 * _S
    for step in range(3):
        writer.add(Row(step, _AT + step * _S, {"loss": 1.0}))
    for rank, lines in enumerate(of_ranks):
        at = _AT + (ends[rank] if ends else 50 + rank) * _S
        writer.add(
            Process(
                *(0, "", rank, len(of_ranks), "node1", 70 + rank, _AT),
                ended_unix_nano=at,
                outcome=outcome,  # type: ignore[arg-type] # one of the literals
                cause=cause,  # type: ignore[arg-type]
                down_order=rank + 1,
            )
        )
        for number, text in enumerate(lines):
            writer.add(LogRecord(0, at, "", rank, "node1", number, "stderr", text))
    writer.add(Ended(last, 0, outcome, "it ended", 1))  # type: ignore[arg-type]
    writer.save(seals=True)
    facts = facts_of(otel_rl.open_run(place), at_unix_nano=last + 3600 * _S)
    return [finding for finding in facts.findings if finding.subject == "last words"]


@pytest.mark.parametrize("death", DEATHS)
def test_deaths(tmp_path: Path, death: str) -> None:
    """The line that says why is named, with its process; what is known of it says what to do."""
    lines = DEATHS[death]
    (finding,) = words(tmp_path / "r", ["step 1 done", *lines])
    message = known(_DECISIVE.get(death, lines[-1]))

    assert finding.sentence.startswith(f"Rank 0 printed before its end: {_DECISIVE.get(death, lines[-1])}")
    assert finding.advice == ("" if message is None else message.advice)
    assert finding.sure == "likely"


def test_those_that_lost_a_peer(tmp_path: Path) -> None:
    """One rank fails, and 63 others print that their peer is gone: the verdict has the one, though it was not first."""
    lost = [
        "[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    ]
    ranks = [lost for _ in range(64)]
    ranks[5] = ["ValueError: prompt 7 has no answer"]
    (finding,) = words(tmp_path / "r", *ranks, ends=tuple(51 if rank == 5 else 50 for rank in range(64)))

    assert finding.sentence == "Rank 5 printed before its end: ValueError: prompt 7 has no answer"


def test_only_peers_say_something(tmp_path: Path) -> None:
    """The process that died first printed nothing: what the others lost is said as that, and no cause."""
    (finding,) = words(tmp_path / "r", [], ["RuntimeError: Connection closed by peer [10.0.0.7]:4711"])

    assert finding.sentence.endswith("(another process is gone)")
    assert finding.advice == "Look at the process that ended first: this one only lost its peer."


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["step 1 done", "step 2 done"], ""),  # nothing says why
        ([*DEATHS["a full disk"], *(f"step {step} done" for step in range(80))], ""),  # it went on after that
        (DEATHS["a full disk"], "oom_kill"),  # the kernel says why
        (DEATHS["a closed port"], "slurm_time_limit"),
    ],
)
def test_what_is_no_reason(tmp_path: Path, lines: list[str], cause: str) -> None:
    """Nothing is said of a process that printed no error at its end, or whose cause of death is known."""
    assert words(tmp_path / "r", lines, outcome="lost", cause=cause) == []


@pytest.mark.parametrize("death", DEATHS)
def test_a_run_that_ended_well(tmp_path: Path, death: str) -> None:
    """Tracebacks and retries of a run that goes on, or has ended well, accuse nobody."""
    assert words(tmp_path / "r", DEATHS[death], outcome="finished") == []


@pytest.mark.parametrize("message", KNOWN_MESSAGES, ids=lambda message: message.means)
def test_each_known_message_is_a_sentence_with_one_thing_to_do(message: object) -> None:
    """Its meaning stands in brackets, and its advice is a sentence."""
    assert message.means[0].islower()  # type: ignore[attr-defined]
    assert message.advice.endswith(".")  # type: ignore[attr-defined]
