"""Run directories with archives of runs as they are: with stragglers, resumed, crashed, huge, or with nothing yet.

They are written by the archive's own writer, so that a run of hours, or of a thousand ranks, is there at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec

from otel_rl import semconv
from otel_rl.export import Ended, Environment, Event, Item, Machine, Params, Process, Row, Span, Table, Trajectory
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.insight.conversations import Written, chat

STARTED = 1_790_000_000_000_000_000
_S = 1_000_000_000
_NO_LIMIT = 1 << 60
PHASES = ("generate", "reward", "ref_log_prob", "update_actor", "sync_weights")
_COLLECTIVE = ("ref_log_prob", "update_actor")
"""All ranks leave these phases together."""
_NAMES = {"generate": "rl.sample", "reward": "rl.reward", "update_actor": "rl.train"}
_GIB = 2**30


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a run."""

    project: str = "grpo-gsm8k"  # its project
    name: str = "baseline"  # its name
    steps: int = 60  # number of steps
    ranks: int = 2  # number of trainer ranks; every eight are on one host
    workers: int = 0  # number of rollout workers, which have a role
    slow_rank: int = -1  # the rank that is slow in `generate`; -1 for none
    slower_from: int = 1 << 60  # the step from which on completions, and steps, are longer
    resumed_at: int = -1  # the step from which on a second attempt repeats the last ten
    nan_from: int = 1 << 60  # the step from which on loss and gradient norm are NaN
    metrics: int = 12  # number of further metrics
    gpus: bool = False  # whether GPUs are measured
    texts: bool = False  # whether completions are recorded
    turns: bool = False  # whether trajectories with messages are recorded
    ends: str = "finished"  # how it ends; empty while it goes on
    error: str = ""  # why
    hostile: str = ""  # text that becomes part of all names and texts
    names: tuple[str, ...] = ()  # further names of metrics, events, parameters, and texts in tables


def record(directory: Path, shape: Shape) -> Path:
    """Write a run directory and return it."""
    writer = _writer(directory, shape)
    for number, item in enumerate(_items(shape), 1):
        writer.add(item)
        if number % 200_000 == 0:
            writer.save(seals=True)
    writer.save(seals=bool(shape.ends))
    return directory


def growing(directory: Path, shape: Shape) -> Iterator[int]:
    """Write a run directory step by step: whoever takes a step finds it in the archive."""
    writer = _writer(directory, shape)
    for item in _items(shape):
        writer.add(item)
        if isinstance(item, Row):
            writer.save(seals=False)
            yield item.step


def _writer(directory: Path, shape: Shape) -> ArchiveWriter:
    directory.mkdir(parents=True, exist_ok=True)
    identity = {"id": "0123456789abcdef", "project": shape.project, "name": shape.name + shape.hostile}
    (directory / "run.json").write_bytes(msgspec.json.encode(identity))
    return ArchiveWriter(directory / "archive" / "local", _NO_LIMIT)


def _items(shape: Shape) -> Iterator[Item]:
    chance = random.Random(7)
    more = shape.hostile
    packages = {"python": "3.11.7", "package.torch": "2.13.0", f"source.commit{more}": f"1a2b3c{more}"}
    config = {
        **{name: name for name in shape.names},
        "lr": 1e-6,
        "group": 8,
        f"model{more}": f"qwen-0.5b{more}",
        "steps": shape.steps,
    }
    yield Environment(0, STARTED, "node1", packages)
    yield Params(STARTED, config)
    now = STARTED + 5 * _S
    attempt = 0
    began = STARTED
    yield from _processes(shape, attempt, began, None)
    numbers = list(range(shape.steps))
    if shape.resumed_at >= 0:
        numbers = [*range(shape.resumed_at), *range(max(0, shape.resumed_at - 10), shape.steps)]
    for place, step in enumerate(numbers):
        if place and step < numbers[place - 1]:
            yield from _processes(shape, attempt, STARTED, now, "crashed", "SIGKILL: out of memory")
            yield Ended(now, attempt, "crashed", "SIGKILL: out of memory", 137)
            now += 180 * _S
            attempt, began = 1, now
            yield Environment(1, now, "node1", packages)
            yield from _processes(shape, attempt, began, None)
        begun = now
        for item in _step(shape, chance, step, attempt, now):
            yield item
            if isinstance(item, Span):
                now = max(now, item.end_unix_nano)
        yield from _machine(shape, chance, begun, now)
    if shape.ends:
        yield from _processes(shape, attempt, began, now, shape.ends, shape.error)
        yield Ended(now, attempt, shape.ends, shape.error, 0 if shape.ends == "finished" else 1)


