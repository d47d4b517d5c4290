"""The recording of a program: with the calls that the docs recommend, or with no more than `init` and `log`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import otel_rl

MARK = "VERDICTS_MARK"
"""Variable with the path of the file that `mark` writes."""


class Nothing:
    """Stands for a span, a trajectory or a run that is not recorded: every call does nothing."""

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: self

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (Nothing, ())


class Recording:
    """A process of a program, and what it records.

    Attributes:
        has_calls: Whether it makes the recommended calls, or `init` and `log` alone.
    """

    def __init__(self, has_calls: bool) -> None:
        self.has_calls = has_calls
        self._run: Any = Nothing()
        self._number = 0

    def begin(self, config: dict[str, Any] | None = None, **settings: Any) -> Recording:
        """Begin the run of the trainer; the plain form leaves out settings that need knowledge of otel-rl."""
        chosen = settings if self.has_calls else {}
        self._run = otel_rl.init(project="verdicts", exporters=["jsonl"], quiet=True, config=config or {}, **chosen)
        return self

    def join(self, variables: dict[str, str], role: str) -> Recording:
        """Join the run from another process, in a role; the plain form does not."""
        os.environ.update(variables)
        if self.has_calls:
            self._run = otel_rl.init(role=role, quiet=True)
        return self

    def environment(self) -> dict[str, str]:
        """Return the variables with which another process joins."""
        return dict(self._run.environment()) if self.has_calls else {}

    def step(self, number: int) -> Any:
        """Return the context of a step."""
        self._number = number
        return self._run.step(number) if self.has_calls else Nothing()

    def phase(self, name: str, **attributes: Any) -> Any:
        """Return the context of a phase."""
        return self._run.phase(name, **attributes) if self.has_calls else Nothing()

    def trajectory(self, **attributes: Any) -> Any:
        """Return the context of a trajectory."""
        return self._run.trajectory(**attributes) if self.has_calls else Nothing()

    def trained(self, tickets: list[Any], **options: Any) -> None:
        """Record the trajectories of the step, with advantages and the like."""
        if self.has_calls:
            self._run.trained(tickets, **options)

    def dropped(self, tickets: list[Any], reason: str) -> None:
        """Record trajectories that are not trained on."""
        if self.has_calls:
            self._run.dropped(tickets, reason=reason)

    def completions(self, prompts: list[str], texts: list[list[str]], **columns: Any) -> None:
        """Record texts as a table."""
        if self.has_calls:
            self._run.completions(prompts, texts, **columns)

    def weights(self, version: int, tensors: dict[str, Any], **options: Any) -> None:
        """Record samples of the weights."""
        if self.has_calls:
            self._run.weights(version, tensors, **options)

    def log(self, values: dict[str, Any]) -> None:
        """Record values in the current step."""
        self._run.log(values, step=self._number)

    def finish(self) -> None:
        """End the run."""
        self._run.finish()


def mark() -> None:
    """Write down that it begins now, once; the harness alone reads it."""
    path = Path(os.environ[MARK])
    if not path.exists():
        path.write_text(str(time.time()))


def sleep_forever() -> None:
    """Keep a process alive without doing anything."""
    while True:
        time.sleep(3600)
