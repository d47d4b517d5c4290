"""OTLP requests: their bodies, and what the bridge and the head make of them."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
import zlib
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from otel_rl.recorder.otlp.answers import FAILED, JSON, PROTOBUF, Refusal, encoded
from otel_rl.recorder.otlp.signals import SERVICES
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge import bodies, decode
from otel_rl.serve.bridge.forwarding import IntoRuns
from otel_rl.serve.bridge.http import respond
from otel_rl.serve.bridge.runs import Runs
from otel_rl.serve.head.receiver import HeadReceiver
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target

if TYPE_CHECKING:
    from pathlib import Path

SIGNALS = tuple(SERVICES)
_HEAD = 4
_PEER = "192.0.2.1"
_RENEW_EVERY = 1000
"""Inputs after which the sinks begin with empty directories, so that files do not pile up."""


class Sinks:
    """The bridge and the head, as they run, but without exporters."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self.renew()

    def renew(self) -> None:
        """Begin with new directories."""
        if self._count:
            self.close()
        self._count += 1
        here = self._folder / str(self._count)
        journals, outbox = here / "journals", here / "outbox"
        for place in (journals, outbox):
            place.mkdir(parents=True)
        self._runs = Runs(here, [], limit_bytes=64 << 20, most=8, spare_s=0.0)
        self.bridge = IntoRuns(self._runs)
        self.head = HeadReceiver("127.0.0.1:0", "run", journals, outbox, limit_bytes=64 << 20, tokens=Tokens())
        self._stopped = threading.Event()
        self._saver = threading.Thread(target=self._save, daemon=True)
        self._saver.start()

    def _save(self) -> None:
        while not self._stopped.wait(0.0005):
            self.head.accepted.pop()
            self.head.accepted.answer_senders()

    def close(self) -> None:
        """Close both, and remove their files."""
        self.head.close()
        self._runs.close()
        self._stopped.set()
        self._saver.join()
        shutil.rmtree(self._folder / str(self._count))


class _Requests(Target):
    """A body of one signal: the first byte chooses the signal, and whether the bridge or the head gets it."""

    kind = PROTOBUF

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sinks = Sinks(folder)
        self._inputs = 0

    def close(self) -> None:
        self._sinks.close()

    def check(self, data: bytes) -> None:
        if not data:
            return
        self._inputs += 1
        if self._inputs % _RENEW_EVERY == 0:
            self._sinks.renew()
        signal = SIGNALS[(data[0] & 3) % len(SIGNALS)]
        sink = self._sinks.head if data[0] & _HEAD else self._sinks.bridge
        try:
            with bodies.decoded(signal, data[1:], self.kind, "") as request:
                _check_counts(signal, request, self.folder)
                encoded(respond(sink, signal, request, _PEER), self.kind)
        except Refusal as refusal:
            if refusal.kind is FAILED:
                raise
        if bodies.ROOM._free != bodies.LARGEST:
            raise Broken(f"room for {bodies.LARGEST - bodies.ROOM._free} bytes is not given back")


class Protobuf(_Requests):
    """Bodies in protobuf."""

    def seeds(self) -> list[bytes]:
        return [bytes([which]) + message.SerializeToString() for which, message in _messages()]


class Json(_Requests):
    """Bodies in JSON."""

    kind = JSON

    def seeds(self) -> list[bytes]:
        found = []
        for which, message in _messages():
            plain = json_format.MessageToDict(message)
            found.append(bytes([which]) + json.dumps(plain).encode())
        return found


class Compressed(Target):
    """A compressed body: the first byte chooses the encoding, and whether the rest is compressed first."""

    most_memory = 6 * bodies.LARGEST

    def seeds(self) -> list[bytes]:
        plain = [message.SerializeToString() for _, message in _messages()][:20]
        found = [b"\0" + gzip.compress(body) for body in plain] + [b"\1" + zlib.compress(body) for body in plain]
        bombs = [b"\0" + gzip.compress(gzip.compress(bytes(9 << 20))), b"\1" + zlib.compress(bytes(64 << 10))]
        twice = b"\0" + gzip.compress(plain[0]) + gzip.compress(plain[1])
        if "zstd" in bodies.ENCODINGS:
            found += [b"\2" + samples.zstd(body) for body in plain]
        return [*found, *bombs, twice, *(bytes([8 | n]) + body for n in range(3) for body in plain[:5])]

    def check(self, data: bytes) -> None:
        if not data:
            return
        names = [*bodies.ENCODINGS]
        name, body = names[data[0] % len(names)], data[1:]
        if data[0] & 8:
            body = samples.compressed(name, body)
        try:
            with bodies.decoded("logs", body, PROTOBUF, name):
                pass
        except Refusal as refusal:
            if refusal.kind is FAILED:
                raise


def _messages() -> list[tuple[int, Any]]:
    """Return requests, each with the number that chooses its signal and its receiver."""
    found: list[tuple[int, Any]] = [(0, samples.log_events()), (1, samples.trace()), (2, samples.metrics())]
    found += [(0, request) for request in samples.odd_logs()] + [(1, request) for request in samples.odd_spans()]
    return [*found, *((which | _HEAD, message) for which, message in (*found[::2], (0, samples.records())))]


def _check_counts(signal: str, request: Any, folder: Path) -> None:
    """Check that each record of a request is an item, or counted as refused."""
    if signal == "metrics":
        return
    found = (decode.logs if signal == "logs" else decode.traces)(request, folder)
    records = samples.count(signal, request)
    kept = sum(len(items) for _, items in found.runs.values())
    if kept + found.rejected.count != records:
        raise Broken(f"{records} {signal}: {kept} kept, {found.rejected.count} refused")
