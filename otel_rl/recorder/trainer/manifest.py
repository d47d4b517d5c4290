"""The manifest that the settings of a run ask for: its exporters, readers, resource and dialect."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl import export, semconv
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.delivery.log_scalar import adapted
from otel_rl.recorder.directory.directory import Manifest
from otel_rl.recorder.errors import SettingsError, UnavailableError
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.secrets import without_secret
from otel_rl.recorder.settings import head, listeners, otel_environment, tokens
from otel_rl.recorder.settings.settings import AgentSettings
from otel_rl.semconv.frameworks import dialects, imported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import Exporter
    from otel_rl.recorder.settings.otel_environment import Plugin
    from otel_rl.recorder.settings.settings import Settings

_warnings = Occasional(log_of("otel_rl"))

_ANSWERS_WITHIN_S = 2.0
"""Seconds to wait for a connection to the head, if its address should be one of this machine."""
_LOOPBACK = "127.0.0.1"
_ATTACH = "attach"
"""The option of an exporter that adds to the tracker's run of the trainer, in the trainer's process."""


def with_a_head(settings: Settings) -> Settings:
    """Return the settings without `head`, with a warning, if its address is certainly wrong.

    The address is wrong if all ranks are on this machine, another machine has it, and nobody answers there.

    Raises:
        UnavailableError: The address is wrong, and the run is strict.
    """
    if not settings.head or settings.role or settings.world_size > max(1, settings.local_world_size):
        return settings
    address = head.parse(settings.head)
    if head.is_head(address.host, os.environ):
        return settings
    with suppress(OSError):
        socket.create_connection((address.host.strip("[]"), address.port), _ANSWERS_WITHIN_S).close()
        return settings
    problem = (
        f"head={settings.head!r} is not an address of this machine, on which all ranks are, and nobody answers there: "
        "give head= an address of the machine of rank 0, or none for a run on one machine"
    )
    if settings.strict:
        raise UnavailableError(problem)
    _warnings.warn(f"{problem}; the run is recorded on this machine alone")
    return msgspec.structs.replace(settings, head="")


def manifest_of(settings: Settings) -> Manifest:
    """Return what the agent has to know about the run.

    Raises:
        SettingsError: A dialect or an exporter is unknown, or has an unknown option.
    """
    exporters, readers = exporters_and_readers(settings)
    if settings.agent == "auto":
        _check_listeners(settings, dict(readers))
    sends = bool(settings.head) and not head.is_head(head.parse(settings.head).host, os.environ)
    if sends:
        exporters = [("head", {"address": settings.head})]
    if settings.dialect not in (known := ("auto", *dialects())):
        raise SettingsError(f"invalid dialect={settings.dialect!r}: must be one of {', '.join(known)}")
    for group, plugins_of_group in ((export.ENTRY_POINT_GROUP, exporters), (export.READER_ENTRY_POINT_GROUP, readers)):
        for name, options in plugins_of_group:
            plugins.check(group, name, options)
    defaults = {
        semconv.SERVICE_NAME: settings.project,
        semconv.SERVICE_INSTANCE_ID: f"{settings.id}/{socket.gethostname()}",  # the same in all signals
    }
    identity = {semconv.RUN_ID: settings.id, semconv.RUN_NAME: settings.name, semconv.RUN_PROJECT: settings.project}
    resource = defaults | otel_environment.resource(os.environ) | identity
    return Manifest(
        id=settings.id,
        project=settings.project,
        name=settings.name,
        exporters=exporters,
        readers=readers,
        resource={name: str(without_secret(name, value)) for name, value in resource.items()},
        dialect=settings.dialect if settings.dialect != "auto" else imported(sys.modules) or "auto",
        receives="" if sends else settings.head,
        agent=msgspec.convert(settings, AgentSettings, from_attributes=True),
        idle_timeout=settings.idle_timeout,
        journal_limit=settings.journal_limit,
    )


def _check_listeners(settings: Settings, readers: Mapping[str, Mapping[str, object]]) -> None:
    """Raise if other machines reach an address of the run that has no token or no TLS; the agent checks it too."""
    endpoint = readers.get("prometheus")
    if not settings.head and endpoint is None:
        return
    if settings.head:
        listeners.check_head(settings.head, has_token=bool(tokens.find()), insecure=settings.insecure)
    if endpoint is not None and not listeners.is_loopback(host := str(endpoint.get("host", _LOOPBACK))):
        insecure = bool(endpoint.get("insecure"))
        listeners.check_endpoint(host, os.environ, has_token=bool(tokens.find()), insecure=insecure)


def own_exporters(settings: Settings) -> dict[str, Callable[..., Exporter]]:
    """Return factories of the exporters that only this process can build; only the first rank has any."""
    own = {spec.name: spec.factory for spec in settings.exporters if spec.factory is not None}
    for spec in settings.exporters:
        if not isinstance(spec.options.get(_ATTACH, False), bool):
            raise SettingsError(
                f"exporter {spec.name!r}: {_ATTACH}={shown(spec.options[_ATTACH])} must be True or False"
            )
        if spec.options.get(_ATTACH):
            if others := _without_attach(spec.options):
                raise SettingsError(
                    f"exporter {spec.name!r}: {', '.join(others)} has no effect with {_ATTACH!r}, which uses the run "
                    "that the trainer has; remove one of them"
                )
            name = f"{spec.name}_attached"
            plugins.check(export.ENTRY_POINT_GROUP, name, {})
            try:
                own[name] = plugins.find(export.ENTRY_POINT_GROUP, name).to_what_is_active()
            except ValueError as error:
                raise SettingsError(f"exporters: {error}") from None
    if not own or settings.rank != 0 or settings.role:
        return {}
    if settings.agent == "off":
        raise SettingsError(
            f"exporters: {next(iter(own.values()))!r} cannot be imported by name, so only this process can use it, "
            "and agent='off' leaves it nothing to read; define it at the top of a module that can be imported"
        )
    built = {name: adapted(factory) for name, factory in own.items()}
    for name, factory in built.items():
        plugins.check_options(name, factory, {})
    return built


def warn_of_unserved(settings: Settings, own: Mapping[str, Callable[..., Exporter]]) -> str:
    """Warn about exporters of this process that get no rows, since another machine makes them; return the warning."""
    if not own:
        return ""
    warning = (
        f"head={settings.head!r} is another machine than that of rank 0, whose process alone can use the exporters "
        f"{', '.join(own)}; they get no rows: give head= an address of the machine of rank 0"
    )
    if settings.strict:
        raise UnavailableError(warning)
    _warnings.warn(warning)
    return warning


def exporters_and_readers(settings: Settings) -> tuple[list[Plugin], list[Plugin]]:
    """Return the exporters and the metric readers that the settings and OpenTelemetry's variables ask for.

    "archive", "prometheus" and "otlp" need not be named; naming the last two sets their options, or OTLP's default
    endpoint.
    """
    otel_environment.warn_of_unused(os.environ)
    own = [spec for spec in settings.exporters if spec.factory is None and not spec.options.get(_ATTACH)]
    named = {spec.name: _without_attach(spec.options) for spec in own}
    readers = dict(otel_environment.metric_readers(os.environ))
    exporters = dict(otel_environment.otlp_exporters(os.environ))
    exporters = named | {name: options | named.get(name, {}) for name, options in exporters.items()}
    if settings.archive_limit:
        exporters["archive"] = {"limit": settings.archive_limit}
    if settings.on_event:
        is_url = settings.on_event.startswith(("http://", "https://"))
        reaction = (
            ("webhook", {"url": settings.on_event}) if is_url else ("command", {"argv": shlex.split(settings.on_event)})
        )
        exporters[reaction[0]] = exporters.get(reaction[0], {}) | reaction[1]
    for name in {"prometheus", "otlp"} & set(named):
        options = exporters.pop(name)
        if not otel_environment.sdk_is_disabled(os.environ):
            readers[name] = readers.get(name, {}) | options
            exporters |= {signal: {} for signal in plugins.OTLP} if name == "otlp" else {}
    if settings.insecure and "prometheus" in readers:
        readers["prometheus"] = {"insecure": True} | readers["prometheus"]
    return list(exporters.items()), list(readers.items())


def _without_attach(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name != _ATTACH}
