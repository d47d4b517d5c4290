"""Trainings in processes of their own, and their runs, read back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import otel_rl
from otel_rl.export import Item, Params, Row, Span
from otel_rl.frameworks.drift import sorted_out
from tests.frameworks.results import Compared, Values, by_step, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run, start

EXAMPLES = Path(__file__).with_name("examples")
LAUNCHER = (sys.executable, "-m", "otel_rl.cli", "run")
_ENVIRONMENT = {
    "OTEL_RL_HARDWARE": "false",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "300",  # 30 are not enough on a machine that is busy
}


def plain(directory: Path, *script: str, **environment: str) -> str:
    """Run an example or another script; return what it printed."""
    return run([sys.executable, *_found(script)], directory, **_ENVIRONMENT | environment)


def launched(directory: Path, *script: str, options: Sequence[str] = (), **environment: str) -> str:
    """Run an example or another script under `otel-rl run`; return what it printed."""
    command = [*LAUNCHER, *options, "--", sys.executable, *_found(script)]
    return run(command, directory, **_ENVIRONMENT | environment)


def told_by(directory: Path, *script: str, options: Sequence[str] = (), **environment: str) -> str:
    """Run an example or another script under `otel-rl run`; return what it wrote to standard error."""
    command = [*LAUNCHER, *options, "--", sys.executable, *_found(script)]
    process = start(command, directory, **_ENVIRONMENT | environment)
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    return errors


def _found(script: Sequence[str]) -> list[str]:
    example = EXAMPLES / script[0]
    return [str(example) if example.is_file() else script[0], *script[1:]]


_OF_TOKENS = ("tokens", "mask", "logprobs", "trainer_logprobs")


def messages_of(directory: Path) -> dict[int, list[list[dict[str, Any]]]]:
    """Return the messages of each trajectory of a run, in their order, by step."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    messages = otel_rl.open_run(directory).sql("SELECT * FROM messages ORDER BY step, span_id, number")
    for line in zip(*(messages[name] for name in messages.columns), strict=True):
        message = dict(zip(messages.columns, line, strict=True))
        found.setdefault((int(message["step"]), message["span_id"]), []).append(message)
    return {step: [own for key, own in found.items() if key[0] == step] for step, _ in found}


def tokens_of(directory: Path) -> dict[int, list[tuple[list[Any], ...]]]:
    """Return what a run has of the tokens of each completion, by step, sorted.

    These are ids, the mask, and log-probabilities of the engine and the trainer; lists that it lacks are empty.
    """
    return {
        step: sorted(
            tuple([one for message in own for one in _listed(message[name])] for name in _OF_TOKENS) for own in of_step
        )
        for step, of_step in messages_of(directory).items()
    }


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values or ())


def only(directory: Path) -> Recorded:
    """Return the run in the directory of a project; there is one."""
    (found,) = directory.iterdir()
    return Recorded(found)


class Recorded:
    """A run that a training left.

    Attributes:
        directory: The run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def rows(self) -> dict[int, dict[str, Any]]:
        """The values of each step."""
        rows: list[Any] = rows_of(self.directory)
        return by_step((row["step"], row["values"]) for row in rows)

    @cached_property
    def items(self) -> list[Item]:
        """Everything that the agent made."""
        return items_of(self.directory)

    @property
    def reduced(self) -> list[Row]:
        """The rows that the agent made, whichever exporters the run has."""
        return [item for item in self.items if isinstance(item, Row)]

    @cached_property
    def spans(self) -> list[Span]:
        """The spans, in the order in which they ended."""
        return [item for item in self.items if isinstance(item, Span)]

    @property
    def roots(self) -> list[Span]:
        """The spans of the steps."""
        return [span for span in self.spans if span.name == "rl.loop"]

    @property
    def params(self) -> dict[str, Any]:
        """The hyper-parameters."""
        return {name: value for one in self.items if isinstance(one, Params) for name, value in one.values.items()}

    @property
    def steps(self) -> dict[Any, list[Span]]:
        """The spans directly below the root of each step."""
        return {
            root.attributes["rl.loop.iteration"]: [span for span in self.spans if span.parent_id == root.span_id]
            for root in self.roots
        }

    @property
    def phases(self) -> dict[Any, list[str]]:
        """The phases directly below the root of each step."""
        return {step: [str(span.attributes["rl.phase"]) for span in inside] for step, inside in self.steps.items()}

    def agrees(
        self,
        wrote: Values,
        framework: str,
        revision: str,
        ran: str,
        *,
        single: bool = False,
        users_names: bool = False,
    ) -> Compared:
        """Check that the rows have each number that a framework wrote, that its names are known, and keep the counts.

        Args:
            wrote: The numbers by step and name.
            framework: Name of the dialect.
            revision: Version or revision of the framework that ran.
            ran: What ran, and what readers need to know of the comparison.
            single: If true, the framework wrote numbers in single precision.
            users_names: If true, users choose the names.
        """
        found = compared(wrote, self.rows, single=single)
        keep(framework, revision, ran, found, phase_coverage(self.spans))
        assert found.different == []
        assert users_names or sorted_out(found.names, framework).unknown == []
        return found
