"""OpenTelemetry's own exporters as clients of the bridge; `docs/evidence/otlp-clients.md` has the numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.clients import collector, rows
from tests.clients.lossy import Lossy
from tests.clients.matrix import CASES, measure
from tests.clients.programs import CLIENTS, COLLECTOR, Client, Program
from tests.collector import wait_for
from tests.processes import rows_of
from tests.real_parts import needs_program
from tests.serve.bridge.bridges import Bridge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "otlp-clients.md"


def build(client: Client, place: Path) -> Program:
    (place / "program").mkdir()
    return client.build(place / "program")


@pytest.mark.parametrize(
    "client",
    [pytest.param(client, id=client.name, marks=[needs_program(name) for name in client.needs]) for client in CLIENTS],
)
def test_a_client(client: Client, tmp_path: Path) -> None:
    """No row twice, none changed, none missing unless the client gave it up because there was no answer."""
    program = build(client, tmp_path)
    lines = {way: f"| {client.name} | {' | '.join(way)} |" for way in client.ways}
    for case in CASES:
        for way, found in measure(client, case, tmp_path / case.name.replace(" ", "-"), program).items():
            missing = found.sent - found.received
            assert (found.doubled, found.is_exact) == (0, True), (case, way, found)
            assert found.is_in_order or not client.keeps_order, (case, way, found)
            assert missing <= (found.given_up if case.away or case.lost else 0), (case, way, found)
            lines[way] += f" {found.received:,}" + (f"; gave up {missing} of {found.sent} |" if missing else " |")
    if os.environ.get("WRITE_TABLES"):
        text = "".join(f"{line} 0 | yes |\n" for line in lines.values())
        PAGE.write_text(re.sub(rf"(^\| {client.name} \|.*\n)+", text, PAGE.read_text(), flags=re.MULTILINE))


def test_the_page_has_every_client() -> None:
    """A line for each client, protocol and compression."""
    lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]

    assert [tuple(line[:3]) for line in lines] == [(f"| {one.name}", *way) for one in CLIENTS for way in one.ways]


@needs_program("go")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_that_loses_answers_under_load(protocol: str, tmp_path: Path) -> None:
    """5,000 rows in 100 requests, a third of the answers lost: each row once; in order if the Collector keeps it."""
    program = build(COLLECTOR, tmp_path).command[-1]
    bridge = Bridge(tmp_path / "bridged")
    link = Lossy(bridge.grpc if protocol == "grpc" else bridge.http, every=3)
    options = {
        "sending_queue": {"num_consumers": 1},
        "retry_on_failure": {"initial_interval": "50ms", "max_interval": "50ms"},
    }
    try:
        with collector.running(program, f"http://127.0.0.1:{link.port}", protocol, "gzip", **options) as near:
            delivered = rows.send(rows.exporter(near, "grpc", "none"), "r", 5000, 50, pause=False)
            file = bridge.directory / "p" / "r" / "rows.jsonl"
            wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") >= 5000, "rows are missing", 120)
        bridge.stop()
    finally:
        bridge.kill()
        link.close()

    assert delivered == 5000
    assert link.lost >= 30
    assert [row["step"] for row in rows_of(file.parent)] == list(range(5000))