def _processes(
    shape: Shape, attempt: int, begun: int, ended: int | None, outcome: str | None = None, error: str = ""
) -> Iterator[Item]:
    for role, processes in (("", shape.ranks), ("rollout", shape.workers)):
        for rank in range(processes):
            host = f"node{1 + rank // 8}{shape.hostile}"
            devices = (f"NVIDIA H100 {rank % 8}",) if shape.gpus else ()
            code = 0 if outcome in (None, "finished") else 1
            yield Process(
                attempt, role, rank, shape.ranks, host, 4000 + rank, begun, devices, ended, outcome, error, code
            )


def _step(shape: Shape, chance: random.Random, step: int, attempt: int, begun: int) -> Iterator[Item]:
    trace, root = f"{attempt:08x}{step:024x}", f"f{attempt:03x}{step:012x}"
    long = 1.6 if step >= shape.slower_from else 1.0
    usual = (1.6 * long, 0.05, 0.4, 0.9, 0.2)
    ids = (f"{step:05x}{attempt:x}{number:010x}" for number in count())
    at = {rank: begun + chance.randrange(_S // 200) for rank in range(shape.ranks)}
    for phase, seconds in zip(PHASES, usual, strict=True):
        slow = {shape.slow_rank: 1.35} if phase == "generate" else {}
        left = {
            rank: time + int(seconds * slow.get(rank, 1.0) * chance.gauss(1, 0.04) * _S) for rank, time in at.items()
        }
        if phase in _COLLECTIVE:
            left = dict.fromkeys(left, max(left.values()))
        for rank, entered in at.items():
            attributes = {semconv.RANK: rank, semconv.PHASE: phase + shape.hostile, semconv.LOOP_ITERATION: step}
            attributes |= _memory(phase, step) if rank < 8 else {}
            name = phase + shape.hostile if shape.hostile else _NAMES.get(phase, phase)
            yield Span(name, trace, next(ids), root, entered, left[rank], attributes)
        at = left
    end = max(at.values()) + _S // 50
    for worker in range(shape.workers):
        busy = end - begun if worker == 0 else (end - begun) // 3
        attributes = {semconv.RANK: worker, semconv.ROLE: "rollout", semconv.PHASE: "generate"}
        attributes[semconv.LOOP_ITERATION] = step
        yield Span("rl.sample", trace, next(ids), root, begun, begun + busy, attributes)
    root_attributes = {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: attempt}
    yield Span("rl.loop", trace, root, "", begun, end, root_attributes)
    values = _values(shape, chance, step, (end - begun) / _S)
    bad = {name: 1 for name, value in values.items() if not math.isfinite(value)}
    yield Row(step, end, values, attempt, trace_id=trace, span_id=root, nonfinite=bad)
    if step % 20 == 19:
        attributes = {"path": f"checkpoints/{step}{shape.hostile}"}
        yield Event(f"rl.checkpoint.saved{shape.hostile}", end, attributes, step, 0, trace, root)
    if step == 8 and shape.slow_rank >= 0:
        attributes = {semconv.PHASE: "generate", semconv.STRAGGLER_DELAY: 0.5}
        yield Event(semconv.EVENT_STRAGGLER, end, attributes, step, shape.slow_rank, trace, root)
    if step == shape.nan_from:
        attributes = {semconv.METRIC_NAME: "loss", semconv.VALUE: "nan"}
        yield Event(semconv.EVENT_NUMERICS_NONFINITE, end, attributes, step, 0, trace, root)
    for name in shape.names if step == 0 else ():
        yield Event(name, end, {name: name}, step, 0, trace, root)
    if shape.texts and step % 5 == 0:
        yield _texts(shape, chance, step, end, attempt)
    for number in range(8) if shape.turns and step % 5 == 0 else ():
        yield from _told(shape, chance, step, number)
    if shape.workers:
        for sample in range(4):
            outcome = "trained" if chance.random() > 0.1 else "stale"
            yield Trajectory(
                attempt, step, end, sample % shape.ranks, outcome, step, "", "", chance.random(), 300, (), sample
            )


def _memory(phase: str, step: int) -> dict[str, int]:
    held = {"generate": 38, "update_actor": 61}.get(phase, 44) * _GIB + step * 40 * 2**20
    return {semconv.PHASE_PROCESS_MEMORY_START: held, semconv.PHASE_PROCESS_MEMORY_END: held + _GIB}


def _values(shape: Shape, chance: random.Random, step: int, seconds: float) -> dict[str, float]:
    part = 1 - math.exp(-step / max(10, shape.steps / 4))
    bad = math.nan if step >= shape.nan_from else 0.0
    values = {
        "reward": 0.38 + 0.45 * part + chance.gauss(0, 0.02),
        "rewards/exact_match/mean": 0.3 + 0.5 * part + chance.gauss(0, 0.02),
        "rewards/format/mean": 0.7 + 0.29 * part,
        "loss": chance.gauss(0.01, 0.02) + bad,
        "kl": 0.3 * part + abs(chance.gauss(0, 0.02)),
        "entropy": 0.6 - 0.4 * part + chance.gauss(0, 0.01),
        "grad_norm": abs(chance.gauss(0.5, 0.1)) + bad,
        "completions/mean_length": (512 if step < shape.slower_from else 1180) + chance.gauss(0, 12),
        "time/step": seconds,
        "perf/goodput": 0.82 + chance.gauss(0, 0.01),
        "num_tokens": float(7489 * (step + 1)),
    }
    if step % 10 == 9:
        values["eval/accuracy"] = 0.4 + 0.4 * part
    values |= {f"train/extra_{number}": chance.random() for number in range(shape.metrics)}
    values = {name + shape.hostile: value for name, value in values.items()} if shape.hostile else values
    return values | dict.fromkeys(shape.names, chance.random())


def _texts(shape: Shape, chance: random.Random, step: int, end: int, attempt: int) -> Item:
    columns = ("group", "prompt", "completion", f"reward{shape.hostile}")
    lines = tuple(
        (n // 4, f"{n // 4} + {step} = ?", f"The answer is {n // 4 + step}. {shape.hostile}", chance.random())
        for n in range(8)
    )
    lines += tuple((9, name, name, 0.0) for name in shape.names)
    return Table("completions" + shape.hostile, step, end, columns, lines, attempt, tuple(0 for _ in lines), 2)


def _told(shape: Shape, chance: random.Random, step: int, number: int) -> Iterator[Item]:
    question = f"{number // 4} + {step % 10} = ?{shape.hostile}"
    name = f"python{shape.hostile}"
    calls = [{"function": {"name": name, "arguments": f'{{"code": "print({number // 4} + {step % 10})"}}'}}]
    yield from chat(
        step,
        number,
        Written(author="system", text=f"Use the tool.{shape.hostile}"),
        Written(author="user", text=question),
        _written(chance, "I compute it.", step - number % 3, calls=calls),
        Written(author="tool", name=name, text=f"{number // 4 + step % 10}{shape.hostile}"),
        _written(chance, f"The answer is {number // 4 + step % 10}. {shape.hostile}", step, words=160),
        *(Written(author=text, name=text, text=text, calls=[text]) for text in shape.names),
        tool_seconds=0.2 + chance.random(),
        reward=chance.random(),
        advantage=chance.gauss(0, 1),
        loss=chance.random(),
        components={f"format{shape.hostile}": chance.random(), "verifier": chance.random()},
        prompt_id=question,
        group_id=f"g{number // 4}{shape.hostile}",
        row=f"{number}{shape.hostile}",
    )


def _written(chance: random.Random, text: str, version: int, *, words: int = 4, calls: object = None) -> Written:
    """Return a message of the policy with tokens, one of which the trainer holds for unlikely."""
    logprobs = [-chance.expovariate(3) for _ in range(words)]
    trainer = [logprob + chance.gauss(0, 0.02) for logprob in logprobs]
    trainer[words // 2] = -4.0
    return Written(
        author="assistant",
        text=text + " so" * (words - 4),
        version=version,
        calls=calls,
        tokens=[chance.randrange(50_000) for _ in range(words)],
        logprobs=logprobs,
        trainer=trainer,
        mask=[n % 7 > 0 for n in range(words)],
        pieces=[text, *[" so"] * (words - 1)] if words > 4 else [],
    )


def _machine(shape: Shape, chance: random.Random, begun: int, end: int) -> Iterator[Item]:
    for time in range(begun, end, 10 * _S):
        values = {"hardware/node.0.mem_gb": 120 + chance.random(), "hardware/node.0.mem_total_gb": 512.0}
        for gpu in range(8 if shape.gpus else 0):
            values[f"hardware/node.0.gpu.{gpu}.util"] = chance.choice((97.0, 92.0, 35.0))
            values[f"hardware/node.0.gpu.{gpu}.mem_gb"] = 60 + chance.random() * 12
            values[f"hardware/node.0.gpu.{gpu}.power_w"] = 500 + chance.random() * 150
        yield Machine((time - STARTED) // _S, time, values)
