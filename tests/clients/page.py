"""`python -m tests.clients.page`: the matrix of all clients, as a page."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.matrix import CASES, measure
from tests.clients.programs import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.clients.matrix import Result
    from tests.clients.programs import Client

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "otlp-clients.md"
HEAD = f"""# Clients of the bridge

OpenTelemetry's own exporters send rows to `otel-rl bridge`, with the timeouts and retries that they have by default.
Each number is how many of the rows were received. Rows are missing only where the client itself gave up.

- *healthy*: {CASES[0].rows} rows, {CASES[0].batch} in a request.
- *{CASES[1].name}*: one request holds all rows.
- *answers lost*: the connection is cut when the first answer begins, and at each fourth one after it. The bridge has
  accepted the request, and the client sends it again or gives up.
- *{CASES[3].name}*: the bridge is killed when half of the rows are there, and starts again 3 s later, which
  takes some seconds more. How many rows an SDK gives up in that time depends on the load of the machine.

*doubled* is how many rows came twice, in all four cases together. *exact* says that each row that was received holds
what was sent for its step, bit by bit. An SDK's rows also come in the order in which they were sent. The Collector
sends ten requests at a time, so that its rows come in any order; `sending_queue: {{num_consumers: 1}}` keeps it.

`tests/bridge/test_clients.py` repeats each case, and `python -m tests.clients.page` writes the table.

"""
_TITLES = ("client", "protocol", "compression", *(case.name for case in CASES), "doubled", "exact")


def line(cells: Iterable[object]) -> str:
    """Return a line of the table."""
    return f"| {' | '.join(map(str, cells))} |\n"


def cell(result: Result) -> str:
    """Return what is said about a case."""
    missing = result.sent - result.received
    return f"{result.received:,}" + (f"; gave up {missing} of {result.sent}" if missing else "")


def _lines(client: Client) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "program")
        place.mkdir()
        program = client.build(place)
        found = [measure(client, case, Path(name, str(number)), program) for number, case in enumerate(CASES)]
    lines = []
    for way in client.ways:
        results = [of_case[way] for of_case in found]
        doubled = sum(result.doubled for result in results)
        exact = "yes" if all(result.is_exact for result in results) else "no"
        lines.append(line([client.name, *way, *map(cell, results), doubled, exact]))
    return lines


def main() -> None:
    """Write the page."""
    version = importlib.metadata.version("opentelemetry-exporter-otlp")
    told = [f"- {client.name}: {client.version or f'opentelemetry-exporter-otlp {version}'}\n" for client in CLIENTS]
    lines = [line(_TITLES), line(["---"] * len(_TITLES))]
    lines += [text for client in CLIENTS for text in _lines(client)]
    PAGE.write_text(HEAD + "".join(lines) + "\nThe exporters:\n\n" + "".join(told))


if __name__ == "__main__":
    main()
