"""`python -m tests.faults.otlp_matrix`: whole runs against collectors that misbehave, and the page about them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import otel_rl
from otel_rl.setup.agent_start import end_agents
from tests.faults.misbehaving import Say, certificates, collector

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "otlp-client.md"
ROWS = 9
_TIMEOUT_S = 8
_HEAD = """# Collectors that misbehave

[What the agent retries](../how-to/otlp.md#what-is-retried) follows the OTLP specification.

Each row is a run of 9 steps, and `finish(8)`. The table is written by `python -m tests.faults.otlp_matrix`;
`tests/faults/test_otlp_client.py` holds each case. A collector that takes rows and loses the answer gets them twice, as
from every OTLP client. Each event names its run, attempt, step and part, by which a receiver recognizes it; bridge and
head do.

| the collector | protocol | requests | rows taken | doubled | `finish` | `agent.log` |
|---|---|---|---|---|---|---|
"""


class Case(NamedTuple):
    """A collector.

    Attributes:
        name: How it misbehaves.
        answers: What it says first.
        most: How many records it takes at once.
        tls: Whether connections are encrypted.
        mutual: Whether it asks for a certificate.
        files: The variables that name files, and the files.
    """

    name: str
    answers: tuple[Say, ...] = ()
    most: int = 1 << 30
    tls: bool = False
    mutual: bool = False
    files: tuple[tuple[str, str], ...] = ()


_OURS = (("CLIENT_CERTIFICATE", "client.pem"), ("CLIENT_KEY", "client.key"))
_TRUST = (("CERTIFICATE", "authority.pem"),)
CASES = (
    Case("is healthy"),
    Case("answers after 4 s", (Say(slow=4),)),
    Case("says 400 (`INVALID_ARGUMENT`) once", (Say(400, "field 7 is odd"),)),
    Case("says 404 (`UNIMPLEMENTED`) once", (Say(404, "no such path"),)),
    Case("takes two records at a time, else 413", most=2),
    Case("says 429 (`RESOURCE_EXHAUSTED`) once, with no pause", (Say(429, "too many"),)),
    Case("says 429 once, with a pause of 2 s", (Say(429, "too many", wait=2),)),
    Case("says 429 once, with a date in 3 s", (Say(429, "too many", wait=3, as_date=True),)),
    Case("says 503 (`UNAVAILABLE`) three times", (Say(503, "the queue is full"),) * 3),
    Case("says 503 once, with a pause of 2 s", (Say(503, "the queue is full", wait=2),)),
    Case("says 503 once, with a date in 3 s", (Say(503, "the queue is full", wait=3, as_date=True),)),
    Case("rejects one record of the first request", (Say(message="too old", rejected=1),)),
    Case("reads the first request and cuts the connection", (Say(cut=True),)),
    Case("takes the first request and cuts the connection", (Say(cut=True, keeps=True),)),
    Case("has a certificate of an unknown authority", tls=True),
    Case("has a certificate of the authority that is set", tls=True, files=_TRUST),
    Case("asks for a certificate, and gets none", tls=True, mutual=True, files=_TRUST),
    Case("asks for a certificate, and gets it", tls=True, mutual=True, files=(*_TRUST, *_OURS)),
)


def line(case: Case, protocol: str, tls: Path, directory: Path) -> str:
    """Record a run with this collector, and return its line of the table."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update({f"OTEL_EXPORTER_OTLP_{name}": str(tls / file) for name, file in case.files})
    place = tls if case.tls else None
    with collector(protocol, *case.answers, most=case.most, tls=place, mutual=case.mutual) as behavior:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = behavior.endpoint
        os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = protocol
        run = otel_rl.init(dir=directory, exporters=[], quiet=True, hardware=False)
        for n in range(ROWS):
            run.log({"loss": float(n)}, step=n)
        finished = run.finish(_TIMEOUT_S)
        end_agents(20)
        taken = behavior.taken
        requests = len(behavior.requests)
    said = re.findall(r"WARNING otel_rl\.delivery: otlp_logs: (.*) \(1 so far\)", (run.dir / "agent.log").read_text())
    text = re.sub(r"127\.0\.0\.1:\d+", "collector", said[0]).replace("|", "\\|") if said else ""
    doubled = len(taken) - len(set(taken))
    return f"| {case.name} | {protocol} | {requests} | {len(set(taken))} | {doubled} | `{finished}` | {text} |\n"


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "tls").mkdir()
        tls = certificates(directory / "tls")
        protocols = ("http/protobuf", "grpc")
        lines = [line(case, protocol, tls, directory / "runs") for case in CASES for protocol in protocols]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(_HEAD + "".join(lines))


if __name__ == "__main__":
    main()
