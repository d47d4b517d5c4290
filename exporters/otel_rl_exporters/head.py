"""Sends records and measurements to the head agent, as OTLP log events."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rl.export import Machine, NotNow, Recorded, Refused
from otel_rl.recorder.journal.record_events import INDEX, JOURNAL, MACHINE, Lost, from_machine, to_event
from otel_rl.recorder.journal.records import AnyRecord
from otel_rl.recorder.otlp.connection import Connection, check_files
from otel_rl.recorder.settings import head, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.export import Item, RunInfo
    from otel_rl_exporters.otlp_sender import Sender

_SCOPE = InstrumentationScope("otel_rl")
_UNAUTHENTICATED = "401"
_decoder: msgspec.msgpack.Decoder[AnyRecord | Lost] = msgspec.msgpack.Decoder(AnyRecord | Lost)


class HeadExporter:
    """Sends the records of this machine's ranks to the head agent.

    Args:
        run: The run.
        address: `host:port` of the head, or of a Collector that forwards to it; `https://` before it for TLS.
    """

    batch_size = 64

    def __init__(self, run: RunInfo, *, address: str) -> None:
        self._resource = Resource.create({**run.resource, "host.name": socket.gethostname()})
        self._place = head.parse(address)
        self._tokens = tokens.find()
        self._token = self._tokens.first
        self._sender = self._connected()

    def _connected(self) -> Sender:
        where = Connection(
            signal="LOGS",
            endpoint=f"{self._place.url}/v1/logs",
            secure=self._place.secure,
            headers={"authorization": f"Bearer {self._token}"} if self._token else {},
            compression="gzip",
            certificate=os.environ.get(head.AUTHORITY_VARIABLE, ""),
            proxies=False,  # within a cluster there is none
        )
        from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

        from otel_rl_exporters.otlp_sender import Sender  # which the agent alone loads
        from otel_rl_exporters.otlp_transport import transport

        return Sender(transport(where), encode_logs)

    @staticmethod
    def check(*, address: str) -> None:
        """Raise if the address cannot be parsed, or the authorities' file cannot be used."""
        head.parse(address)
        check_files(head.AUTHORITY_VARIABLE, os.environ.get(head.AUTHORITY_VARIABLE, ""))

    def export(self, items: Sequence[Item]) -> None:
        """Send the records and the measurements among `items`.

        Raises:
            Refused: The head did not take some of them.
            NotNow: It cannot take them yet.
        """
        if self._tokens.first != self._token:  # the file has changed
            self._token = self._tokens.first
            self._sender.close()
            self._sender = self._connected()
        readable = [
            (n, ReadableLogRecord(event, self._resource, _SCOPE))
            for n, item in enumerate(items)
            for event in events(item)
        ]
        try:
            self._sender.send(readable, len(items))
        except Refused as error:
            if error.error_type != _UNAUTHENTICATED:
                raise
            raise NotNow(str(error), error_type=error.error_type) from error  # the token may be rotated soon

    def shutdown(self) -> None:
        """Close the connection."""
        self._sender.close()


def events(item: Item) -> Iterator[LogRecord]:
    """Yield the log records of an item."""
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
