"""`python -m otel_rl.autopsy RUN_DIR [--cause TEXT]`: what the agent starts when it suspects that a run hangs.

It prints the event that the agent then emits, as JSON.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.autopsy.conclude import autopsy
from otel_rl.export import Event
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.secrets import redacted_start

if TYPE_CHECKING:
    from otel_rl.export import AttributeValue
    from otel_rl.recorder.archive.autopsies import Autopsy

_LONGEST, _MOST_CULPRITS = 1000, 16
"""Characters of a text, and names: the event must fit into a pipe, which nobody reads before this program ends."""


def main() -> None:
    """Make an autopsy, and print what it found if that is a cause."""
    parser = argparse.ArgumentParser(prog="python -m otel_rl.autopsy")
    parser.add_argument("run", type=Path)
    parser.add_argument("--cause", default="")
    options = parser.parse_args()
    concluded = autopsy(options.run.absolute(), options.cause)
    if concluded.verdict.names_cause:
        with suppress(BrokenPipeError):  # the agent has ended
            # One write without a buffer: `print` would try again at exit, and print a traceback for the closed pipe.
            os.write(sys.stdout.fileno(), msgspec.json.encode(event_of(concluded)))


def event_of(concluded: Autopsy) -> Event:
    """Return the event that says what an autopsy found."""
    verdict = concluded.verdict
    attributes: dict[str, AttributeValue] = {
        semconv.HOST_NAME: socket.gethostname(),
        semconv.AUTOPSY_CAUSE: concluded.cause,
        semconv.AUTOPSY_KIND: verdict.kind,
        semconv.AUTOPSY_VERDICT: _text(verdict.sentence),
        semconv.AUTOPSY_SURE: verdict.sure,
        semconv.AUTOPSY_CULPRITS: [*map(_text, verdict.who[:_MOST_CULPRITS])],
        semconv.AUTOPSY_ADVICE: _text(verdict.advice),
    }
    attributes |= {semconv.AUTOPSY_FILE: _text(concluded.file)} if concluded.file else {}
    return Event(semconv.EVENT_AUTOPSY_CONCLUDED, concluded.time_unix_nano, attributes)


def _text(text: str) -> str:
    return redacted_start(one_line(text), _LONGEST)


if __name__ == "__main__":
    main()
