"""The cost of recording what the policy wrote: for the trainer, for the machine, and on disk."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import otel_rl
from benchmarks.agent_cost import drain
from benchmarks.measuring import TIMER, Contestant, compared, interleave
from benchmarks.recording import directory, recording
from benchmarks.tables import Cell, Table
from otel_rl.export import Message, Row, Trajectory
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.files.atomic_files import disk_usage

if TYPE_CHECKING:
    from pathlib import Path

_TOKENS = 1000
_AT_ONCE = 100
"""Trajectories of a step: as many of this length are kept."""
_TRAJECTORIES = int(os.environ.get("ROLLOUTS", "1000"))
_ANSWERED = int(os.environ.get("ROLLOUTS_ANSWERED", "100000"))
"""Trajectories of the archive that is asked."""
_ROUNDS, _ASKED = 3, 9
_OFF = "off"


def measure() -> list[Table]:
    """Return the trainer's time for a message, the agent's for 1,000 trajectories, and that of `otel-rl samples`."""
    return [_trainer(), _machine(), _answers()]


def _text(dice: np.random.Generator, words: int) -> str:
    """Return words whose frequencies fall as in a language (Mandelbrot, 1953): the first one is 1 of 15."""
    rarity = np.arange(20_000) + 2.7
    return " ".join(f"w{n}" for n in dice.choice(20_000, words, p=(1 / rarity) / (1 / rarity).sum()))


def _lists(dice: np.random.Generator) -> dict[str, Any]:
    """Return tokens of a vocabulary of 150,000, log-probabilities with 32 bits, and a mask."""
    logprobs = -dice.exponential(0.5, _TOKENS).astype(np.float32)
    return {"tokens": dice.zipf(1.2, _TOKENS) % 150_000, "logprobs": logprobs, "mask": np.ones(_TOKENS, bool)}


def _trainer() -> Table:
    dice = np.random.default_rng(0)
    texts = [_text(dice, 1000) for _ in range(64)]
    arrays = [_lists(dice) for _ in range(64)]
    lists = [{name: values.tolist() for name, values in one.items()} for one in arrays]
    with recording(content=True) as run, run.step(0):
        count = iter(range(1 << 40))

        def call(more: list[dict[str, Any]] | None) -> None:
            number = next(count)
            with run.trajectory() as one:
                one.message("assistant", texts[number % 64], **(more[number % 64] if more else {}))

        def nothing() -> None:
            with run.trajectory():
                pass

        contestants = [
            Contestant("a trajectory without a message", nothing),
            Contestant("a text of 1,000 words", partial(call, None)),
            Contestant(f"the same with {_TOKENS:,} tokens, NumPy", partial(call, arrays)),
            Contestant(f"the same with {_TOKENS:,} tokens, lists", partial(call, lists)),
            TIMER,
        ]
        found = interleave(contestants, rounds=10, calls=100)
    with recording() as run, run.step(0), run.trajectory() as one:
        off = Contestant(_OFF, lambda: one.message("assistant", texts[0], **arrays[0]))
        found |= interleave([off], rounds=10, calls=100)
    note = "Each call is a trajectory with one message. `off`: the call of `message` without `content=True`."
    return compared("Recording a message", found, "a trajectory without a message", note, short="none")


def _record(run: otel_rl.Run, steps: int) -> None:
    dice = np.random.default_rng(0)
    for number in range(steps):
        with run.step(number):
            tickets = []
            for place in range(_AT_ONCE):
                lists = _lists(dice)
                with run.trajectory(policy_version=number, group_id=f"{number}.{place // 8}") as one:
                    one.message("user", _text(dice, 50))
                    one.message("assistant", _text(dice, 750), **lists)
                    one.generated(_TOKENS)
                    one.rewarded(float(dice.random()))
                tickets.append((one.ticket(), lists["logprobs"] + dice.normal(0, 0.01, _TOKENS)))
            given = {"advantages": dice.normal(size=_AT_ONCE), "logprobs": [one for _, one in tickets]}
            run.trained([ticket for ticket, _ in tickets], policy_version=number, **given)


def _machine() -> Table:
    steps = max(1, _TRAJECTORIES // _AT_ONCE)
    sizes: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    tokens = [0]

    def look(directory: Path, *, content: bool) -> None:
        sizes[content].append(disk_usage(directory / "archive"))
        if content:
            tokens[0] = int(otel_rl.open_run(directory).sql("SELECT sum(len(tokens)) AS n FROM messages")["n"][0])

    for _ in range(_ROUNDS):
        for content in (True, False):
            seen = partial(look, content=content)
            full = drain((), 1 + steps, _record, seen, content=content)
            cpu[content].append(full.cpu_s - drain((), 1, _record, content=content).cpu_s)
    recorded = _TOKENS * (1 + steps) * _AT_ONCE
    rows: list[list[Cell]] = [
        [
            "with texts" if content else "without",
            1000 * statistics.median(cpu[content]) / (steps * _AT_ONCE),
            statistics.median(sizes[content]) / max(1, tokens[0]),
        ]
        for content in (True, False)
    ]
    note = (
        f"{steps} steps of {_AT_ONCE} trajectories with 800 words, {_TOKENS:,} tokens, and log-probabilities of engine "
        f"and trainer; {100 * tokens[0] / recorded:.0f} % of the tokens are kept. Without the agent's start and end."
    )
    return Table("The agent and the archive", ["who", "CPU s per 1,000 trajectories", "bytes per token"], rows, note)


def _answers() -> Table:
    """Return how long `otel-rl samples` takes, with its start, for an archive that is in the page cache."""
    steps = _ANSWERED // 1000
    rows: list[list[Cell]] = []
    with directory() as place:
        for number in (1, steps):
            run = place / str(number)
            _write_archive(run, number)
            seconds = [_seconds_of("samples", str(run)) for _ in range(_ASKED)]
            size = disk_usage(run / "archive") / 1e6
            rows.append([f"{1000 * number:,}", statistics.median(seconds), max(seconds), size])
    note = f"Steps of 1,000 trajectories with 750 words and {_TOKENS:,} tokens. Target: less than a second."
    return Table("otel-rl samples", ["trajectories", "median s", "longest s", "MB"], rows, note)


def _seconds_of(*arguments: str) -> float:
    began = time.perf_counter()
    command = "import sys; from otel_rl.cli import main; main()"
    subprocess.run([sys.executable, "-c", command, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _write_archive(run: Path, steps: int) -> None:
    """Write the archive of a run with 1,000 trajectories in each step, whose texts and lists are all different."""
    dice = np.random.default_rng(0)
    words = _text(dice, 100_000).split()
    engine = -dice.exponential(0.5, 100_000)
    trainer = engine + dice.normal(0, 0.01, 100_000)
    tokens = (dice.zipf(1.2, 100_000) % 150_000).astype(np.int32)
    (run / "archive").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"id": "r", "project": "p", "name": "r"}))
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    for step in range(steps):
        begun, time_ = dice.integers(90_000, size=1000).tolist(), step * 10**9
        who = [(0, step, time_, "", 0, f"{step:016x}{n:016x}", f"{step:08x}{n:08x}") for n in range(1000)]
        asked = [Message(*one, 0, "user", text=f"question {n // 8}") for n, one in enumerate(who)]
        answered = [
            Message(
                *(*one, 1, "assistant"),
                text=" ".join(words[at : at + 750]),
                policy_version=step,
                tokens=tokens[at : at + _TOKENS].tobytes(),
                logprobs=engine[at : at + _TOKENS].tobytes(),
                trainer_logprobs=trainer[at : at + _TOKENS].tobytes(),
                mask=bytes([1]) * _TOKENS,
            )
            for one, at in zip(who, begun, strict=True)
        ]
        taken = [
            Trajectory(0, step, time_, 0, "trained", step, *one[-2:], float(at % 2), _TOKENS, (), n, "", f"{n // 8}")
            for n, (one, at) in enumerate(zip(who, begun, strict=True))
        ]
        writer.add(Row(step, time_, {"reward": 0.5}, 0))
        writer.add(*(message for both in zip(asked, answered, strict=True) for message in both))
        writer.add(*taken)
        writer.save()
    writer.save(seals=True)
