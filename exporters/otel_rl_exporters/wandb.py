"""Rows as the history of a W&B run, online or offline."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from otel_rl.export import Ended, Identities, LogRecord, Machine, Params, Refused, Row, Table, unreserved, values_of
from otel_rl.recorder.convert.strict_json import spelled
from otel_rl.recorder.errors.sinks import log_of, one_line, shortened
from otel_rl.semconv.dialect import Axis, dialect_file
from otel_rl.semconv.frameworks import dialects
from otel_rl_exporters import wandb_apart, wandb_files
from otel_rl_exporters.in_place import WatchedFile
from otel_rl_exporters.wandb_api import ServerRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from otel_rl.export import Item, RunInfo

logger = log_of(__name__)
_WRITTEN_WITHIN_S = 20.0
"""Seconds to wait for W&B's service to complete a file after the end of its run, or of the previous agent."""
_RESERVED = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})
"""Names in W&B's history that W&B replaces, or takes for its own."""
_KILLED = 255
"""The exit code of W&B's own client at Ctrl-C: the run shows as killed, not as failed."""
_EMPTY = "-"  # W&B drops a value without a name
_LONGEST_TABLE_KEY = 50  # W&B's own name of it has at most 128 characters, with the id of the run
_SETTINGS: dict[str, Any] = {
    "console": "off",  # the output of this process is not the trainer's
    "disable_code": True,  # nor is its program
    "x_disable_stats": True,  # nor is its load
    "silent": True,
    "x_transaction_log_flush_interval": 0.25,  # seconds until a row is durable; 15 by default
    "x_file_stream_transmit_interval": 5.0,  # seconds until the server gets a row; 15 by default
    "finish_timeout": 60.0,  # by default W&B waits for its server without a limit; `wandb sync` sends the rest
}


