"""Takes in what other machines send to the head.

Records of the agents there go into journals beside those of this machine. Measurements, and the spans of inference
servers, go into the outbox with what the agent makes; who sent them is answered when they are there.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl import semconv
from otel_rl.agent.state import of_machine
from otel_rl.bridge import decode
from otel_rl.bridge.answers import Refusals
from otel_rl.bridge.http import HttpServer
from otel_rl.bridge.receive import data_points, response
from otel_rl.head import CERTIFICATE_VARIABLE, KEY_VARIABLE, Head, parse
from otel_rl.journal import Reader, Writer, released
from otel_rl.record_events import INDEX, JOURNAL, MACHINE, PREFIX, from_event, to_machine

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    from otel_rl.export import Item, Machine
    from otel_rl.records import Record

logger = logging.getLogger(__name__)
_PATIENCE_S = 60.0
_MOST_WAITING = 50_000
_SAFE_WITHIN_S = 10.0
_MOST_RECORDS = 1 << 53
_LONGEST_NAME = 200  # bytes; file systems have room for 255


class RemoteJournal:
    """The journal of one process of another machine; a record that is there already is not written again.

    Between the machines there may be a Collector that overtakes itself: a record that comes too early is refused, so
    that it comes again. One that has not come for a minute was lost there, and is counted.

    Args:
        path: Where it is.
        limit_bytes: Bytes that are kept of it.

    Attributes:
        lost: How many records never came.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        path.mkdir(exist_ok=True)
        reader = Reader(path, msgspec.Raw)
        self._count = released(path).records
        self._is_new = True
        while found := reader.read(final=True):
            self._count += len(found)
        reader.close()
        self._writer = Writer(path, limit_bytes=limit_bytes)
        self._early: dict[int, float] = {}
        self._since = 0.0
        self.lost = 0

    def take(self, index: int, record: Record, now: float) -> None:
        """Write the record that is the next one.

        The first one after a start may be far ahead: the sender goes on only from what was taken, so those in between
        were here and have been removed by retention.

        Args:
            index: How many records were before it.
            record: The record.
            now: Seconds on a steady clock.

        Raises:
            OSError: It cannot be written, or one before it has not come yet.
        """
        if index > self._count and not self._is_new:
            self._wait_for_those_before(index, now)
        if index >= self._count:
            self._writer.append(record)
            self._count = index + 1
            self._early.pop(index, None)
            self._since = 0.0
        self._is_new = False

    def _wait_for_those_before(self, index: int, now: float) -> None:
        self._since = self._since or now
        self._early[index] = now
        self._early = {early: at for early, at in self._early.items() if now - at <= _PATIENCE_S}
        if now - self._since <= _PATIENCE_S or index > min(self._early):
            raise OSError(f"record {self._count} has not come yet, but {index}")
        logger.warning("%d records before %d never came", index - self._count, index)
        self.lost += index - self._count


class _Waiting(NamedTuple):
    items: list[Item]
    is_safe: threading.Event


