"""`network_agent.py EXPORTER PLACE OPTIONS`: delivers an outbox as an agent does, with short pauses.

It obeys lines on standard input: `put FIRST LAST` appends rows and parameters, and `end` shuts the exporter down when
it has everything. It prints the error of each failure.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from otel_rl.delivery import exporter_thread, handover
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.plugins import find_exporter
from otel_rl.export import Ended, Item, Params, Row, RunInfo


class Told(ExporterThread):
    """An exporter that prints its errors."""

    def _note(self, text: str) -> None:
        super()._note(text)
        print(text.replace("\n", " "), flush=True)  # noqa: T201


def items(first: int, last: int) -> list[Item]:
    """Return rows, and parameters with them."""
    return [Params(first, {f"p{first}": first}), *(Row(n, n * 10**9, {"a": n + 0.5}) for n in range(first, last))]


def main(name: str, place: Path, options: dict[str, object]) -> None:
    """Deliver until standard input says to end."""
    exporter_thread._LONGEST_PAUSE_S = 1.0
    handover.ANEW_AFTER = 2
    for part in ("outbox", "cursors"):
        (place / part).mkdir(parents=True, exist_ok=True)
    outbox = Outbox(place / "outbox", 1 << 30)
    info = RunInfo(place.name, "p", "n", str(place))
    thread = Told(name, find_exporter(name), options, info, outbox, place / "cursors")
    thread.start()
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "end":
            outbox.append([Ended(10**12, 0, "finished")], b"\xc0")
            thread.close_when_done()
            thread.join()
            print("ended", flush=True)  # noqa: T201
            return
        outbox.append(items(*map(int, numbers)), b"\xc0")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