class WandbExporter:
    """Logs each row to a W&B run with the run's id, project and name; a restarted run resumes it.

    It is never the trainer's own W&B run, also in a sweep; `attach` adds to that one. If `WANDB_RUN_ID` is the run's
    id too, the exporter's W&B run is called `ID-otel-rl`.

    Offline, a row is durable, and the cursor moves past it, when W&B's service has written it to its transaction log in
    `wandb/`. Online, it is durable when W&B's server has it: the exporter asks the server for the number of its rows.
    W&B's service stops sending for good after 401, 403, 404 or 409. It is replaced then, and the next one sends what
    the server lacks. The file of a table can be missing after a kill of the agent: send it with `wandb sync`.

    Rows of a resumed run have the value `rl/attempt`, from 1: the highest attempt of a step is the valid one. W&B has a
    rewind, but it needs the server and removes rows, so otel-rl does not use it.

    The files are in `wandb/` of the run directory. The step is a value, and all other values are drawn over it: W&B
    drops rows that are logged with a `step=` behind its current step, and rows may be late. A value or table that has
    the name of the axis, or one that W&B uses itself (`_step`, `_runtime`, `_timestamp`, `_wandb`), gets a `_`.

    A table is a `wandb.Table` in another history row. Characters of its name that W&B does not allow are replaced.
    Parameters that are NaN or infinite are texts in the config, which has `null` for `None`.

    With `output.send`, printed lines are in W&B's Logs, each with its time, process, step and phase. Online, W&B's
    server may lack those of the last seconds before a kill of the agent.

    Args:
        run: The run.
        project: The W&B project; by default the run's.
        name: The name in W&B; by default the run's.
        entity: The user or team; by default W&B's choice.
        mode: `"online"`, `"offline"`, …; by default `WANDB_MODE`.
        group: The group of the run in W&B.
        tags: Labels of the run.
        notes: A description of the run.
        axis: The name of the value with the step.
        over: What W&B draws other values over instead of the step, if the framework logs it in the same row: "rollout",
            "optimizer", "tokens" or "time".
        table_rows: The largest number of rows of a table to log; 0 logs no tables. By default all rows.
        settings: Further `wandb.Settings`. They override those of otel-rl.
    """

    batch_size = 1
    shows_end = True
    requires = ("wandb",)
    extra = "wandb"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        name: str | None = None,
        entity: str | None = None,
        mode: Literal["online", "offline", "disabled", "shared"] | None = None,
        group: str | None = None,
        tags: list[str] | None = None,
        notes: str | None = None,
        axis: str = "step",
        over: Axis | None = None,
        table_rows: int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        # W&B reports on itself through OTel's exporters, which add the tokens in OTEL_EXPORTER_OTLP_HEADERS.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        is_beside_own = wandb_apart.forget_own_run()
        if "wandb" not in sys.modules:
            # The tables of an offline run wait here for `wandb sync`; by default in the home directory.
            os.environ.setdefault("WANDB_DATA_DIR", os.path.join(run.directory, "wandb"))  # noqa: PTH118 - as given
        import wandb

        # `Settings` raises for a name that this version of W&B does not have, and those with `x_` come and go.
        known = {name: value for name, value in _SETTINGS.items() if name in wandb.Settings.model_fields}
        self._axis, self._reserved, self._renamed = axis, _RESERVED | {axis}, set[str]()
        if over is not None and over not in get_args(Axis):
            raise ValueError(f"invalid over={over!r}: must be one of {', '.join(get_args(Axis))}")
        self._over = {axes[over] for name in dialects() if over in (axes := dialect_file(name).axes)} if over else set()
        self._table_rows = table_rows
        self._given = 0
        # W&B itself reads the variable once in a process, maybe before it was set.
        asked: Any = mode or os.environ.get("WANDB_MODE")
        id_ = wandb_apart.run_id(run.id)
        # The service of a killed agent goes on writing: a log that is read too early lacks rows, which are then logged
        # again.
        earlier = wandb_files.earlier(Path(run.directory), id_)
        if not wandb_files.wait_for_writers(earlier, _WRITTEN_WITHIN_S):
            logger.warning("wandb: another process still writes one of %s; its rows may be repeated", earlier)
        try:
            self._run = wandb.init(
                id=id_,
                project=project or run.project,
                name=name or run.name,
                entity=entity,
                mode=asked,
                group=group,
                tags=tags,
                notes=notes,
                config=wandb_files.config(earlier),  # W&B's service does not send it again after 401
                dir=run.directory,
                resume="allow",
                reinit="create_new",  # if the process has its own W&B run, it stays `wandb.run`
                settings=wandb.Settings(**{**known, **(settings or {})}),
            )
        except BaseException:
            _end_service()
            raise
        if is_beside_own:
            logger.warning("wandb: rows are in run %s of project %s, not in the trainer's own", id_, self._run.project)
        try:
            self._begin(earlier)
        except BaseException:
            self._run.finish()  # else W&B refuses the id of the run to the next exporter of this process
            raise

    def _begin(self, earlier: Sequence[Path]) -> None:
        """Define the axis, and find out what W&B has of the run."""
        self._run.define_metric(self._axis)
        # Every row has its axis; W&B is not to add the last step to measurements, which have another one.
        self._run.define_metric("*", step_metric=self._axis, step_sync=False)
        self._write_lines = getattr(self._run, "write_logs", None)  # older versions have none
        self._measured: set[str] = set()
        self._drawn: set[str] = set()
        self._exit_code = self._attempt = 0
        log = Path(self._run.settings.sync_file)
        self._written = wandb_files.WrittenItems(log) if log.exists() else None  # without one, W&B is switched off
        is_online = self._written is not None and self._run.settings.mode == "online"
        self._server = ServerRows(self._run) if is_online else None
        # Online, W&B's server has the rows; a second delivery would repeat them.
        self._watched = WatchedFile(log if self._written is not None and self._run.offline else None)
        first = self._run.starting_step if is_online else None
        self._held = Identities(wandb_files.held(earlier, self._axis, first))

    def durable(self) -> int:
        """Return the number of items that W&B's server has; offline, those in the log of W&B's service.

        Raises:
            Gone: The log of an offline run was removed or replaced.
            NotNow: W&B's server does not answer, or refuses to.
            ConnectionError: W&B's service has stopped sending.
        """
        self._watched.check()
        if self._written is None:
            return self._given
        return self._written.items(None if self._server is None else self._server.rows())

    def holds(self, item: Item) -> bool:
        """Return whether W&B's server, or offline a transaction log, had the item when the exporter was built."""
        if isinstance(item, Table):
            return wandb_files.key(item, self._table_key(item)) in self._held
        if isinstance(item, LogRecord):
            return wandb_files.line_key(wandb_files.line(item)) in self._held
        return isinstance(item, Row | Machine) and wandb_files.key(item) in self._held

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows and tables among `items`, and update the config.

        Raises:
            Refused: W&B does not accept the table.
        """
        from wandb.errors import CommError, Error

        for item in items:
            try:
                records = self._export(item)
            except Error as error:  # an error that is not about the server is about the item
                raise error if isinstance(error, CommError) else ValueError(str(error)) from error
            self._given += 1
            if self._written is not None:
                self._written.add(*records)
            if self._server is not None:
                self._server.sent += records[0]

    def shutdown(self) -> None:
        """Finish the W&B run: wait until its server has everything and shows the end, within `finish_timeout`.

        Raises:
            TimeoutError: W&B's server, or offline the local file, does not have everything.
            Gone: The file of an offline run was removed or replaced.
        """
        try:
            self._run.finish(exit_code=self._exit_code)
            if self._server is not None:
                self._server.wait_for_end(self._run.config.keys(), _WRITTEN_WITHIN_S)
            deadline = time.monotonic() + _WRITTEN_WITHIN_S
            while (safe := self.durable()) < self._given:  # it may still be writing the end of the file
                if time.monotonic() > deadline:
                    raise TimeoutError(f"W&B has {safe} of {self._given} items")
                time.sleep(0.01)
        except BaseException:
            _end_service()
            raise
        if self._written is not None:
            self._written.close()

    def _export(self, item: Item) -> tuple[int, int]:
        """Log the item; return the numbers of rows, and of configs and lines, that W&B's log gets."""
        if isinstance(item, Row):
            if item.attempt > self._attempt:
                self._attempt, self._exit_code = item.attempt, 0
            is_axis = item.values.get(self._axis) == item.step  # the framework's own name of it
            values = values_of(item, _RESERVED if is_axis else self._reserved)
            for name in item.values.keys() - values.keys() - self._renamed:
                logger.warning("wandb: %s is a name of W&B or of the axis; the value is called %s_", name, name)
                self._renamed.add(name)
            self._draw_over(values.keys())
            self._log(item, values, self._axis)
        elif isinstance(item, Machine):
            for name in {name or _EMPTY for name in item.values} - self._measured:  # a pattern may not override "*"
                self._run.define_metric(name, step_metric=item.axis, step_sync=False)
                self._measured.add(name)
            self._log(item, item.values, item.axis)
        elif isinstance(item, Table) and self._table_rows != 0:
            try:
                self._log(item, {self._table_key(item): self._table(item)}, self._axis)
            except (TypeError, ValueError) as error:
                raise Refused(f"table {item.name!r}: {error}") from error
        elif isinstance(item, Params):
            config = {unreserved(name, _RESERVED): spelled(value) for name, value in item.values.items()}
            # Without the flag, W&B raises when a resumed run has another value (tests/exporters/test_wandb.py).
            self._run.config.update(config, allow_val_change=True)
            return 0, 1
        elif isinstance(item, LogRecord):
            if self._write_lines is None:
                return 0, 0
            self._write_lines(wandb_files.line(item))
            return 0, 1
        else:
            if isinstance(item, Ended) and item.attempt >= self._attempt:
                code = _KILLED if item.outcome == "cancelled" else min(max(item.exit_code, 0), _KILLED - 1)
                self._attempt, self._exit_code = item.attempt, code
            return 0, 0
        return 1, 0

    def _log(self, item: Row | Machine | Table, values: Mapping[str, Any], axis: str) -> None:
        # W&B keeps a `_timestamp` that it is given, so rows that are replayed keep their time.
        named = {name or _EMPTY: value for name, value in values.items()}
        self._run.log({**named, axis: item.step, "_timestamp": item.time_unix_nano / 1e9})

    def _draw_over(self, names: AbstractSet[str]) -> None:
        """Define the second axis of each new name, if the row has a value of it."""
        if over := next(iter(names & self._over), None):
            for name in names - self._drawn - {over}:
                self._run.define_metric(name or _EMPTY, step_metric=over, step_sync=False)
            self._drawn |= names

    def _table_key(self, table: Table) -> str:
        return unreserved(_table_key(table.name), self._reserved)

    def _table(self, table: Table) -> Any:
        import wandb

        columns, rows = list(table.columns), [list(row) for row in table.rows[: self._table_rows]]
        try:
            return wandb.Table(columns=columns, data=rows)
        except TypeError:  # a column of numbers and texts
            return wandb.Table(columns=columns, data=rows, allow_mixed_types=True)


def _end_service() -> None:
    """End W&B's service, which has the run and does not get on: it refuses the id of the run to the next exporter."""
    import wandb

    if wandb.run is None:  # otherwise the process has a W&B run of its own, which would end too
        wandb.teardown()


def _table_key(name: str) -> str:
    """Return a key that W&B accepts for a table, a relative path; different names stay different."""
    parts = re.sub(r'[\\:*?"<>|#%]', "-", one_line(name)).split("/")
    allowed = "/".join("-" if part in ("", ".", "..") else part for part in parts)
    return shortened(allowed, _LONGEST_TABLE_KEY, of=name)
