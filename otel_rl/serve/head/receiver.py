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
from otel_rl.export import Span
from otel_rl.recorder.agent.steps.state import of_machine, stand_in
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.sinks import at, log_of, one_line
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.journal.record_events import INDEX, JOURNAL, MACHINE, PREFIX, from_event, to_machine
from otel_rl.recorder.otlp.answers import TOO_MUCH, Refusal, RefusalCounter, data_points, response
from otel_rl.recorder.settings import tokens as tokens_of_run
from otel_rl.recorder.settings.head import CERTIFICATE_VARIABLE, KEY_VARIABLE, Head, parse
from otel_rl.recorder.settings.listeners import check_head, server_tls
from otel_rl.serve.bridge import decode, disk
from otel_rl.serve.bridge.forwarding import Forwarder, to_collector
from otel_rl.serve.bridge.http import HttpServer
from otel_rl.serve.head.accepted import AcceptedItems
from otel_rl.serve.head.remote import EARLY, RemoteJournal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

    from otel_rl.export import Item, Machine
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory
    from otel_rl.recorder.settings.tokens import Tokens

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


def listen(directory: RunDirectory, manifest: Manifest) -> HeadReceiver:
    """Listen for the run of a manifest; pass on what other programs send to the run's own OTLP endpoint.

    Raises:
        OSError, SettingsError: As `HeadReceiver`.
    """
    used = {"METRICS": "otlp" in dict(manifest.readers), "LOGS": "otlp_logs" in dict(manifest.exporters)}
    ways = to_collector([signal for signal, is_used in used.items() if is_used], own=[manifest.receives])
    return HeadReceiver(
        manifest.receives,
        manifest.id,
        directory.journals,
        directory.outbox,
        manifest.journal_limit,
        tokens_of_run.find(),
        ways,
        insecure=manifest.agent.insecure,
    )


class HeadReceiver:
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
        self.refusals = RefusalCounter()
        # Early records of the agent before: without this, they would wait until their process sends again.
        for path in journals.glob(f"*/{EARLY}"):
            self._of(path.parent.name)
            self._incomplete.add(path.parent.name)
        self._others = Forwarder(ways or {}, self.refusals, _ADVICE)
        try:
            # The last thing made: requests come as soon as it listens.
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
        decoded = decode.traces(request)
        spans = [item for _, items in decoded.runs.values() for item in items if isinstance(item, Span)]
        foreign: list[Item] = [span for span in spans if not self._is_own(span.scope[0], span.resource)]
        if len(foreign) < len(spans):
            self.refusals.note("telemetry of the agent itself", _HINT, len(spans) - len(foreign))
        if foreign:
            self._accept(foreign, peer)
        return response(signal, decoded.rejected.count, decoded.rejected.reason, self.refusals)

    def note_processes(self, *, is_over: bool, now: float) -> None:
        """Record whether all processes of the run have ended; some time later, nothing more is accepted.

        `now` is in seconds on a monotonic clock.
        """
        self._give_up_late(now)
        self._over_since = (self._over_since or now) if is_over else 0.0
        self.accepted.is_open = not (is_over and self.is_quiet(now))

    def _give_up_late(self, now: float) -> None:
        with self._lock:
            for name in list(self._incomplete):
                if self._journals[name].give_up_late(now):
                    self._grown.add(name)
                if self._journals[name].is_complete:
                    self._incomplete.discard(name)

    def is_quiet(self, now: float) -> bool:
        """Return whether the machines of this run have stopped sending; inference servers do not count."""
        return now - self._heard_at >= _QUIET_S or bool(self._over_since and now - self._over_since >= _LONGEST_S)

    def pop_accepted(self) -> list[Item]:
        """Return the items that others sent since the last call; their senders wait for `answer_senders`."""
        return self.accepted.pop()

    def answer_senders(self) -> None:
        """Answer the senders of the items: these are in the outbox."""
        self.accepted.answer_senders()

    def pop_grown(self) -> set[str]:
        """Return the journals that got records since the last call."""
        with self._lock:
            grown, self._grown = self._grown, set()
        return grown

    @property
    def refused(self) -> int:
        """Number of records of other programs that were refused."""
        return self.refusals.records

    @property
    def lost(self) -> int:
        """Number of records that were sent and never arrived."""
        return sum(journal.lost for journal in self._journals.copy().values())

    def close(self) -> None:
        """Listen no longer."""
        # First: the server waits for its open requests, and these wait for the agent's loop, which is the caller.
        self.accepted.close()
        self._server.close()

    def _is_own(self, scope: str, resource: Mapping[str, object]) -> bool:
        """Return whether telemetry is the agent's own: it arrives here if the agent's OTLP endpoint is its own head."""
        return scope == _SCOPE and resource.get(semconv.RUN_ID) == self._run_id

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> Any:
        resources = [decode.attributes(of_resource.resource.attributes) for of_resource in request.resource_metrics]
        scopes = {scope.scope.name for of_resource in request.resource_metrics for scope in of_resource.scope_metrics}
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
            partial = answer.partial_success
            reasons = "; ".join(filter(None, (rejected.reason, partial.error_message)))
            answer = response("logs", rejected.count + partial.rejected_log_records, reasons, self.refusals)
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
                self._note_sender(host)
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
            self._note_sender(host)
            if journal not in self._journals and len(self._journals) >= _MOST_JOURNALS:
                raise Refusal(TOO_MUCH, f"{len(self._journals)} processes of other machines have sent records")
            of_process = self._of(journal)
            of_process.receive(index, record, self._heard_at)
            if not of_process.is_complete:
                self._incomplete.add(journal)
            self._grown.add(journal)
        return ""

    def _note_sender(self, host: str) -> None:
        self._heard_at, self.heard[host] = time.monotonic(), time.time_ns()

    def _keep(self, measured: Mapping[str, Sequence[Machine]], peer: str) -> None:
        """Pass on the measurements that are new; senders repeat those that were not answered in time."""
        with self._lock:
            fresh = {
                host: {
                    machine.time_unix_nano: machine
                    for machine in machines
                    if machine.time_unix_nano > self._measured_at.get(host, 0)
                }
                for host, machines in measured.items()
            }
        # Without the lock from here on: `_accept` waits for the agent's loop, which takes the lock in `tend`.
        items: list[Item] = [machine for of_host in fresh.values() for machine in of_host.values()]
        if items:
            self._accept(items, peer)
            with self._lock:
                # After `_accept`: what was not saved is sent again, and must not count as known then.
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
            next(islice(reversed(self._journals.values()), _OPEN_AT_ONCE, None)).close_files()
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
    context = server_tls(os.environ)
    if context is None:
        raise SettingsError(f"{head.url}: set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} to PEM files where the head is")
    return context
