"""Reactions to events outside of the run: a command, or a request to a URL, for each event of otel-rl."""

from __future__ import annotations

import shutil
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Event, Refused
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.programs import TooLate
from otel_rl.recorder.otlp import http_client
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import AttributeValue, Item, RunInfo

_EVENTS = ("rl.*",)
_OLDEST_S = 600
"""Age in seconds from which an event is left out: undelivered items may be delivered days later."""
_LONGEST_ANSWER, _LONGEST_OUTPUT = 200, 1 << 16


class _Reaction:
    """The common part: which events, and what is said of them.

    An event is tried once: a failure is counted and logged, and nobody waits for it. The run is complete without it.
    """

    def __init__(self, run: RunInfo, events: Sequence[str], timeout: float) -> None:
        self._run = {"run": run.id, "project": run.project, "run_name": run.name, "directory": run.directory}
        self._events, self._timeout = tuple(events), timeout

    def export(self, items: Sequence[Item]) -> None:
        """React to the events among `items`.

        Raises:
            Refused: A reaction failed.
        """
        failed: Refused | None = None
        for item in items:
            if isinstance(item, Event) and self._is_meant(item):
                event = msgspec.structs.asdict(item)
                event["attributes"] = {key: _clean(key, value) for key, value in item.attributes.items()}
                try:
                    self._react(msgspec.json.encode(self._run | event))
                except Refused as error:  # the other events are reacted to all the same
                    failed = failed or error
        if failed is not None:
            failed.count = 0  # nothing of the run is missing anywhere
            raise failed

    def _is_meant(self, event: Event) -> bool:
        is_young = event.time_unix_nano > time.time_ns() - _OLDEST_S * 10**9
        return is_young and any(fnmatchcase(event.name, pattern) for pattern in self._events)

    def _react(self, event: bytes) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        """Do nothing: no reaction outlives its event."""


def _clean(name: str, value: AttributeValue) -> AttributeValue:
    """Return the value of an attribute without secrets."""
    if isinstance(value, list):
        return [redacted(element, name) if isinstance(element, str) else element for element in value]
    return redacted(value, name) if isinstance(value, str) else value


class CommandExporter(_Reaction):
    """Runs a command for each event, which gets the event as JSON on its standard input; one at a time.

    Args:
        run: The run.
        argv: The program and its arguments; no shell reads them. They are never written into a file.
        events: Patterns of the names of events.
        timeout: Seconds after which the command and all that it has started are killed.
    """

    def __init__(
        self, run: RunInfo, *, argv: list[str], events: Sequence[str] = _EVENTS, timeout: float = 10.0
    ) -> None:
        super().__init__(run, events, timeout)
        self._argv = argv

    @staticmethod
    def check(*, argv: list[str], **_: object) -> None:
        """Raise if there is not such a program.

        Raises:
            ValueError: The message names it.
        """
        if not argv or shutil.which(argv[0]) is None:
            raise ValueError(f"argv={argv!r}: there is no program {argv[0] if argv else ''!r} on the PATH")

    def _react(self, event: bytes) -> None:
        try:
            done = ask(self._argv, within=self._timeout, question=event, most=_LONGEST_OUTPUT)
        except TooLate as error:
            text = f"{self._argv[0]} did not end within {self._timeout:g} s, and was killed"
            raise Refused(text, error_type="timeout") from error
        except OSError as error:
            raise Refused(f"{self._argv[0]}: {error.strerror}", error_type="command") from error
        if done.code:
            output = one_line(done.errors.decode(errors="replace"))[-_LONGEST_ANSWER:]
            raise Refused(f"{self._argv[0]} ended with {done.code}: {redacted(output)}", error_type="command")


class WebhookExporter(_Reaction):
    """Sends each event as JSON in a POST request; one at a time. Redirects are not followed.

    Args:
        run: The run.
        url: The URL; it is never written into a file.
        events: Patterns of the names of events.
        timeout: Seconds.
    """

    def __init__(self, run: RunInfo, *, url: str, events: Sequence[str] = _EVENTS, timeout: float = 10.0) -> None:
        super().__init__(run, events, timeout)
        self._url = url

    def _react(self, event: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            answer = http_client.ask(self._url, event, within=self._timeout, headers=headers, most=_LONGEST_ANSWER)
        except OSError as error:  # its text may have the URL, which may be a secret
            raise Refused(f"the webhook failed: {type(error).__name__}", error_type=type(error).__name__) from None
        if not answer.is_good:
            raise Refused(f"the webhook answered {answer.status}", error_type=str(answer.status))
