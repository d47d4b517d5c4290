"""A trainer into whose every entrance secrets are put: `secret_trainer.py DIRECTORY`, with the secrets in stdin.

Each secret comes with a text that has it, and a name by which it is a secret too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from opentelemetry.trace import Status, StatusCode

import otel_rl
from otel_rl.recorder.errors.sinks import log_of

MARKER = "a-text-without-secrets"


class Broken:
    """An exporter that cannot send, and whose errors have the secrets that it was given."""

    def __init__(self, run: object, *, api_key: str, headers: dict[str, str], uri: str, notes: str) -> None:
        self._text = f"401 for {uri}: key {api_key}, headers {headers}, {notes}"

    def export(self, items: object) -> None:
        """Fail with all secrets in the message."""
        raise ConnectionError(self._text)

    def shutdown(self) -> None:
        """Do nothing."""


def main(directory: str) -> None:
    """Record a run of two steps."""
    given: dict[str, Any] = json.load(sys.stdin)
    texts: list[str] = given["texts"]
    named: dict[str, str] = given["named"]
    run = otel_rl.init(
        project=f"project {texts[0]}",
        name=f"name {texts[1]}",
        dir=directory,
        content=True,
        exporters=[*given["exporters"], {"tests.security.secret_trainer:Broken": given["options"]}],
        config={
            "marker": MARKER,
            "texts": texts,
            "nested": {f"text{n}": f"see {text} here" for n, text in enumerate(texts)},
            "named": named,
            "argv": [*given["argv"], "--verbose"],
            "command": " ".join(given["argv"]),
            **{f"key {text}": n for n, text in enumerate(texts)},
        },
    )
    log = log_of("otel_rl.tests.secrets")
    for step in range(2):
        with run.step(step, marker=MARKER, **named):
            run.log({"loss": 1.0 / (step + 1), **{f"metric {text}": 1.0 for text in texts}})
            run.log({"bad": texts[step], f"{texts[step]}": "not a number"})  # type: ignore[dict-item]
            for n, text in enumerate(texts):
                with (
                    contextlib.suppress(ValueError),
                    run.phase(f"phase{n % 7}", text=text, texts=[text, MARKER]) as span,
                ):
                    span.add_event(f"event {text}", {"text": text, **named})
                    span.set_attribute(f"attribute {text}", text)
                    if step == 0:
                        try:
                            raise RuntimeError(f"cause {text}")
                        except RuntimeError as error:
                            raise ValueError(f"invalid {text}") from error
                run.event(f"event {text}", text=text)
            with run.phase(f"phase {texts[step]}") as span:
                span.set_status(Status(StatusCode.ERROR, f"status {texts[2]}"))
                span.update_name(f"renamed {texts[3]}")
            with run.tracer_provider.get_tracer(f"scope {texts[4]}").start_as_current_span(
                f"span {texts[5]}", attributes=named
            ):
                pass
            run.table(
                f"table {texts[step]}", {"marker": [MARKER] * len(texts), "text": texts, f"column {texts[6]}": texts}
            )
            run.table("named", {name: [value, value] for name, value in named.items()})
            run.completions([MARKER] * len(texts), [f"say {text}" for text in texts])
            run.queue(f"queue {texts[7]}", depth=1)
            with run.trajectory(text=texts[8], group_id=texts[6]) as trajectory:
                with trajectory.part("tool", name=f"tool {texts[9]}"):
                    pass
                for text in texts:
                    calls = [{"name": f"call {text}", "arguments": json.dumps({"text": text, **named})}]
                    trajectory.message(f"author {text}", f"say {text}", name=f"tool {text}", tool_calls=calls)
                trajectory.message("assistant", MARKER, tool_calls=[named])
                trajectory.rewarded(0.5, components={f"component {texts[7]}": 0.5})
            run.dropped([trajectory.ticket()], reason=f"reason {texts[10]}")
    for text in texts:
        log.warning("a warning with %s", text)
    with contextlib.suppress(otel_rl.SettingsError):
        otel_rl.init(project=texts[11], **{f"unknown_{n}": text for n, text in enumerate(texts[:3])})  # type: ignore[arg-type]
    raise RuntimeError("the end: " + " ".join(texts))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    warnings.simplefilter("ignore")
    sys.excepthook = lambda *_: None  # the trainer's own traceback is not otel-rl's
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(sys.argv[1])
