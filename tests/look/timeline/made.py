"""Archives of runs as they are: with a straggler, resumed, with rollout workers, with hostile names."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from otel_rl import semconv
from otel_rl.export import AttributeValue, Process, Row, Span
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.journal.ids import step_ids

ORIGIN = 1_795_571_000_000_000_000
HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=1>",
    "\u202eabc",
    "a" * 400,
    "\x00\x1b[31m",
    "'\"><b>x",
    "${window.pwned = 1}",
    "__proto__",
    "constructor",
    "<!--",
    "&lt;b&gt;",
)


class Made:
    """An archive that is filled span by span; times are seconds since the start of the run."""

    def __init__(self, directory: Path, *, ranks_of_host: int = 8) -> None:
        self.path = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps({"id": "made", "project": "made", "name": directory.name}))
        self._writer = ArchiveWriter(directory / "archive" / "local", 1 << 60)
        self._ranks_of_host = ranks_of_host
        self._spans = 0

    def span(
        self,
        phase: str,
        start: float,
        seconds: float,
        rank: int | None = None,
        step: int | None = None,
        *,
        attempt: int = 0,
        role: str = "",
        name: str = "",
        trace: str = "",
        error: str | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        resource: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        self._spans += 1
        own = dict(attributes or {})
        own |= {semconv.RANK: rank} if rank is not None else {}
        own |= {semconv.ROLE: role} if role else {}
        own |= {semconv.LOOP_ITERATION: step} if step is not None else {}
        own |= {semconv.PHASE: phase} if phase else {}
        begin, end = ORIGIN + round(start * 1e9), ORIGIN + round((start + seconds) * 1e9)
        trace_id = trace or f"{step_ids('made', attempt, step or 0).trace_id:032x}"
        self._writer.add(
            Span(
                *(name or phase, trace_id, f"{self._spans:016x}", "", begin, end, own, error),
                resource=dict(resource or {}),
            )
        )

    def step(self, number: int, start: float, seconds: float, attempt: int = 0) -> None:
        attributes = {semconv.RUN_ATTEMPT: attempt}
        self.span("", start, seconds, step=number, attempt=attempt, name=semconv.SPAN_LOOP, attributes=attributes)
        trace_id = f"{step_ids('made', attempt, number).trace_id:032x}"
        self._writer.add(
            Row(number, ORIGIN + round((start + seconds) * 1e9), {"loss": 1.0}, attempt, trace_id=trace_id)
        )

    def process(self, rank: int, start: float, *, attempt: int = 0, role: str = "") -> None:
        host = f"node{rank // self._ranks_of_host + 1}"
        self._writer.add(Process(attempt, role, rank, 1, host, 4000 + rank, ORIGIN + round(start * 1e9), ()))

    def close(self) -> Path:
        self._writer.save(seals=True)
        return self.path


def trained(
    run: Made, ranks: int, steps: range, start: float = 0.0, *, attempt: int = 0, slow_from: int = 1 << 40
) -> float:
    """Write the phases of ranks, the last of which is slow from a step on; return when they end."""
    dice = random.Random(steps.start)
    for rank in range(ranks):
        run.process(rank, start, attempt=attempt)
    now = start + 8
    for n in steps:
        took = [dice.uniform(10, 14) for _ in range(ranks)]
        took[-1] *= 1.6 if n >= slow_from else 1
        for rank in range(ranks):
            at = {"rank": rank, "step": n, "attempt": attempt}
            run.span("generate", now, took[rank], **at, name="rl.sample")
            run.span("generate", now + 0.1, 1.2, **at, name="rl.sample.onload")
            run.span("generate", now + 1.4, took[rank] - 2, **at, name="rl.sample.execute")
            error = "Timeout: the verifier did not answer" if n % 17 == 16 and rank == 0 else None
            run.span("reward", now + took[rank], 1.5, **at, name="rl.reward", error=error)
            if took[rank] < max(took):
                run.span("wait_for_rollouts", now + took[rank] + 1.5, max(took) - took[rank], **at)
            run.span("update_actor", now + max(took) + 1.5, 6, **at, name="rl.train", attributes={"tokens": 1462 + n})
            run.span("sync_weights", now + max(took) + 7.5, 1.1, **at, name="rl.sync")
        run.step(n, now, max(took) + 8.6, attempt)
        now += max(took) + 9
    return now


def straggler(directory: Path, steps: int = 60) -> Path:
    run = Made(directory, ranks_of_host=1)
    trained(run, 2, range(steps), slow_from=steps // 2)
    return run.close()


def resumed(directory: Path) -> Path:
    run = Made(directory)
    end = trained(run, 2, range(40))
    trained(run, 2, range(30, 70), end + 90, attempt=1)
    return run.close()


def with_workers(directory: Path, workers: int = 2, at_once: int = 6) -> Path:
    """Trainers that wait, workers with several trajectories at once, and an inference server."""
    run = Made(directory)
    dice = random.Random(0)
    for rank in range(2):
        run.process(rank, 0)
        for n in range(10):
            run.span("wait_for_rollouts", 10 * n, 6, rank, n)
            run.span("update_actor", 10 * n + 6, 3.5, rank, n, name="rl.train")
    for n in range(10):
        run.step(n, 10 * n, 9.6)
    number = 0
    for worker in range(workers):
        run.process(worker, 0, role="rollout")
        for slot in range(at_once):
            now = dice.uniform(0, 2)
            while now < 90:
                number += 1
                took, trace = dice.uniform(2, 9), f"{number:032x}"
                place = {"rank": worker, "role": "rollout", "trace": trace}
                run.span("", now, took, **place, name="rl.trajectory", attributes={"rl.trajectory.reward": 0.5})
                run.span("", now, took / 2, **place, name="rl.trajectory.model")
                tool = {semconv.GEN_AI_TOOL_NAME: "search"}
                run.span("", now + took / 2, took / 3, **place, name="rl.trajectory.tool", attributes=tool)
                server = {"service.name": "vllm"}
                run.span("", now, took / 2, name="llm_request", trace=trace, resource=server)
                now += took + dice.uniform(0, 1)
            assert slot >= 0
    return run.close()


def hostile(directory: Path) -> Path:
    run = Made(directory)
    run.process(0, 0)
    for number, text in enumerate(HOSTILE):
        run.span(text, 1 + 2 * number, 1.9, 0, 0, error=text, attributes={text: text})
        run.span(text, 1 + 2 * number, 1.9, 0, 0, role=text)
    run.step(0, 1, 2 * len(HOSTILE))
    return run.close()
