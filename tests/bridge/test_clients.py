"""OpenTelemetry's own exporters as clients of the bridge; `docs/evidence/otlp-clients.md` has the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bridge.bridges import Bridge
from tests.clients import collector, rows
from tests.clients.lossy import Lossy
from tests.clients.matrix import CASES, measure
from tests.clients.programs import CLIENTS, COLLECTOR
from tests.collector import wait_for
from tests.processes import rows_of
from tests.real_parts import needs_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.matrix import Case
    from tests.clients.programs import Client, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Client], Program]:
    """The program that builds a client, once."""
    programs: dict[str, Program] = {}

    def build(client: Client) -> Program:
        if client.name not in programs:
            programs[client.name] = client.build(tmp_path_factory.mktemp(client.name))
        return programs[client.name]

    return build


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
@pytest.mark.parametrize(
    "client",
    [pytest.param(client, id=client.name, marks=[needs_program(name) for name in client.needs]) for client in CLIENTS],
)
def test_a_client(client: Client, case: Case, built: Callable[[Client], Program], tmp_path: Path) -> None:
    """No row twice, none changed, none missing unless the client gave it up because there was no answer."""
    for way, found in measure(client, case, tmp_path, built(client)).items():
        assert (found.doubled, found.is_exact) == (0, True), (way, found)
        assert found.is_in_order or not client.keeps_order, (way, found)
        assert found.sent - found.received <= (found.given_up if case.away or case.lost else 0), (way, found)


@needs_program("go")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_that_loses_answers_under_load(
    protocol: str, built: Callable[[Client], Program], tmp_path: Path
) -> None:
    """5,000 rows in 100 requests, a third of the answers lost: each row once; in order if the Collector keeps it."""
    program = built(COLLECTOR).command[-1]
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
