"""A bridge in a process of its own, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_rl.recorder.journal.record_events import INDEX, JOURNAL, to_event
from otel_rl.recorder.journal.records import Record
from tests.collector import free_port, wait_for


class Bridge:
    """`otel-rl bridge` on ports of its own.

    Args:
        directory: Where runs lie.
        options: More of the command line.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.http, self.grpc = free_port(), free_port()
        self._options = options
        self._log = directory.parent / f"{directory.name}.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        ports = ["--http", f"127.0.0.1:{self.http}", "--grpc", f"127.0.0.1:{self.grpc}"]
        command = [sys.executable, "-m", "otel_rl.cli", "bridge", "--dir", str(self.directory), *ports, *self._options]
        before = self.log.count("otel-rl bridge:")
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        wait_for(lambda: self.log.count("otel-rl bridge:") > before or process.poll() is not None, "no bridge", 60)
        return process

    @property
    def log(self) -> str:
        """Return the output of the bridge."""
        return self._log.read_text() if self._log.exists() else ""

    def kill(self) -> None:
        """End it as a machine that is switched off would."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start another one in its place."""
        self.process = self._start()

    def stop(self) -> None:
        """End it in order."""
        self.process.terminate()
        self.process.wait(60)

    def post(self, body: bytes, path: str = "/v1/logs", **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer. `_` in a header's name is a dash."""
        answer, content = ask(self.http, body, path, **headers)
        return answer.status, content

    def send(self, request: ExportLogsServiceRequest) -> ExportLogsServiceResponse:
        """Send a request that must be taken; return the answer."""
        status, answer = self.post(request.SerializeToString())
        assert status == 200, answer
        return ExportLogsServiceResponse.FromString(answer)


def any_value(value: Any) -> AnyValue:
    if isinstance(value, dict):
        return AnyValue(kvlist_value={"values": pairs(value)})
    if isinstance(value, list):
        return AnyValue(array_value={"values": [any_value(item) for item in value]})
    kind = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}[type(value)]
    return AnyValue(**{kind: value})


def pairs(values: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def step_metrics(
    run: str | None, steps: Mapping[int, Mapping[str, float]], event: str = "rl.step.metrics"
) -> ExportLogsServiceRequest:
    """Return what any SDK in any language would send of steps."""
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    if run is not None:
        of_resource.resource.attributes.extend(pairs({"rl.run.id": run, "rl.run.project": "p"}))
    scope = of_resource.scope_logs.add()
    for step, values in steps.items():
        record = scope.log_records.add(event_name=event, time_unix_nano=10**18 + step)
        record.attributes.extend(pairs({"rl.loop.iteration": step, "rl.step.values": dict(values)}))
    return request


BODY = step_metrics("run", {0: {"loss": 1.0}}).SerializeToString()


def ask(
    port: int, body: Any = BODY, path: str = "/v1/logs", method: str = "POST", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request over HTTP; return the answer and its body. `_` in a header's name is a dash."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    given = {"Content-Type": "application/x-protobuf"} | {k.replace("_", "-"): v for k, v in headers.items()}
    try:
        connection.request(method, path, body, given, encode_chunked="Transfer_Encoding" in headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def raw(port: int, sent: bytes) -> bytes:
    """Return all that a server answers to these bytes until it closes or says nothing more."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(sent)
        connection.settimeout(1)
        found = b""
        with contextlib.suppress(OSError):
            while piece := connection.recv(1 << 16):
                found += piece
    return found


def journal_records(
    run: str, host: str, journal: str, records: Sequence[Record], first: int = 0
) -> ExportLogsServiceRequest:
    """Return records of a process of another machine, as its agent sends them to the head; the first has a number."""
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    of_resource.resource.attributes.extend(pairs({"rl.run.id": run, "host.name": host}))
    scope = of_resource.scope_logs.add()
    for index, record in enumerate(records, first):
        name, body = to_event(record)
        one = scope.log_records.add(event_name=name, body=any_value(body))
        one.attributes.extend(pairs({JOURNAL: journal, INDEX: index}))
    return request
