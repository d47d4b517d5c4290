"""Records for the agent that makes the rows of all machines, as OTLP log events."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rl.export import Recorded
from otel_rl.record_events import INDEX, JOURNAL, Lost, to_event
from otel_rl.records import AnyRecord
from otel_rl.settings import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.export import Item, RunInfo

_SCOPE = InstrumentationScope("otel_rl")
_TIMEOUT_S = 10
_decoder: msgspec.msgpack.Decoder[AnyRecord | Lost] = msgspec.msgpack.Decoder(AnyRecord | Lost)


class HeadExporter:
    """Sends what the ranks of this machine record.

    Args:
        run: The run.
        address: `host:port` of the head.
    """

    batch_size = 64

    def __init__(self, run: RunInfo, *, address: str) -> None:
        self._resource = Resource.create({**run.resource, "host.name": socket.gethostname()})
        token = os.environ.get(TOKEN_VARIABLE, "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._exporter: Any = OTLPLogExporter(f"http://{address}/v1/logs", headers=headers, timeout=_TIMEOUT_S)

    def export(self, items: Sequence[Item]) -> None:
        """Send the records among `items`.

        Raises:
            ConnectionError: The head did not take them.
        """
        events = [event for item in items if isinstance(item, Recorded) for event in _events(item)]
        readable = [ReadableLogRecord(event, self._resource, _SCOPE) for event in events]
        if readable and self._exporter.export(readable) is not LogRecordExportResult.SUCCESS:
            raise ConnectionError("the head did not take the records")

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


def _events(item: Recorded) -> Iterator[LogRecord]:
    for n, raw in enumerate(item.records):
        record = _decoder.decode(raw)
        name, body = to_event(record)
        where: dict[str, Any] = {JOURNAL: item.journal, INDEX: item.first + n}
        yield LogRecord(timestamp=getattr(record, "time", 0), event_name=name, body=body, attributes=where)
