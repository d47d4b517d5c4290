"""`python -m tests.faults.otlp_matrix`: whole runs against collectors that misbehave, and the page about them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import otel_rl
from otel_rl.recorder.directory.agent_start import end_agents
from tests.faults.misbehaving import Say, certificates, collector

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.faults.misbehaving import Misbehaving

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "otlp-client.md"
ROWS = 9
PROTOCOLS = ("http/protobuf", "grpc")
_TIMEOUT_S = 8
_HEAD = """# Collectors that misbehave

[What the agent retries](../how-to/otlp.md#what-is-retried) follows the OTLP specification.

Each row is a run of 9 steps, and `finish(8)`. The table is written by `python -m tests.faults.otlp_matrix`;
`tests/faults/test_otlp_client.py` compares each row with what the client does. A collector that takes rows and loses
the answer gets them twice, as from every OTLP client. Each event names its run, attempt, step and part, by which a
receiver recognizes it; bridge and head do.

| the collector | protocol | requests | rows taken | doubled | `finish` | `agent.log` |
|---|---|---|---|---|---|---|
"""


class Case(NamedTuple):
    """A collector."""

    name: str  # how it misbehaves
    answers: tuple[Say, ...] = ()  # what it says first
    most: int = 1 << 30  # how many records it takes at once
    tls: bool = False  # whether connections are encrypted
    mutual: bool = False  # whether it asks for a certificate
    variables: tuple[tuple[str, str], ...] = ()
    """Those of OTLP that are set, by option; a value that names a file of `certificates` is its path."""

    def collector(self, protocol: str, tls: Path) -> AbstractContextManager[Misbehaving]:
        """Run it; `tls` is where `certificates` made its files."""
        return collector(protocol, *self.answers, most=self.most, tls=tls if self.tls else None, mutual=self.mutual)

    def environment(self, behavior: Misbehaving, protocol: str, tls: Path) -> dict[str, str]:
        """Return the variables of a client."""
        values = {"ENDPOINT": behavior.endpoint, "PROTOCOL": protocol}
        values |= {
            name: str(tls / value) if value.endswith((".pem", ".key")) else value for name, value in self.variables
        }
        return {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in values.items()}


_OURS = (("CLIENT_CERTIFICATE", "client.pem"), ("CLIENT_KEY", "client.key"))
_TRUST = (("CERTIFICATE", "authority.pem"),)
_FULL = "the queue is full"
CASES = (
    Case("is healthy"),
    Case("answers after 3 s", (Say(slow=3),)),
    Case("says 400 (`INVALID_ARGUMENT`) once", (Say(400, "field 7 is odd"),)),
    Case("says 404 (`UNIMPLEMENTED`) once", (Say(404, "no such path"),)),
    Case("says 500 (`INTERNAL`) once", (Say(500, "a bug"),)),
    Case("takes two records at a time, else 413", most=2),
    Case("takes no record at all, else 413", most=0),
    Case(
        "finds a batch too large, takes its first part, and says 503", (Say(413, "too large"), Say(), Say(503, _FULL))
    ),
    Case("says 429 (`RESOURCE_EXHAUSTED`) once, with no pause", (Say(429, "too many"),)),
    Case("says 429 once, with a pause of 1 s", (Say(429, "too many", wait=1),)),
    Case("says 429 once, with a date in 2 s", (Say(429, "too many", wait=2, as_date=True),)),
    Case("says 502 (`UNAVAILABLE`) once", (Say(502, _FULL),)),
    Case("says 503 (`UNAVAILABLE`) three times", (Say(503, _FULL),) * 3),
    Case("says 503 once, with a pause of 1 s", (Say(503, _FULL, wait=1),)),
    Case("says 503 once, with a date in 2 s", (Say(503, _FULL, wait=2, as_date=True),)),
    Case("says 504 (`DEADLINE_EXCEEDED`) once", (Say(504, _FULL),)),
    Case("rejects one record of the first request", (Say(message="too old", rejected=1),)),
    Case("takes everything, and has advice", (Say(message="use gzip"),)),
    Case("reads the first request and cuts the connection", (Say(cut=True),)),
    Case("takes the first request and cuts the connection", (Say(cut=True, keeps=True),)),
    Case("has a certificate of an unknown authority", tls=True),
    Case("has a certificate of the authority that is set", tls=True, variables=_TRUST),
    Case("asks for a certificate, and gets none", tls=True, mutual=True, variables=_TRUST),
    Case("asks for a certificate, and gets it", tls=True, mutual=True, variables=(*_TRUST, *_OURS)),
)


def told(messages: str) -> str:
    """Return the first warning about the events, as the page has it."""
    said = re.search(r"otlp_logs: (.*) \(1 so far\)", messages)
    text = "" if said is None else re.sub(r"127\.0\.0\.1:\d+", "collector", said[1])
    return re.sub(r" \(_ssl\.c:\d+\)", "", text).replace("|", "\\|")


def line(case: Case, protocol: str, tls: Path, directory: Path) -> str:
    """Record a run with this collector, and return its line of the table."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    with case.collector(protocol, tls) as behavior:
        os.environ.update(case.environment(behavior, protocol, tls))
        run = otel_rl.init(dir=directory, exporters=[], quiet=True, hardware=False)
        for n in range(ROWS):
            run.log({"loss": float(n)}, step=n)
        finished = bool(run.finish(_TIMEOUT_S))
        end_agents(20)
        return row(case, protocol, behavior, finished, (run.dir / "agent.log").read_text())


def row(case: Case, protocol: str, behavior: Misbehaving, is_complete: bool, messages: str) -> str:
    """Return a line of the table."""
    taken = behavior.taken
    numbers = (len(behavior.requests), len(set(taken)), len(taken) - len(set(taken)), f"`{is_complete}`")
    return " | ".join([f"| {case.name}", protocol, *map(str, numbers), f"{told(messages)} |\n"])


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "tls").mkdir()
        tls = certificates(directory / "tls")
        lines = [line(case, protocol, tls, directory / "runs") for case in CASES for protocol in PROTOCOLS]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(_HEAD + "".join(lines))


if __name__ == "__main__":
    main()
