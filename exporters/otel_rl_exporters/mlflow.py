"""Rows as metrics of an MLflow run, on a tracking server or in a local database."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import Ended, Gone, Machine, Outcome, Params, Refused, Row, Table, values_of
from otel_rl.recorder.convert.strict_json import spelled
from otel_rl.recorder.errors.sinks import shortened
from otel_rl_exporters.in_place import WatchedFile
from otel_rl_exporters.table_places import TablePlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_rl.export import Item, RunInfo

_METRICS_AT_ONCE, _PARAMS_AT_ONCE = 1000, 100  # MLflow's limits for one request
_LONGEST_NAME, _LONGEST_PARAM = 250, 6000
_TABLES_LISTED = 16  # what fits in one tag, of 5000 characters in older servers
_RUN_ID_TAG = "rl.run.id"
_ERROR_TAG = "rl.run.error"
_LONGEST_TAG = 5000
_LONGEST_DIRECTORY = 200  # bytes; file systems allow 255
_STATUS: dict[Outcome, str] = {"finished": "FINISHED", "cancelled": "KILLED"}
"""The status of a run by its outcome; FAILED for the other outcomes."""
_FAILED = "FAILED"
_TABLES_TAG = "mlflow.loggedArtifacts"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the caller retries, with its own delays
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_OF_THE_ITEM = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
"""Errors that a retry does not change. Missing permissions, projects and runs can change, so these are retried."""


class MlflowExporter:
    """Logs each row to an MLflow run that has the run's id as a tag; a restarted run continues it.

    Names keep their slashes. `escape` replaces the characters that MLflow does not allow. Numbers are floats. MLflow's
    database has no infinities: they read back as ±1.7976931348623157e308, and -0.0 as 0.0. NaN stays.

    MLflow cannot change a parameter, so another value of a restarted run becomes the tag `changed.<name>`. Tables are
    artifacts, `tables/<name>/step_000012.json`. MLflow's UI shows the newest 16 as tables, the others as JSON. Rows of
    ranks that report late are in another artifact, `step_000012.part-1.json`.

    A resumed run has the metric `rl/attempt`, from 1, with the same step and time: the highest attempt of a step is the
    valid one. A run that was cancelled has the status KILLED; one that failed, crashed or was lost has FAILED. The
    tag `rl.run.error` has the reason.

    Args:
        run: The run.
        tracking_uri: The server or database; by default `MLFLOW_TRACKING_URI`, else a SQLite
            database in the run directory. MLflow's file store is not supported: `loss` and `loss/kl` would
            be a file and a directory of one name.
        experiment_name: The experiment; by default `MLFLOW_EXPERIMENT_NAME`, else the project.
        run_name: The run's name in MLflow; by default `MLFLOW_RUN_NAME`, else the run's.
        artifact_location: Where the artifacts of a new experiment are stored.
        tags: Tags of the run.
    """

    batch_size = 64
    shows_end = True
    requires = ("mlflow",)
    extra = "mlflow"

    def __init__(
        self,
        run: RunInfo,
        *,
        tracking_uri: str | None = None,
        experiment_name: str | None = None,
        run_name: str | None = None,
        artifact_location: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        # Before the import: MLflow starts its telemetry while it is imported.
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException

        self._metric, self._param, self._error = Metric, Param, MlflowException
        uri = _uri(tracking_uri)
        if not uri:
            uri = f"sqlite:///{Path(run.directory, 'mlflow.db')}"
            artifact_location = artifact_location or Path(run.directory, "mlflow-artifacts").as_uri()
        uri, self._watched = _database(uri)
        self._client: Any = MlflowClient(tracking_uri=uri)
        experiment = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.project
        label = run_name or os.environ.get("MLFLOW_RUN_NAME") or run.name
        self._run_id: str = self._open(experiment, artifact_location, label, {**(tags or {}), _RUN_ID_TAG: run.id})
        self._watched.check()
        known = self._client.get_run(self._run_id).data
        self._outcome: Outcome = "finished"
        self._attempt, self._shows_error = 0, bool(known.tags.get(_ERROR_TAG))
        self._params: dict[str, str] = dict(known.params)
        self._places = TablePlaces()
        self._tables: list[dict[str, str]] = json.loads(known.tags.get(_TABLES_TAG, "[]"))

    @staticmethod
    def check(*, tracking_uri: str | None = None, **_options: object) -> None:
        """Raise if the URI is that of MLflow's file store.

        Raises:
            ValueError: It is.
        """
        uri = _uri(tracking_uri)
        if uri.startswith("file:") or (uri and "://" not in uri and not uri.startswith("databricks")):
            raise ValueError(
                f"invalid tracking_uri={uri!r}: MLflow's file store cannot hold both loss and loss/kl; give a server, "
                "such as http://localhost:5000, or a database, such as sqlite:///mlflow.db"
            )

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows among `items` in few requests, then the parameters and tables.

        Logging a point again is harmless: MLflow stores equal points once.

        Raises:
            Refused: MLflow will never accept some of them. It has the others.
            ValueError: MLflow will never accept one of several items, so it accepted none of that request.
            Gone: The SQLite database was removed or replaced.
        """
        self._watched.check()
        refused: list[Exception] = []
        for request in [*self._requests(items), *self._states(items)]:
            try:
                request()
            except Exception as error:
                if not _is_final(error):
                    raise
                if len(items) > 1 and getattr(error, "error_code", None) in _OF_THE_ITEM:
                    raise ValueError(str(error)) from error
                refused.append(error)
        if refused:
            raise Refused(f"{len(refused)} request(s), the first: {refused[0]}") from refused[0]

    def shutdown(self) -> None:
        """Set the final status of the run, if the run still exists.

        Raises:
            Gone: The SQLite database was removed or replaced.
        """
        self._watched.check()
        try:
            self._client.set_terminated(self._run_id, _STATUS.get(self._outcome, _FAILED))
        except self._error as error:
            if not _is_final(error):
                raise

    def _states(self, items: Sequence[Item]) -> Iterator[Callable[[], None]]:
        """Yield requests that set the status of the run: ended, or running with another attempt."""
        for item in items:
            if isinstance(item, Ended):
                yield partial(self._show, item.outcome, item.attempt, item.error)
            elif isinstance(item, Row) and item.attempt > self._attempt:
                yield partial(self._show, "finished", item.attempt, "", "RUNNING")

    def _show(self, outcome: Outcome, attempt: int, error: str, status: str = "") -> None:
        if attempt < self._attempt:
            return
        self._attempt, self._outcome = attempt, outcome
        self._client.update_run(self._run_id, status=status or _STATUS.get(outcome, _FAILED))
        if error or self._shows_error:
            self._client.set_tag(self._run_id, _ERROR_TAG, error[:_LONGEST_TAG])
            self._shows_error = bool(error)

    def _requests(self, items: Sequence[Item]) -> Iterator[Callable[[], None]]:
        points = (point for item in items if isinstance(item, Row | Machine) for point in self._points(item))
        while metrics := list(islice(points, _METRICS_AT_ONCE)):
            yield partial(self._client.log_batch, self._run_id, metrics=metrics)
        for item in items:
            if isinstance(item, Params):
                yield partial(self._log_params, {escape(name): str(value) for name, value in item.values.items()})
            elif isinstance(item, Table):
                yield partial(self._log_table, item)

    def _open(self, experiment: str, artifacts: str | None, name: str, tags: dict[str, str]) -> str:
        known = self._client.get_experiment_by_name(experiment)
        if known is None:
            try:
                self._client.create_experiment(experiment, artifact_location=artifacts)
            except self._error:
                known = self._client.get_experiment_by_name(experiment)
                if known is None:  # otherwise another run was quicker
                    raise
            known = known or self._client.get_experiment_by_name(experiment)
        pattern = re.sub(r"['\"`\\]", "_", tags[_RUN_ID_TAG])  # a filter has no way to quote a quote
        runs = self._client.search_runs([known.experiment_id], filter_string=f"tags.`{_RUN_ID_TAG}` LIKE '{pattern}'")
        # `_` and `%` in an id are wildcards of LIKE, which ignores case too: compare the tag itself.
        for run_id in [run.info.run_id for run in runs if run.data.tags[_RUN_ID_TAG] == tags[_RUN_ID_TAG]]:
            self._client.update_run(run_id, status="RUNNING")
            return str(run_id)
        return str(self._client.create_run(known.experiment_id, run_name=name, tags=tags).info.run_id)

    def _points(self, row: Row | Machine) -> Iterator[Any]:
        if not -(1 << 63) <= row.step < 1 << 63:
            raise OverflowError(f"step {row.step} is out of MLflow's range")
        milliseconds = max(0, row.time_unix_nano // 1_000_000)
        for name, value in values_of(row).items():
            yield self._metric(escape(name), float(value), milliseconds, row.step)

    def _log_table(self, table: Table) -> None:
        step = f"tables/{shortened(escape(table.name), _LONGEST_DIRECTORY, in_bytes=True)}/step_{table.step:06d}"
        place = f"{step}{self._places.suffix(step, table)}.json"
        self._client.log_text(self._run_id, _json(table), place)
        self._places.wrote(step, table)
        others = [entry for entry in self._tables if entry["path"] != place]
        self._tables = [*others, {"path": place, "type": "table"}][-_TABLES_LISTED:]
        self._client.set_tag(self._run_id, _TABLES_TAG, json.dumps(self._tables))

    def _log_params(self, values: dict[str, str]) -> None:
        fresh = {name: value[:_LONGEST_PARAM] for name, value in values.items() if name not in self._params}
        params = (self._param(name, value) for name, value in fresh.items())
        while batch := list(islice(params, _PARAMS_AT_ONCE)):
            self._client.log_batch(self._run_id, params=batch)
        for name, value in values.items():
            if name in self._params and self._params[name] != value[:_LONGEST_PARAM]:
                self._client.set_tag(self._run_id, shortened(f"changed.{name}", _LONGEST_NAME), value[:_LONGEST_PARAM])
        self._params.update(fresh)


def _uri(given: str | None) -> str:
    """Return the server or database; empty for one in the run directory."""
    return given or os.environ.get("MLFLOW_TRACKING_URI", "")


_SQLITE = "sqlite:///"
_databases: dict[str, tuple[str, WatchedFile]] = {}


def _database(uri: str) -> tuple[str, WatchedFile]:
    """Return the URI with which MLflow opens the current file, and a watch for its replacement.

    MLflow keeps one connection for each spelling of a URI, also to a file that was removed.
    """
    if not uri.startswith(_SQLITE):
        return uri, WatchedFile(None)
    place, mark, options = uri.partition("?")
    spelling, watched = _databases.get(uri) or (place, WatchedFile(Path(place.removeprefix(_SQLITE))))
    try:
        watched.check()
    except Gone:
        directory, slash, name = spelling.rpartition("/")
        spelling, watched = f"{directory}{slash}./{name}", WatchedFile(Path(place.removeprefix(_SQLITE)))
    _databases[uri] = spelling, watched
    return f"{spelling}{mark}{options}", watched


def _is_final(error: Exception) -> bool:
    """Return whether a retry would fail too. For artifacts, a missing client or file permission is final as well."""
    return isinstance(error, (ImportError, PermissionError)) or getattr(error, "error_code", None) in _OF_THE_ITEM


_NOT_ALLOWED = re.compile(
    r"""[^/\w.\- :]                 # what MLflow takes is slashes, word characters, dots, dashes, spaces, colons
    | ^/ | /(?=/) | /$              # a path must not become another one when it is normalized
    | ^\. | (?<=/)\.(?=\.?(?:/|$))  # nor with . and .. in it
    | \.(?=at|x[0-9a-f])            # a dot that would look like an escape
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\.(?:at|x([0-9a-f]+))\.")
_EMPTY = ".x."


def escape(name: str) -> str:
    """Return the name with escapes for the characters that MLflow does not allow; `unescape` is the inverse.

    `@` is `.at.`, so that `mean@4` reads `mean.at.4`; any other character is its code point, `%` for one is
    `.x25.`; an empty name is `.x.`. Beyond 250 characters a name is cut and ends in a hash of itself, which
    `unescape` cannot undo.
    """
    escaped = _NOT_ALLOWED.sub(lambda match: ".at." if match[0] == "@" else f".x{ord(match[0]):x}.", name)
    return shortened(escaped, _LONGEST_NAME) or _EMPTY


def unescape(escaped: str) -> str:
    """Return the name from which `escape` made this one."""
    if escaped == _EMPTY:
        return ""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "@", escaped)


def _json(table: Table) -> str:
    """Return the table in MLflow's own format; non-finite numbers become their names."""
    rows = [[spelled(cell) for cell in row] for row in table.rows]
    return json.dumps({"columns": table.columns, "data": rows}, allow_nan=False)
