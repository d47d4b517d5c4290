"""Settings and variables: unknown names, invalid values, and variables that have no effect."""

from __future__ import annotations

import difflib
import logging
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

from otel_rl.autopsy.doctor.check import Check, split
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.otlp.connection import Signal, connection
from otel_rl.recorder.settings import otel_environment
from otel_rl.recorder.settings.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_rl.autopsy.doctor.check import CheckedMachine
    from otel_rl.recorder.settings.settings import Settings

_NAME, _OWN = "settings", "OTEL_RL_"
_COUNTED = re.compile(r" \(\d+ so far\)$")
_OPEN = re.compile("OTEL_(RL|PYTHON|INSTRUMENTATION|SEMCONV|JAVA|GO|NODE|DOTNET)_")
"""Beginnings of names that OpenTelemetry's list of variables does not have."""


def loaded(environ: Mapping[str, str]) -> Settings | None:
    """Return the settings of a run that would start here, without variables that are invalid; `None` if that fails."""
    try:
        return load(
            {}, {name: text for name, text in environ.items() if not (name.startswith(_OWN) and _problem({name: text}))}
        )
    except SettingsError:
        return None


def _problem(environ: Mapping[str, str]) -> str:
    """Return what is wrong with settings; empty if nothing is."""
    try:
        load({}, environ)
    except SettingsError as error:
        return str(error)
    return ""


def settings(machine: CheckedMachine) -> Iterator[Check]:
    """Check each variable by itself, then all settings together, and OpenTelemetry's variables."""
    problems: dict[str, None] = {}
    with _warned() as warnings:
        own = {name: text for name, text in machine.environ.items() if name.startswith(_OWN)}
        for variables in ({}, *({name: text} for name, text in own.items()), machine.environ):
            if problem := _problem(variables):
                problems.setdefault(problem)
        problems |= _of_opentelemetry(machine.environ)
    yield from (Check(_NAME, "failed", *split(text)) for text in problems)
    yield from (Check(_NAME, "warning", *split(text)) for text in [*warnings, *_unknown(machine.environ)])
    if not problems and not warnings:
        count = len(own)
        yield Check(_NAME, "ok", f"{count} variable{'' if count == 1 else 's'} of otel-rl, all valid")


def _of_opentelemetry(environ: Mapping[str, str]) -> dict[str, None]:
    """Read OpenTelemetry's variables, which warns of what is ignored; return what is refused."""
    problems: dict[str, None] = {}
    with otel_environment.only_valid(dict(environ)):  # it warns of the others
        pass
    otel_environment.warn_of_unused(environ)
    otel_environment.log_level(environ)
    otel_environment.limits(environ)
    otel_environment.resource(environ)
    otel_environment.metric_readers(environ)
    otel_environment.otlp_exporters(environ)
    for signal in get_args(Signal):
        otel_environment.batch_size(environ, signal)
        try:
            connection(environ, signal)
        except SettingsError as error:
            problems.setdefault(str(error))
    return problems


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield names that OpenTelemetry does not have, and that are close to one that it has."""
    from opentelemetry.sdk import environment_variables

    known = {name for name in dir(environment_variables) if name.startswith("OTEL_")}
    known |= {*otel_environment.UNUSED, "OTEL_PROPAGATORS", "OTEL_EXPORTER_PROMETHEUS_HOST"}
    for name in environ:
        if name.startswith("OTEL_") and name not in known and not _OPEN.match(name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if close:
                yield f"unknown variable {name} is ignored; did you mean {close[0]}?"


@contextmanager
def _warned() -> Iterator[list[str]]:
    """Collect what this thread logs as warnings, each once."""
    texts: list[str] = []
    thread = threading.get_ident()

    class Collected(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = _COUNTED.sub("", record.getMessage())
            # All checks run at the same time, and log from threads of their own.
            if record.thread == thread and record.levelno >= logging.WARNING and text not in texts:
                texts.append(text)

    handler, logger = Collected(), logging.getLogger("otel_rl")
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
