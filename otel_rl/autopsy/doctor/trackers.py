"""Exporters: packages, options, and whether the server of a tracker answers and accepts the key; no row is sent."""

from __future__ import annotations

import json
import netrc
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from otel_rl.autopsy.doctor.check import Check, split
from otel_rl.autopsy.doctor.network import ask, without_secrets
from otel_rl.export import ENTRY_POINT_GROUP
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from otel_rl.autopsy.doctor.check import CheckedMachine

    Environ = Mapping[str, str]
    Options = Mapping[str, Any]

_NAME = "trackers"
_WANDB, _SWANLAB = "https://api.wandb.ai", "https://api.swanlab.cn"
_OFFLINE = ("offline", "disabled", "dryrun", "local")


def trackers(machine: CheckedMachine) -> Iterator[Check]:
    """Check each exporter of the settings."""
    for spec in () if machine.settings is None else machine.settings.exporters:
        if spec.name in ("otlp", "prometheus") or spec.factory is not None:
            continue  # other checks look at these; a factory exists in its trainer alone
        try:
            plugins.check(ENTRY_POINT_GROUP, spec.name, spec.options)
        except SettingsError as error:
            yield Check(_NAME, "failed", *split(str(error)))
            continue
        look = _SERVERS.get(spec.name)
        yield Check(_NAME, "ok", f"{spec.name} can be built") if look is None else look(machine.environ, spec.options)


def _wandb(environ: Environ, options: Options) -> Check:
    mode = options.get("mode") or environ.get("WANDB_MODE", "online")
    if mode in _OFFLINE:
        return Check(_NAME, "ok", f"wandb is {mode}; `wandb sync` sends the run later")
    base = environ.get("WANDB_BASE_URL", _WANDB).rstrip("/")
    key = environ.get("WANDB_API_KEY") or _of_netrc(environ, base)
    if not key:
        fix = "Run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline."
        return Check(_NAME, "failed", f"wandb has no API key for {without_secrets(base)}", fix)
    query = json.dumps({"query": "query Viewer { viewer { username } }"}).encode()
    answer = ask(f"{base}/graphql", data=query, headers={"Content-Type": "application/json"}, auth=("api", key))
    # GraphQL also answers 200 to those whom it does not know, with `"viewer": null`.
    is_known = answer.status == 200 and '"viewer":{' in answer.body.replace(" ", "")
    return _verdict("wandb", base, answer, is_known=is_known, fix="Correct WANDB_API_KEY: `wandb login --relogin`.")


def _mlflow(environ: Environ, options: Options) -> Check:
    uri = options.get("tracking_uri") or environ.get("MLFLOW_TRACKING_URI", "")
    if urlsplit(uri).scheme not in ("http", "https"):
        return Check(_NAME, "ok", f"mlflow writes to {without_secrets(uri) or 'a database in the run directory'}")
    user, password = (environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    answer = ask(
        f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1",
        headers={"Authorization": f"Bearer {token}"} if token and not user else {},
        auth=(user, password) if user else None,
        verify=environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
        or environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() != "true",
    )
    fix = "Correct MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
    return _verdict("mlflow", uri, answer, is_known=answer.status == 200, fix=fix)


def _swanlab(environ: Environ, options: Options) -> Check:
    mode = options.get("mode") or environ.get("SWANLAB_MODE", "")
    base = environ.get("SWANLAB_API_HOST", _SWANLAB).rstrip("/").removesuffix("/api")
    key = environ.get("SWANLAB_API_KEY", "")
    if mode in _OFFLINE or (not mode and not key):
        return Check(_NAME, "ok", f"swanlab is {mode or 'offline, unless `swanlab login` has stored a key'}")
    answer = ask(f"{base}/api/login/api_key", data=b"", headers={"authorization": key})
    fix = "Correct SWANLAB_API_KEY: `swanlab login --relogin`."
    return _verdict("swanlab", base, answer, is_known=answer.status in (200, 201), fix=fix)


def _trackio(environ: Environ, options: Options) -> Check:
    url = options.get("server_url") or environ.get("TRACKIO_SERVER_URL", "")
    if not url:
        return Check(_NAME, "ok", "trackio writes to a database on this machine")
    answer = ask(url)
    return _verdict("trackio", url, answer, is_known=answer.status < 400, fix="Check the address of the server.")


_SERVERS: dict[str, Callable[[Environ, Options], Check]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "swanlab": _swanlab,
    "trackio": _trackio,
}


def _verdict(name: str, base: str, answer: Any, *, is_known: bool, fix: str) -> Check:
    """Return what an answer of a tracker's server means."""
    where = without_secrets(base)
    if answer.problem:
        return Check(_NAME, "failed", f"{name}: {answer.problem}", answer.fix)
    if is_known:
        return Check(_NAME, "ok", f"{name}: {where} answers and accepts the login")
    if answer.status >= 500:
        return Check(_NAME, "failed", f"{name}: {where} answers with status {answer.status}", "Try again later.")
    return Check(_NAME, "failed", f"{name}: {where} refuses the login (status {answer.status})", fix)


def _of_netrc(environ: Environ, base: str) -> str:
    """Return the key that `wandb login` has stored; empty if there is none."""
    file = environ.get("NETRC") or os.path.expanduser("~/.netrc")  # noqa: PTH111 - as `netrc` takes it
    try:
        login = netrc.netrc(file).authenticators(urlsplit(base).hostname or "")
    except (OSError, netrc.NetrcParseError):
        return ""
    return (login[2] or "") if login else ""
