"""The file by which Prometheus finds the metrics endpoints of the agent and of the run's inference servers.

It holds addresses and the id of the run, and everybody may read it: Prometheus is another user.

Source: Prometheus's file-based service discovery (`file_sd_configs`), which drops the targets of a removed file.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from otel_rl import semconv
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.modes import PUBLIC
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import ForeignError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = log_of(__name__)
_warnings = Occasional(logger)
ENGINE = "engine"
"""The role of inference servers in the labels of their targets."""
REFRESH_S = 30.0
"""Seconds after which an agent marks its file as in use."""
STALE_S = 180.0
"""Seconds without such a mark after which a file is removed. An NFS client may see marks that are 60 s old."""
_CLOSE_S = 5.0
_PROTECTED = {"__rl_token__": "scrape"}
"""A label by which Prometheus chooses the job with the token for scraping; it is not part of the series."""


class Target:
    """The file of one agent, which exists for as long as the agent runs.

    An agent that is killed leaves its file behind. One agent of each run that is still active removes the files that
    were not marked as in use for `STALE_S`. An agent whose own file was removed writes it again.
    A thread does all of this: a network file system that hangs must not stop the agent.

    Args:
        own: URL of the agent's metrics endpoint, if it has one.
        engines: URLs of the metrics endpoints of inference servers, such as `http://node1:8000/metrics`.
        needs_token: If true, the agent's endpoint needs the token for scraping; Prometheus sends it to no other one.
        sweeps: If true, the agent removes the files of agents that were killed.
        refresh_s: Seconds between two marks.
    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        own: str | None,
        engines: Iterable[str],
        *,
        needs_token: bool = False,
        sweeps: bool,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._path = path
        self._content = msgspec.json.format(msgspec.json.encode(_groups(run_id, own, engines, needs_token)))
        self._sweeps = sweeps
        self._refresh_s = refresh_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="target", daemon=True)

    def start(self) -> None:
        """Write the file, and keep it."""
        self._write()
        self._thread.start()

    def close(self) -> None:
        """Remove the file."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def _keep(self) -> None:
        while True:
            if self._sweeps:
                with contextlib.suppress(OSError):
                    sweep(self._path.parent, now=self._path.stat().st_mtime)  # the clock of the file server
            if self._ended.wait(self._refresh_s):
                break
            self._refresh()
        remove(self._path)

    def _refresh(self) -> None:
        try:
            with opened(self._path.parent, makes=False) as directory:
                directory.touch(self._path.name)
        except FileNotFoundError:
            self._write()
        except OSError:
            pass  # tried again

    def _write(self) -> None:
        try:
            with opened(self._path.parent) as directory:
                directory.write(self._path.name, self._content, PUBLIC.file)
        except OSError as error:  # such as a full disk: the run continues
            _warnings.warn(f"Prometheus does not find the agent by {self._path}: {error}")


def opened(directory: Path, *, makes: bool = True) -> OwnDirectory:
    """Open a directory of target files.

    Raises:
        ForeignError: Another user made it, or it is a link.
        OSError: It cannot be opened.
    """
    return OwnDirectory(directory, PUBLIC.directory, makes=makes, closes=True)  # Kubernetes opens volumes for a group


def remove(path: Path) -> None:
    """Remove a target file, if it can be removed."""
    with contextlib.suppress(OSError), opened(path.parent, makes=False) as directory:
        directory.remove(path.name)


def sweep(place: Path, *, now: float) -> None:
    """Remove the files of agents that were killed; `now` is in seconds since 1970."""
    try:
        with opened(place, makes=False) as directory:
            for name in directory.names():
                with contextlib.suppress(OSError):
                    if name.endswith(".json") and directory.changed(name) < now - STALE_S:
                        directory.remove(name)
    except ForeignError as error:
        _warnings.warn(f"{error}; no target file there is removed")
    except OSError:
        pass  # there is none, or it is tried again


def _groups(run_id: str, own: str | None, engines: Iterable[str], needs_token: bool) -> list[dict[str, object]]:
    """Return the content of the file; the label `rl_run_id` joins the series of the targets."""
    label = semconv.RUN_ID.replace(".", "_")
    groups: list[dict[str, object]] = []
    for url in engines:
        try:
            groups.append(_group(url, {label: run_id, semconv.ROLE.replace(".", "_"): ENGINE}))
        except ValueError as error:
            logger.warning("invalid engines URL %r: %s; give one such as http://node1:8000/metrics", url, error)
    if own is not None:
        groups.insert(0, _group(own, _PROTECTED if needs_token else {}))  # its series have the other labels already
    return groups


def _group(url: str, labels: dict[str, str]) -> dict[str, object]:
    parts = urlsplit(url)
    if not parts.netloc or not parts.scheme:
        raise ValueError("it needs a scheme and a host")
    place = {"__scheme__": parts.scheme, "__metrics_path__": parts.path or "/metrics"}
    return {"targets": [parts.netloc], "labels": {**place, **labels}}