class Receiver:
    """Listens for records of one run, and for the spans of other systems, such as inference servers.

    Args:
        address: `host:port`, or `https://host:port`.
        run_id: The run; records of others are refused.
        journals: The directory of the journals of this machine.
        limit_bytes: Bytes that are kept of each.
        token: What senders must bring; empty for none.

    Attributes:
        heard_at: When the last request came, on the steady clock.

    Raises:
        OSError: The address cannot be listened on.
        ValueError: It is to be encrypted, and there is no certificate.
    """

    def __init__(self, address: str, run_id: str, journals: Path, limit_bytes: int, token: str) -> None:
        head = parse(address)
        self._run_id = run_id
        self._path = journals
        self._limit_bytes = limit_bytes
        self._journals: dict[str, RemoteJournal] = {}
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        self._measured_at: dict[str, int] = {}
        self._waiting: list[_Waiting] = []
        self._taken: list[_Waiting] = []
        self._is_closed = False
        self.heard_at = 0.0
        self.refusals = Refusals()
        try:
            self._server = HttpServer((head.host, head.port), self, token, _tls(head))
        except OSError as error:
            raise OSError(
                f"head={address!r}: cannot be listened on ({error.strerror or error}); "
                "give the address of the machine of rank 0 and a free port"
            ) from error

    def take_request(self, signal: str, request: Any) -> Any:
        """Take records or spans in, and return the answer to it, when they are safe.

        Raises:
            OSError: They cannot be taken now; the sender is to send them again.
        """
        self.heard_at = time.monotonic()
        if signal == "traces":
            spans, rejected = decode.spans(request)
            if spans:
                self._wait_for([*spans])
            return response(signal, rejected.count, rejected.reason, self.refusals)
        if signal == "logs":
            rejected = self._take(request)
            return response(signal, rejected.count, rejected.reason, self.refusals)
        reason = "metrics of other programs belong to no step of the run"
        return response(signal, data_points(request), reason, self.refusals)

    def take_grown(self) -> set[str]:
        """Return the journals that got records since the last call."""
        with self._lock:
            grown, self._grown = self._grown, set()
        return grown

    def take_items(self) -> list[Item]:
        """Return the spans and measurements that came; who sent them waits until `saved` is called."""
        with self._lock:
            self._taken += self._waiting
            items = [item for waiting in self._waiting for item in waiting.items]
            self._waiting = []
        return items

    def saved(self) -> None:
        """Take note that all that was taken is safe."""
        for waiting in self._taken:
            waiting.is_safe.set()
        self._taken = []

    @property
    def lost(self) -> int:
        """How many records were sent and never came."""
        return sum(journal.lost for journal in self._journals.copy().values())

    def close(self) -> None:
        """Listen no longer."""
        self._is_closed = True
        with self._lock:
            for waiting in self._waiting:
                waiting.is_safe.set()  # none of them is: whoever waits looks at `_is_closed`
        self._server.close()

    def _wait_for(self, items: list[Item]) -> None:
        waiting = _Waiting(items, threading.Event())
        with self._lock:
            if sum(len(one.items) for one in self._waiting) > _MOST_WAITING:
                raise OSError("too many spans are waiting")
            self._waiting.append(waiting)
        if not waiting.is_safe.wait(_SAFE_WITHIN_S):
            raise OSError("the spans could not be written")
        if self._is_closed and waiting in self._waiting:
            raise OSError("the run has ended")

    def _take(self, request: ExportLogsServiceRequest) -> decode.Rejected:
        rejected, number = decode.Rejected("log records"), -1
        measured: list[Item] = []
        for of_resource in request.resource_logs:
            resource = decode.attributes(of_resource.resource.attributes)
            for event in (event for scope in of_resource.scope_logs for event in scope.log_records):
                number += 1
                told = decode.attributes(event.attributes)
                try:
                    self._check(event.event_name, resource.get(semconv.RUN_ID))
                    if event.event_name == MACHINE:
                        machine = to_machine(event.time_unix_nano, decode.plain(event.body), told)
                        measured += self._fresh(str(resource.get("host.name", "")), machine)
                        continue
                    record = from_event(event.event_name, decode.plain(event.body))
                    journal = of_machine(str(told[JOURNAL]), str(resource.get("host.name", "")))
                    index = _index(told[INDEX])
                    _check_name(journal)
                except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
                    missing = isinstance(error, KeyError)
                    rejected.add(number, f"attribute {error} is missing" if missing else str(error))
                    continue
                with self._lock:
                    self._of(journal).take(index, record, time.monotonic())
                    self._grown.add(journal)
        if measured:
            self._wait_for(measured)
        return rejected

    def _check(self, name: str, run_id: object) -> None:
        if not name.startswith((PREFIX, MACHINE)):
            raise ValueError(f"logs of other programs are not accepted by the head of run {self._run_id!r}")
        if run_id != self._run_id:
            raise ValueError(f"these are records of run {run_id!r}, but this is the head of run {self._run_id!r}")

    def _fresh(self, host: str, machine: Machine) -> list[Machine]:
        """Return a measurement, if it did not come before: what was not answered in time is sent again."""
        with self._lock:
            if machine.time_unix_nano <= self._measured_at.get(host, 0):
                return []
            self._measured_at[host] = machine.time_unix_nano
        return [machine]

    def _of(self, name: str) -> RemoteJournal:
        if name not in self._journals:
            self._journals[name] = RemoteJournal(self._path / name, self._limit_bytes)
        return self._journals[name]


def _check_name(name: str) -> None:
    if name.startswith(".") or "/" in name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"invalid name {name[:_LONGEST_NAME]!r} of a journal")


def _index(told: Any) -> int:
    index = int(told)
    if not 0 <= index < _MOST_RECORDS:
        raise ValueError(f"invalid {INDEX}={index}: must be at least 0 and below {_MOST_RECORDS}")
    return index


def _tls(head: Head) -> ssl.SSLContext | None:
    if not head.secure:
        return None
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    if not certificate:
        raise ValueError(f"{head.url}: set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} to PEM files where the head is")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, os.environ.get(KEY_VARIABLE) or None)
    return context
