"""Texts of other programs: rows of a run, names of metrics, carriers of trace context, pages of inference servers."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import msgspec

import otel_rl
from otel_rl.cli.late import plain
from otel_rl.recorder.agent.input.engine_pages import loads
from otel_rl.recorder.journal.ids import format_traceparent, parse_traceparent
from otel_rl.recorder.trainer import propagation
from otel_rl.semconv.dialect import dialect
from otel_rl.semconv.frameworks import dialects
from otel_rl.semconv.vocabulary import Vocabulary
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target
from tests.recorder.agent.hardware.engine_pages import Vllm, sglang


class Archive(Target):
    """A `rows.jsonl`: lines that are not rows are skipped, all others are read, in the order of the steps."""

    def seeds(self) -> list[bytes]:
        rows = (samples.finished(self.folder) / "rows.jsonl").read_bytes()
        lines = rows.splitlines(keepends=True)
        again = rows.replace(b'"attempt":0', b'"attempt":1')
        return [rows, *lines, rows + again, rows[:-5], again + lines[0].replace(b'"late":false', b'"late":true')]

    def check(self, data: bytes) -> None:
        (self.folder / "rows.jsonl").write_bytes(data)
        for row in plain.rows(self.folder):
            msgspec.json.encode(row)
        tempfile.tempdir, before = str(self.folder), tempfile.tempdir
        try:
            found = otel_rl.open_run(self.folder).rows()
        finally:
            tempfile.tempdir = before
        steps = [*zip(found["step"].tolist(), found["name"], strict=True)]
        if found["step"].tolist() != sorted(found["step"].tolist()) or len(set(steps)) < len(steps):
            raise Broken("steps are repeated, or in another order")


class Names(Target):
    """A name of a metric, of a phase, and a carrier: each dialect reads any of them."""

    longest = 1 << 10

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._dialects = [dialect(name) for name in dialects()]

    def seeds(self) -> list[bytes]:
        carrier = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
        return [*(name.encode() for name in _known_names()), carrier, b"01" + carrier[2:] + b"-x"]

    def check(self, data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        vocabulary = Vocabulary("auto")
        vocabulary.learn([text])
        vocabulary.read(text)
        vocabulary.phase(text)
        for one in self._dialects:
            reading = one.read(text)
            one.passes(text)
            one.declares(text)
            if reading is not None and not one.spellings(reading.metric, dict(reading.attributes)):
                raise Broken(f"{one.name} reads {text!r} and cannot spell it")
        _check_carrier(text)


class EnginePages(Target):
    """A page of metrics: it has values, or it is refused as invalid."""

    def seeds(self) -> list[bytes]:
        pages = [Vllm().page().encode(), Vllm(2).page().encode(), sglang().encode()]
        return [*pages, *(line + b"\n" for page in pages for line in page.splitlines() if not line.startswith(b"#"))]

    def check(self, data: bytes) -> None:
        try:
            found = loads(data.decode("utf-8", "replace"), "engine/a:1")
        except ValueError:
            return  # the poller counts it, and asks again
        for load in found:
            if not isinstance(load.value, float):
                raise Broken(f"{load} is not a number")
            math.isnan(load.value)


def _known_names() -> list[str]:
    """Return some names of each framework."""
    lists = sorted((Path(__file__).parents[2] / "data/names").glob("*.txt"))
    return [line for path in lists for line in path.read_text().splitlines()[1::4]]


def _check_carrier(text: str) -> None:
    ids = parse_traceparent(text)
    if ids is not None and parse_traceparent(format_traceparent(ids)) != ids:
        raise Broken(f"{text!r} is not the same after a round trip")
    for carrier in ({"TraceParent": text}, {text: text}):
        with propagation.attach(carrier):
            propagation.carrier()
