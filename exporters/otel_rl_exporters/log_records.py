"""The exporters as OpenTelemetry log exporters, for an OTel pipeline without the agent.

`OTEL_LOGS_EXPORTER=otel_rl_wandb` is enough: the event `rl.step.metrics` carries a whole row, `rl.table` a
table and `rl.run.config` the parameters. All other records are ignored.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of
from otel_rl.export import Ended, Gone, Params, Refused, Row, Table
from otel_rl.journal.modes import make_directory
from otel_rl.otlp.step_events import item_of, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk._logs import ReadableLogRecord

    from otel_rl.export import Exporter, RunInfo


_Item = Row | Params | Table | Ended
_logger = log_of(__name__)


class RowLogRecordExporter(LogRecordExporter):
    """Delivers the rows in log records to exporters: one for each run, built at the run's first row.

    The resource attributes `rl.run.id`, `rl.run.project` and `rl.run.name` (or `service.name`) identify the run. Its
    directory is below `OTEL_RL_DIR` (`runs`), named by the project and the id.
    """

    exporter_class: ClassVar[str]
    """The class of the exporter, as `module:name`."""

    def __init__(self) -> None:
        self._exporters: dict[str, Exporter] = {}
        self._warnings = Occasional(_logger)
        self._malformed = 0
        self._lock = threading.Lock()  # a SimpleLogRecordProcessor calls from every thread that logs

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Deliver the rows, the tables and the parameters in `batch`, in its order."""
        try:
            with self._lock:
                malformed = self._malformed
                taken = [self._deliver(run, items) for run, items in self._by_run(batch)]
                taken.append(malformed == self._malformed)
        except Exception:
            _logger.exception("%s did not take a batch of log records", self.exporter_class)
            return LogRecordExportResult.FAILURE
        return LogRecordExportResult.SUCCESS if all(taken) else LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Do nothing: `export` delivers before it returns."""
        return True

    def shutdown(self) -> None:
        """Shut every exporter down."""
        with self._lock:
            exporters = list(self._exporters.values())
            self._exporters.clear()
            for exporter in exporters:
                try:
                    exporter.shutdown()
                except Exception:
                    _logger.exception("%s did not shut down", self.exporter_class)

    def _deliver(self, run: RunInfo, items: list[_Item]) -> bool:
        """Deliver the items of a run; return whether all of them were accepted."""
        exporter = self._exporter(run)
        size = getattr(exporter, "batch_size", 1)
        complete, is_restarted = True, False
        while items:
            try:
                exporter.export(items[:size])
                done = size
            except Refused as error:
                complete = False
                done = size if error.done is None else max(1, error.done)
                self._warnings.warn(f"{self.exporter_class} refused items of run {run.id}: {error}")
            except Gone as error:
                if is_restarted:
                    raise
                self._warnings.warn(f"{error}; its contents are lost, and {self.exporter_class} starts again")
                with contextlib.suppress(Exception):
                    self._exporters.pop(run.directory).shutdown()
                exporter, is_restarted = self._exporter(run), True
                continue
            items = items[done:]
        return complete

    def _exporter(self, run: RunInfo) -> Exporter:
        """Return the exporter of a run."""
        if run.directory not in self._exporters:
            make_directory(Path(run.directory))
            factory = resolve_name(self.exporter_class)
            try:
                self._exporters[run.directory] = factory(run)
            except ImportError as error:
                raise ImportError(f"{error}; pip install 'otel-rl[{getattr(factory, 'extra', '')}]'") from error
        return self._exporters[run.directory]

    def _by_run(self, batch: Sequence[ReadableLogRecord]) -> list[tuple[RunInfo, list[_Item]]]:
        runs: dict[str, tuple[RunInfo, list[_Item]]] = {}
        for record in batch:
            log = record.log_record
            time = log.timestamp or log.observed_timestamp or 0
            try:
                item = item_of(log.event_name or "", time, log.attributes or {}, log.body)
            except (KeyError, TypeError, ValueError) as error:
                self._malformed += 1
                self._warnings.warn(f"{self.exporter_class}: a malformed {log.event_name}: {error}")
                continue
            if item:
                run = run_of(record.resource.attributes)
                runs.setdefault(run.directory, (run, []))[1].append(item)
        return list(runs.values())


def _into(place: str) -> type[RowLogRecordExporter]:
    """Return the log exporter that delivers to the exporter at `module:class` of this package."""
    name = place.rpartition(":")[2].replace("Exporter", "LogRecords")
    return type(name, (RowLogRecordExporter,), {"exporter_class": f"{__package__}.{place}"})


ConsoleLogRecords = _into("console:ConsoleExporter")
JsonlLogRecords = _into("jsonl:JsonlExporter")
SidecarLogRecords = _into("sidecar:SidecarExporter")
StdoutLogRecords = _into("stdout:StdoutExporter")
TensorBoardLogRecords = _into("tensorboard:TensorBoardExporter")
WandbLogRecords = _into("wandb:WandbExporter")
