"""Records and measurements for the agent that makes the rows of all machines, as OTLP log events."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import requests
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rl import head
from otel_rl.export import Machine, Recorded
from otel_rl.record_events import INDEX, JOURNAL, MACHINE, Lost, from_machine, to_event
from otel_rl.records import AnyRecord

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
        address: `host:port` of the head, or of a Collector that passes on to it; `https://` before it for TLS.
    """

    batch_size = 64

    def __init__(self, run: RunInfo, *, address: str) -> None:
        self._resource = Resource.create({**run.resource, "host.name": socket.gethostname()})
        token = os.environ.get(head.TOKEN_VARIABLE, "")
        session = requests.Session()
        session.trust_env = False  # no proxy within a cluster; and REQUESTS_CA_BUNDLE would win over what is said here
        self._exporter: Any = OTLPLogExporter(
            f"{head.parse(address).url}/v1/logs",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
            certificate_file=os.environ.get(head.AUTHORITY_VARIABLE),
            compression=Compression.Gzip,
            session=session,
        )

    def export(self, items: Sequence[Item]) -> None:
        """Send the records and the measurements among `items`.

        Raises:
            ConnectionError: The head did not take them.
        """
        readable = [ReadableLogRecord(event, self._resource, _SCOPE) for item in items for event in events(item)]
        if readable and self._exporter.export(readable) is not LogRecordExportResult.SUCCESS:
            raise ConnectionError("the head did not take the records")

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


def events(item: Item) -> Iterator[LogRecord]:
    """Yield what travels of an item."""
    if isinstance(item, Machine):
        body, attributes = from_machine(item)
        yield LogRecord(timestamp=item.time_unix_nano, event_name=MACHINE, body=body, attributes=attributes)
    if not isinstance(item, Recorded):
        return
    for n, raw in enumerate(item.records):
        record = _decoder.decode(raw)
        name, body = to_event(record)
        where: dict[str, Any] = {JOURNAL: item.journal, INDEX: item.first + n}
        yield LogRecord(timestamp=getattr(record, "time", 0), event_name=name, body=body, attributes=where)
