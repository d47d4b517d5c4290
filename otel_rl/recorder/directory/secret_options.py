"""Secret options of exporters: they go to the agent in its environment, and never into a file.

`run.json` has a placeholder instead. The supervisor of the agent keeps the variable for the agents that it restarts.
The agent removes it, so that its own child processes do not inherit it.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.secrets import REDACTED, hides, is_secret, redacted
from otel_rl.recorder.settings.settings import SECRET_OPTIONS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    from otel_rl.recorder.directory.directory import Manifest

_REACTIONS = {"command": "command/argv", "webhook": "webhook/url"}
"""Exporters that act outside of the run, each with an option that is only in the environment of an agent: whoever has a
URL can post there, and whoever can write `run.json` must not choose a program."""
_MODULE_OF_REACTIONS = "otel_rl_exporters.reactions:"
PLACEHOLDER = "[secret: only in the environment of the agent]"
HIDDEN_QUERY = "?[secret]"
"""The end of the URL of an inference server in `run.json` in place of its query, which may have a key."""
_ENGINES = "hardware/engines"
_ALWAYS = re.compile(r"(^|_)(headers|pass)$", re.IGNORECASE)
logger = log_of(__name__)
_taken: dict[str, object] = {}
"""The content of the variable, which is removed when it is read."""


def without_secrets(manifest: Manifest) -> tuple[Manifest, dict[str, object]]:
    """Return a manifest with placeholders for the secret options, and these options by path.

    An option is secret if its name is, if it is a header, or if it is nothing but a secret or a URI with one. Secrets
    inside other texts, such as notes of a run, are redacted.
    """
    secrets: dict[str, object] = {}
    exporters = [(name, _hidden(name, options, secrets)) for name, options in manifest.exporters]
    readers = [(name, _hidden(name, options, secrets)) for name, options in manifest.readers]
    redaction.learn(secrets.values())
    engines = [_without_query(url, secrets) for url in manifest.agent.hardware.engines]
    public = msgspec.structs.replace(manifest, exporters=exporters, readers=readers)
    return _with_engines(public, engines), secrets


def with_secrets(
    manifest: Manifest, environ: MutableMapping[str, str], given: Callable[[], Mapping[str, object]]
) -> Manifest:
    """Return the manifest of `run.json` with its secret options.

    Each comes from the variable of the agent, the tracker's own variable such as `WANDB_API_KEY`, or the settings file.
    Reactions to events are left out without the variable of the agent.

    Args:
        manifest: The manifest with placeholders.
        environ: The environment of the agent; `SECRET_OPTIONS_VARIABLE` is removed.
        given: Returns the options of each exporter that the settings of this process have, for an agent that is
            started later by hand.

    Raises:
        SettingsError: An option is nowhere; the message says how to give it.
    """
    with suppress(ValueError):
        _taken.update(json.loads(environ.pop(SECRET_OPTIONS_VARIABLE, "{}")))

    def find(path: str) -> object:
        if path in _taken:
            return _taken[path]
        exporter, *names = path.split("/")
        variable = re.sub(r"\W+", "_", f"{exporter.rpartition(':')[2]}_{names[-1]}").upper()
        if environ.get(variable):
            return environ[variable]
        options: Any = given()
        for name in (exporter, *names):
            options = options.get(name) if isinstance(options, dict) else None
        if options is None:
            raise SettingsError(
                f"exporter {exporter!r}: the option {'.'.join(names)} is a secret, which run.json does not have: "
                f"set {variable}, or give it under exporters in the settings file (otel-rl.toml)"
            )
        return options

    exporters = [(name, _restored(name, options, find)) for name, options in manifest.exporters if _may_act(name)]
    readers = [(name, _restored(name, options, find)) for name, options in manifest.readers]
    redaction.learn(_taken.values())
    restored = msgspec.structs.replace(manifest, exporters=exporters, readers=readers)
    known = [str(_taken.get(f"{_ENGINES}/{url}", url)) for url in manifest.agent.hardware.engines]
    for url in known:
        redaction.learn(value for _, value in parse_qsl(urlsplit(url).query))
        if url.endswith(HIDDEN_QUERY):
            logger.warning("the inference server %s is not asked: only an agent that a trainer starts has its key", url)
    return _with_engines(restored, [url for url in known if not url.endswith(HIDDEN_QUERY)])


def _without_query(url: str, secrets: dict[str, object]) -> str:
    """Return the URL of an inference server without its query, which is added to `secrets`."""
    public, *hidden = re.split(r"[?#]", url, maxsplit=1)
    if not hidden:
        return url
    secrets[f"{_ENGINES}/{public}{HIDDEN_QUERY}"] = url
    redaction.learn(value for _, value in parse_qsl(hidden[0]))
    return f"{public}{HIDDEN_QUERY}"


def _with_engines(manifest: Manifest, urls: Sequence[str]) -> Manifest:
    hardware = msgspec.structs.replace(manifest.agent.hardware, engines=tuple(urls))
    return msgspec.structs.replace(manifest, agent=msgspec.structs.replace(manifest.agent, hardware=hardware))


def _may_act(exporter: str) -> bool:
    """Return whether an exporter may act: a reaction only in an agent that the trainer has started."""
    if _REACTIONS.get(exporter, "") in ("", *_taken) and _MODULE_OF_REACTIONS not in exporter:
        return True
    logger.warning("the exporter %r is left out: only an agent that a trainer starts reacts to events", exporter)
    return False


def _hidden(path: str, value: Any, secrets: dict[str, object], *, is_inside: bool = False) -> Any:
    """Return a value of an option with placeholders; add what is hidden to `secrets`."""
    name = path.rpartition("/")[2]
    if path in _REACTIONS.values():
        secrets[path] = value
        return PLACEHOLDER
    is_named = is_secret(name) or _ALWAYS.search(name) is not None or hides(path.replace("/", "."), value)
    is_inside = is_inside or ("/" in path and is_named)
    if isinstance(value, dict):
        return {key: _hidden(f"{path}/{key}", option, secrets, is_inside=is_inside) for key, option in value.items()}
    if isinstance(value, list):
        return [_hidden(f"{path}/{n}", option, secrets, is_inside=is_inside) for n, option in enumerate(value)]
    if value is None or isinstance(value, bool) or not (is_inside or isinstance(value, str)):
        return value
    clean = redacted(value) if isinstance(value, str) else value
    is_uri = clean != value and "://" in value and " " not in value
    if not is_inside and not is_uri and clean != REDACTED:
        return clean
    secrets[path] = value
    return PLACEHOLDER


def _restored(path: str, value: Any, find: Callable[[str], object]) -> Any:
    if isinstance(value, dict):
        return {key: _restored(f"{path}/{key}", option, find) for key, option in value.items()}
    if isinstance(value, list):
        return [_restored(f"{path}/{n}", option, find) for n, option in enumerate(value)]
    return find(path) if value == PLACEHOLDER else value
