"""Receives the records and measurements of other machines, and the spans of inference servers.

Records of other agents go into journals next to those of this machine. Measurements and spans go into the outbox with
the agent's own items; their senders are answered when they are saved.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_rl import semconv
from otel_rl.agent.input.accepted import AcceptedItems
from otel_rl.agent.input.remote import EARLY, RemoteJournal
from otel_rl.agent.steps.state import of_machine, stand_in
from otel_rl.errors import SettingsError
from otel_rl.errors.sinks import at, log_of, one_line
from otel_rl.errors.texts import shown
from otel_rl.export import Span
from otel_rl.journal.record_events import INDEX, JOURNAL, MACHINE, PREFIX, from_event, to_machine
from otel_rl.otlp.answers import TOO_MUCH, Refusal, Refusals, data_points, response
from otel_rl.otlp.bridge import decode, disk
from otel_rl.otlp.bridge.http import HttpServer
from otel_rl.otlp.bridge.others import Others
from otel_rl.setup.head import CERTIFICATE_VARIABLE, KEY_VARIABLE, Head, parse
from otel_rl.setup.listeners import check_head, server_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

    from otel_rl.export import Item, Machine
    from otel_rl.setup.tokens import Tokens

logger = log_of(__name__)
_SCOPE = "otel_rl"
_ADVICE = (
    "send them to a collector, or set OTEL_EXPORTER_OTLP_ENDPOINT where the run starts, so that they are passed on"
)
_HINT = "the OTLP endpoint of the agent is its own head: set OTEL_EXPORTER_OTLP_ENDPOINT to a collector"
_QUIET_S = 3.0
"""Grace period in seconds after the last record of another machine: its last measurements can arrive later."""
_LONGEST_S = 15.0
"""Maximum time in seconds to wait for other machines after the end of all processes."""
_MOST_RECORDS = 1 << 53
_MOST_JOURNALS = 1 << 14
"""The largest number of journals of other machines, one for each process and attempt: 4,096 ranks start four times."""
_OPEN_AT_ONCE = 64
_LONGEST_NAME = 200  # bytes; file systems have room for 255


class Receiver:
    """Listens for records of one run, and for the spans of other systems, such as inference servers.

    Args:
        address: `host:port`, or `https://host:port`.
        run_id: Identity of the run; records of other runs are refused.
        journals: The directory of the journals of this machine.
        outbox: The directory of the outbox.
        limit_bytes: Maximum size in bytes of each.
        tokens: The bearer tokens, of which senders must send one.
        ways: Functions that pass on metrics and logs of other programs, by signal.
        insecure: If true, other machines may send without TLS.

    Attributes:
        heard: When each machine of this run sent something last, in Unix nanoseconds.

    Raises:
        OSError: The address cannot be listened on.
        SettingsError: The address is `https://`, and there is no certificate; or it is open to other machines.
    """

    def __init__(
        self,
        address: str,
        run_id: str,
        journals: Path,
        outbox: Path,
        limit_bytes: int,
        tokens: Tokens,
        ways: Mapping[str, Callable[[Any], None]] | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        head = parse(address)
        tls = _tls(head)
        check_head(address, has_token=bool(tokens), insecure=insecure)
        self._run_id, self._path, self._limit_bytes = run_id, journals, limit_bytes
        self._journals: OrderedDict[str, RemoteJournal] = OrderedDict()  # in the order of their last use
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        self._incomplete: set[str] = set()
        self._measured_at: dict[str, int] = {}
        self._disk, self._outbox = disk.of_disk(journals), disk.of_outbox(outbox, limit_bytes)
        self.accepted = AcceptedItems()
        self.heard: dict[str, int] = {}
        self._heard_at = 0.0
        self._over_since = 0.0
        self.refusals = Refusals()
        for path in journals.glob(f"*/{EARLY}"):
            self._of(path.parent.name)
            self._incomplete.add(path.parent.name)
        self._others = Others(ways or {}, self.refusals, _ADVICE)
        try:
            self._server = HttpServer((head.host, head.port), self, tokens, tls)
        except OSError as error:
            raise OSError(
                f"head={address!r}: cannot be listened on ({error.strerror or error}); "
                "give an address of one machine of the run and a free port"
            ) from error

    def handle(self, signal: str, request: Any, peer: str = "") -> Any:
        """Accept records, spans, and telemetry of other programs; return the response when they are saved.

        Raises:
            OSError: They cannot be accepted now; the sender must send them again.
            Refusal: The telemetry of another program cannot be passed on.
        """
        if signal == "metrics":
            return self._take_metrics(request)
        if signal == "logs":
            return self._take_logs(request, peer)
        found = decode.traces(request)
        spans = [item for _, items in found.runs.values() for item in items if isinstance(item, Span)]
        foreign: list[Item] = [span for span in spans if not self._is_own(span.scope[0], span.resource)]
        if len(foreign) < len(spans):
            self.refusals.note("telemetry of the agent itself", _HINT, len(spans) - len(foreign))
        if foreign:
            self._accept(foreign, peer)
        return response(signal, found.rejected.count, found.rejected.reason, self.refusals)

    def tend(self, *, is_over: bool, now: float) -> None:
        """Record whether all processes of the run have ended; some time later, nothing more is accepted.

        `now` is in seconds on a monotonic clock.
        """
        self._settle(now)
        self._over_since = (self._over_since or now) if is_over else 0.0
        self.accepted.is_open = not (is_over and self.is_quiet(now))

    def _settle(self, now: float) -> None:
        with self._lock:
            for name in list(self._incomplete):
                if self._journals[name].settle(now):
                    self._grown.add(name)
                if self._journals[name].is_complete:
                    self._incomplete.discard(name)

    def is_quiet(self, now: float) -> bool:
        """Return whether the machines of this run have stopped sending; inference servers do not count."""
        return now - self._heard_at >= _QUIET_S or bool(self._over_since and now - self._over_since >= _LONGEST_S)

    def pop_grown(self) -> set[str]:
        """Return the journals that got records since the last call."""
        with self._lock:
            grown, self._grown = self._grown, set()
        return grown

    @property
    def lost(self) -> int:
        """Number of records that were sent and never arrived."""
        return sum(journal.lost for journal in self._journals.copy().values())

    def close(self) -> None:
        """Listen no longer."""
        self.accepted.close()
        self._server.close()

    def _is_own(self, scope: str, resource: Mapping[str, object]) -> bool:
        """Return whether telemetry is the agent's own: it arrives here if the agent's OTLP endpoint is its own head."""
        return scope == _SCOPE and resource.get(semconv.RUN_ID) == self._run_id

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> Any:
        resources = [decode.attributes(one.resource.attributes) for one in request.resource_metrics]
        scopes = {scope.scope.name for one in request.resource_metrics for scope in one.scope_metrics}
        if scopes == {_SCOPE} and all(self._is_own(_SCOPE, resource) for resource in resources):
            self.refusals.note("telemetry of the agent itself", _HINT, data_points(request))
            return response("metrics", 0, "", self.refusals)
        return self._others.forward("metrics", request)

    def _take_logs(self, request: ExportLogsServiceRequest, peer: str) -> Any:
        self._disk.check()
        rejected = decode.Rejected("log records")
        measured: dict[str, list[Machine]] = {}
        foreign = ExportLogsServiceRequest()
        number = own = 0
        for of_resource in request.resource_logs:
            resource = decode.attributes(of_resource.resource.attributes)
            kept: Any = None
            for scope in of_resource.scope_logs:
                others = []
                for event in scope.log_records:
                    if not event.event_name.startswith((PREFIX, MACHINE)):
                        others.append(event)
                    elif reason := self._take_event(event, resource, measured):
                        rejected.add(number, reason)
                    number += 1
                if others and self._is_own(scope.scope.name, resource):
                    own += len(others)
                elif others:
                    kept = kept or _like(of_resource, foreign.resource_logs.add(), "resource")
                    _like(scope, kept.scope_logs.add(), "scope").log_records.extend(others)
        self._keep(measured, peer)
        if own:
            self.refusals.note("telemetry of the agent itself", _HINT, own)
        if not foreign.resource_logs:
            return response("logs", rejected.count, rejected.reason, self.refusals)
        answer = self._others.forward("logs", foreign)
        if rejected.count:
            found = answer.partial_success
            reasons = "; ".join(filter(None, (rejected.reason, found.error_message)))
            answer = response("logs", rejected.count + found.rejected_log_records, reasons, self.refusals)
        return answer

    def _take_event(self, event: LogRecord, resource: Mapping[str, Any], measured: dict[str, list[Machine]]) -> str:
        """Write a record, or add a measurement to `measured`; return the reason of a rejection, or an empty text."""
        attributes = decode.attributes(event.attributes)
        host = str(resource.get("host.name", ""))
        run_id = resource.get(semconv.RUN_ID)
        try:
            if run_id != self._run_id:
                raise ValueError(f"these are records of run {run_id!r}, but this is the head of run {self._run_id!r}")
            if event.event_name == MACHINE:
                machine = to_machine(event.time_unix_nano, decode.plain(event.body), attributes)
                measured.setdefault(host, []).extend([machine] if machine.values else [])  # else it only lives
                self._hear(host)
                return ""
            record = from_event(event.event_name, decode.plain(event.body))
            journal = of_machine(str(attributes[JOURNAL]), host)
            index = _index(attributes[INDEX])
            if journal not in self._journals:
                _check_name(journal)
                stand_in(self._run_id, journal, record)  # its rank and its attempt are valid
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            return f"attribute {error} is missing" if isinstance(error, KeyError) else str(error)
        with self._lock:
            self._hear(host)
            if journal not in self._journals and len(self._journals) >= _MOST_JOURNALS:
                raise Refusal(TOO_MUCH, f"{len(self._journals)} processes of other machines have sent records")
            of_process = self._of(journal)
            of_process.receive(index, record, self._heard_at)
            if not of_process.is_complete:
                self._incomplete.add(journal)
            self._grown.add(journal)
        return ""

    def _hear(self, host: str) -> None:
        self._heard_at, self.heard[host] = time.monotonic(), time.time_ns()

    def _keep(self, measured: Mapping[str, Sequence[Machine]], peer: str) -> None:
        """Pass on the measurements that are new; senders repeat those that were not answered in time."""
        with self._lock:
            fresh = {
                host: {one.time_unix_nano: one for one in found if one.time_unix_nano > self._measured_at.get(host, 0)}
                for host, found in measured.items()
            }
        items: list[Item] = [machine for of_host in fresh.values() for machine in of_host.values()]
        if items:
            self._accept(items, peer)
            with self._lock:
                self._measured_at |= {host: max(of_host) for host, of_host in fresh.items() if of_host}

    def _accept(self, items: list[Item], peer: str) -> None:
        self._disk.check()
        self._outbox.check()
        self.accepted.put(items, peer)

    def _of(self, name: str) -> RemoteJournal:
        if name not in self._journals:
            self._journals[name] = RemoteJournal(at(self._path, name), self._limit_bytes)
        self._journals.move_to_end(name)
        if len(self._journals) > _OPEN_AT_ONCE:  # at most one more was opened since the last call
            next(islice(reversed(self._journals.values()), _OPEN_AT_ONCE, None)).rest()
        return self._journals[name]


def _like(message: Any, fresh: Any, field: str) -> Any:
    """Return a fresh message with the fields that a message has for all its records, but without the records."""
    if message.HasField(field):
        getattr(fresh, field).CopyFrom(getattr(message, field))
    fresh.schema_url = message.schema_url
    return fresh


def _check_name(name: str) -> None:
    if name.startswith(".") or "/" in name or one_line(name) != name or len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"invalid name {shown(name)} of a journal")


def _index(value: Any) -> int:
    index = int(value)
    if not 0 <= index < _MOST_RECORDS:
        raise ValueError(f"invalid {INDEX}={index}: must be at least 0 and below {_MOST_RECORDS}")
    return index


def _tls(head: Head) -> ssl.SSLContext | None:
    if not head.secure:
        return None
    found = server_tls(os.environ)
    if found is None:
        raise SettingsError(f"{head.url}: set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} to PEM files where the head is")
    return found
