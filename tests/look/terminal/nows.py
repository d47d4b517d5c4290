"""Runs as their agents describe them, made by hand: any number of ranks, in any state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from otel_rl.recorder.archive.now import (
    Curve,
    DeviceNow,
    EventNow,
    ExporterNow,
    Now,
    PhaseNow,
    PhaseTime,
    ProcessNow,
    Progress,
    Wait,
    WaitKind,
    place_of,
)
from otel_rl.recorder.archive.runs import Place
from otel_rl.recorder.archive.runs import place_of as run_at
from otel_rl.recorder.facts.signs import Stalled

S = 1_000_000_000
SHARES = (
    PhaseTime("generate", "rollout", 6.1),
    PhaseTime("update_actor", "training", 2.4),
    PhaseTime("", "none", 0.5),
)


def process(rank: int = 0, **changes: Any) -> ProcessNow:
    """Return a rank that has generated for 31 s."""
    now = time.time_ns()
    usual: dict[str, Any] = {
        "attempt": 0,
        "role": "",
        "rank": rank,
        "host": f"node{rank // 8}",
        "pid": 1000 + rank,
        "step": 812,
        "step_started_unix_nano": now - 40 * S,
        "phases": (PhaseNow("generate", now - 31 * S),),
        "last_unix_nano": now - S,
        "outcome": None,
        "last": SHARES,
    }
    return ProcessNow(**usual | changes)


def progress(**changes: Any) -> Progress:
    """Return the progress of a run that is at step 812 of 1,200."""
    steps = range(752, 812)
    curves = (
        Curve("reward", tuple((step, (step - 752) / 60) for step in steps)),
        Curve("actor/kl", tuple((step, 0.01 * (step % 7)) for step in steps)),
        Curve("time/step", tuple((step, 54.8) for step in steps)),
    )
    usual: dict[str, Any] = {
        "first_step": 0,
        "last_step": 811,
        "steps": 812,
        "total_steps": 1200,
        "recent_step_seconds": 54.8,
        "recent_shares": SHARES,
        "curves": curves,
        "events": (EventNow(time.time_ns(), "rl.checkpoint", "path=/ckpt/800", 800, 0),),
    }
    return Progress(**usual | changes)


def wait(
    waiter: str, kind: WaitKind, subject: str, debtors: tuple[str, ...] = (), *, age_s: int = 30, **more: Any
) -> Wait:
    """Return what a process has waited for since some seconds."""
    since = time.time_ns() - age_s * S
    return Wait(waiter=waiter, kind=kind, subject=subject, debtors=debtors, since_unix_nano=since, **more)


def hanging(evidence: str = "") -> tuple[Stalled, ...]:
    """Return the verdict that no rank goes on, because of the first one, which usually takes 41 s."""
    since = time.time_ns() - 4000 * S
    usual: dict[str, Any] = {"rank": 0, "host": "node0", "phase": "generate", "since_unix_nano": since}
    return (Stalled(kind="hung", scope="job", deadline_s=60.0, usual_s=41.0, evidence=evidence, **usual),)


def written(directory: Path, **changes: Any) -> Place:
    """Return a run directory with such a `now.json`."""
    now = time.time_ns()
    usual: dict[str, Any] = {
        "time_unix_nano": now,
        "id": directory.name,
        "project": "grpo",
        "name": directory.name,
        "pid": 1,
        "state": "ready",
        "processes": [process(0), process(9)],
        "exporters": [ExporterNow("wandb", 10, 40, 3, "429")],
        "started_unix_nano": now - 3600 * S,
        "progress": progress(),
        "devices": (
            DeviceNow(name="GPU 0", utilization=0.81, memory=61 * 2.0**30, memory_limit=80 * 2.0**30),
            DeviceNow(name="node1", utilization=0.3, memory=2.0**34, memory_limit=2.0**36),
        ),
    }
    path = place_of(directory, "here")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(Now(**usual | changes)))
    manifest = {"id": directory.name, "project": "grpo", "name": directory.name}
    (directory / "run.json").write_bytes(msgspec.json.encode(manifest))
    return run_at(directory)
