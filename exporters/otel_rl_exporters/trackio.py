"""Rows as the metrics of a trackio run: in a local database, on a server, or in a Hugging Face Space."""

from __future__ import annotations

import contextlib
import json
import os
import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import Ended, Machine, Params, Row, Table, identity, values_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.otlp import http_client
from otel_rl_exporters.in_place import WatchedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo


_ANSWERS_WITHIN_S = 20


class TrackioExporter:
    """Logs each row to a trackio run that is named by the run's id; a restarted run continues it.

    A row is in the database, or on the server, when `export` returns. Its id is derived from the row's identity, so a
    repeated row is stored once. (With a Hugging Face Bucket, trackio's thread sends it later.) Rows of a resumed run
    have the value `rl/attempt`, from 1: the highest attempt of a step is the valid one. trackio has no status of a run,
    so the values `rl/outcome` and `rl/exit_code` say how an attempt ended.

    NaN and infinities are stored by name, as trackio does. trackio puts `__` before the names that it uses itself:
    `project`, `run`, `timestamp`, `step`, `time`, `metrics`, and all that begin with `__`. A parameter that begins
    with `_` is called `%5F…`.

    The config has the parameters that are known when the trackio run begins. Later parameters are in a table called
    `config`. A restarted run replaces the config, so `trackio.params.json` keeps the parameters and they are set again.

    Args:
        run: The run.
        project: The project; by default the run's. In names that trackio reserves, `-` becomes `_` or `_`
            becomes `-`.
        name: The run's name; by default its id, which a restarted run finds again.
        group: The group of the run in trackio.
        space_id: The Hugging Face Space that shows the run; none by default.
        server_url: The address of a trackio server; by default `TRACKIO_SERVER_URL`, else none. The variable
            `TRACKIO_WRITE_TOKEN` has its write token.
        dir: The directory of the database, relative to the run directory; by default `TRACKIO_DIR`,
            else `trackio`.
    """

    batch_size = 64
    requires = ("trackio",)
    extra = "trackio"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        server_url: str | None = None,
        dir: str | None = None,  # noqa: A002 - what trackio's variable calls it
    ) -> None:
        if dir is not None or "TRACKIO_DIR" not in os.environ:  # read once, when trackio is imported
            os.environ["TRACKIO_DIR"] = str(Path(run.directory, dir or "trackio"))
        import trackio

        self._trackio: Any = trackio
        self._options = {"project": _project(project or run.project), "name": name or run.id, "group": group}
        self._place = {name: value for name, value in (("space_id", space_id), ("server_url", server_url)) if value}
        self._client: Any = None
        self._unsent: list[Any] = []  # entries for the server
        self._kept = Path(run.directory, "trackio.params.json")
        self._config: dict[str, object] = json.loads(self._kept.read_bytes()) if self._kept.exists() else {}
        self._run: Any = None
        self._step: int | None = None
        self._watched = WatchedFile(None)

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows and tables among `items`, and remember the parameters.

        Logging an item again is harmless: trackio stores an id once.
        """
        # A batch that failed is given again from its first item: entries that it left would be sent twice.
        self._unsent.clear()
        for item in items:
            if isinstance(item, Row | Machine):
                self._step = item.step
                self._log(item, values_of(item), item.step)
            elif isinstance(item, Table):
                table = self._trackio.Table(columns=list(item.columns), data=[list(row) for row in item.rows])
                self._log(item, {item.name: table}, item.step)
            elif isinstance(item, Params):
                self._config |= {_parameter(name): value for name, value in item.values.items()}
                write_atomically(self._kept, json.dumps(self._config).encode())
                if self._run is not None:
                    rows = [[name, str(value)] for name, value in item.values.items()]
                    self._log(item, {"config": self._trackio.Table(columns=["name", "value"], data=rows)})
            elif isinstance(item, Ended):
                self._log(item, {"rl/outcome": item.outcome, "rl/exit_code": item.exit_code}, self._step)
        if self._unsent:
            token = self._run._hf_token_for_remote()
            self._client.predict(api_name="/bulk_log", logs=self._unsent, hf_token=token)

    def shutdown(self) -> None:
        """Finish the run: trackio writes the entries that its own thread still holds.

        Raises:
            Gone: The local database was removed or replaced.
        """
        if self._run is not None:
            self._run.finish()
        self._watched.check()

    def _log(
        self, item: Row | Machine | Table | Params | Ended, values: dict[str, Any], step: int | None = None
    ) -> None:
        """Let trackio build the entry, and write it immediately: its thread drops entries that it cannot write."""
        from trackio.sqlite_storage import SQLiteStorage

        run = self._opened()
        is_later = run._storage_mode == "jsonl"
        if not run._is_local and not is_later:
            self._connect(run)
        with run._client_lock:  # its thread reads no entries meanwhile
            run.log(values, step=step)
            with run._queue_lock:
                entries, run._queued_logs = run._queued_logs, []
            for entry in entries:
                entry["log_id"] = sha256(repr((run.id, identity(item), item.time_unix_nano)).encode()).hexdigest()[:32]
            if is_later:
                with run._queue_lock:
                    run._queued_logs = entries + run._queued_logs
                return
            if not run._is_local:
                self._unsent += entries
                return
            if not self._watched:
                self._watched = WatchedFile(SQLiteStorage.init_db(entries[0]["project"]))
            self._watched.check()
            for entry in entries:
                SQLiteStorage.bulk_log(
                    project=entry["project"],
                    run=entry["run"],
                    run_id=entry.get("run_id"),
                    metrics_list=[entry["metrics"]],
                    steps=[entry["step"]],
                    timestamps=[_time(item.time_unix_nano)],
                    config=entry.get("config"),
                    log_ids=[entry["log_id"]],
                )

    def _connect(self, run: Any) -> None:
        """Connect to the server, and take the id that it knows the run by: trackio makes another one in an outage."""
        if self._client is None:
            from trackio.remote_client import RemoteClient

            url = run._server_base_url or run.url
            if run._server_base_url:  # trackio's client hides why there is no connection
                answer = http_client.ask(f"{url.rstrip('/')}/version", within=_ANSWERS_WITHIN_S)
                if not answer.is_good:
                    raise ConnectionError(f"HTTP {answer.status} {answer.reason}")
            token = run._hf_token_for_remote()
            client = RemoteClient(url, hf_token=token, write_token=run._write_token, verbose=False)
            known = client.predict(run.project, api_name="/get_runs_for_project")
            run.id = next((entry["id"] for entry in known if entry["name"] == run.name and entry.get("id")), run.id)
            self._client = client

    def _opened(self) -> Any:
        """Return the trackio run. The first call begins it, with the parameters known so far."""
        if self._run is None:
            self._run = self._trackio.init(
                **self._options,
                **self._place,
                config=self._config,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return self._run


_RESERVED_SUFFIX = re.compile(r"_(?=(?:system|configs|traces|artifacts?\w*)$)")


def _time(time_unix_nano: int) -> str:
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(time_unix_nano / 1e9, UTC).isoformat()
    return datetime.now(UTC).isoformat()


def _project(name: str) -> str:
    """Return the name without parts that mean another project's file or trackio's registry."""
    return _RESERVED_SUFFIX.sub("-", name.replace("registry-", "registry_", 1)) or "otel-rl"


def _parameter(name: str) -> str:
    """Return the name without a leading underscore, which trackio does not accept; different names stay different."""
    return re.sub("^(?:_|%(?=5F|25))", lambda match: f"%{ord(match[0]):02X}", name)
