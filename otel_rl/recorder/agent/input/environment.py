"""The software of an attempt: versions of packages, the commit and its state, the launcher and the command."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
from importlib import metadata
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from otel_rl.export import Environment, Process
from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.programs import TooLate
from otel_rl.recorder.secrets import redacted, without_secret_options
from otel_rl.recorder.settings.launcher import find_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.export import Item

_PACKAGES = (
    *("otel-rl", "torch", "numpy", "jax", "flax", "transformers", "accelerate", "datasets", "peft", "triton"),
    *("vllm", "sglang", "flash-attn", "deepspeed", "megatron-core", "ray", "lightning", "stable-baselines3"),
    *("trl", "verl", "nemo-rl", "roll", "trinity-rft", "google-tunix", "openrlhf", "skyrl", "gymnasium", "wandb"),
)
"""Packages whose version changes what a training does, or how fast it is."""
_GIT_WITHIN_S = 2.0
"""Time in seconds for each question to git, which reads the whole work tree."""

_RECENT_NS = 60_000_000_000
"""Time since the end of a process within which the packages are still those that it used."""


class Environments:
    """Finds the environment of each attempt once, from its first process on this machine, in a thread."""

    def __init__(self) -> None:
        self._host = socket.gethostname()
        self._attempts: set[int] = set()
        self._found: SimpleQueue[Environment] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def of(self, items: Iterable[Item], *, near_end: bool) -> list[Environment]:
        """Look at the processes among items; return what was found since the last call.

        Near the end, wait for what is being looked for.
        """
        for item in items:
            if isinstance(item, Process) and item.host == self._host and item.attempt not in self._attempts:
                self._attempts.add(item.attempt)
                if item.ended_unix_nano is None or time.time_ns() - item.ended_unix_nano < _RECENT_NS:
                    thread = threading.Thread(target=self._find, args=(item,), name="otel-rl-environment", daemon=True)
                    thread.start()
                    self._threads.append(thread)
        for thread in self._threads if near_end else ():
            thread.join(2 * _GIT_WITHIN_S)
        facts = []
        with contextlib.suppress(Empty):
            while True:
                facts.append(self._found.get_nowait())
        return facts

    def _find(self, process: Process) -> None:
        with contextlib.suppress(Exception):  # it says less about the run, and must not end the agent
            values = software() | command_of(process.pid)
            self._found.put(Environment(process.attempt, time.time_ns(), process.host, values))


def software() -> dict[str, str]:
    """Return the versions of this process's interpreter and packages, and the launcher that its variables are of."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[f"package.{name}"] = metadata.version(name)
    job = find_place(os.environ).id
    return versions | ({"launcher": job.partition("-")[0]} if job else {})


def command_of(pid: int) -> dict[str, str]:
    """Return the command of a process without secrets, and the commit of the directory that it works in."""
    place = Path("/proc", str(pid))
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        arguments = (place / "cmdline").read_bytes().decode(errors="backslashreplace").rstrip("\0").split("\0")
        facts["command"] = redacted(" ".join(map(str, without_secret_options(arguments))))
        facts |= commit_of((place / "cwd").readlink())
    return facts


def commit_of(directory: Path) -> dict[str, str]:
    """Return the commit that is checked out in a directory, and whether files differ from it; nothing without git."""
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return {}
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"source.commit": commit, "source.dirty": "unknown" if changes is None else str(bool(changes)).lower()}


def _git(directory: Path, *question: str) -> str | None:
    """Return the answer of git; `None` if there is none in time."""
    # An optional lock would make the trainer's own git fail; `fsmonitor` can be a program that the repository's
    # settings name.
    command = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(directory), *question)
    with contextlib.suppress(OSError, TooLate):
        answer = ask(command, within=_GIT_WITHIN_S)
        return answer.output.decode(errors="replace").strip() if answer.code == 0 else None
    return None
