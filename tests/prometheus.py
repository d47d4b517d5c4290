"""A real Prometheus that scrapes given addresses, and its query API."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.collector import free_port, wait_for


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant query, at a time or now."""
        time = {} if at is None else {"time": repr(at)}
        result = self._get("query", query=expression, **time)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def over(self, expression: str, start: int, end: int) -> list[tuple[dict[str, str], dict[int, float]]]:
        """Return labels and values of each series of a query, at each second from `start` to `end` (Unix time)."""
        result = self._get("query_range", query=expression, start=str(start), end=str(end), step="1")["result"]
        return [(series["metric"], {int(at): float(value) for at, value in series["values"]}) for series in result]

    def value(self, expression: str) -> float | None:
        """Return the value of the one series of a query, `None` if there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def ready(self) -> bool:
        """Tell whether it answers."""
        try:
            self._get("query", query="1")
        except (OSError, AssertionError):
            return False
        return True

    def _get(self, path: str, **arguments: str) -> Any:
        try:
            answer = urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {arguments}: {error.read().decode()}") from error
        with answer:
            return json.load(answer)["data"]


@contextlib.contextmanager
def scraping(
    directory: Path, *targets: str, files: str = "", rules: str = "", write_to: str = "", token: str = ""
) -> Iterator[Prometheus]:
    """Start a server that scrapes the targets (`host:port`), and those in files that a pattern names, every second.

    A file of rules is evaluated as often. Every sample that was scraped is written to the URL `write_to` too,
    if it is given. The token is sent to all targets.
    """
    of_rules = {"source_labels": ["__name__"], "regex": "ALERTS.*|rl:.*", "action": "drop"}
    queue = {"max_shards": 1, "batch_send_deadline": "1s", "max_samples_per_send": 10_000, "capacity": 100_000}
    writing = {"queue_config": queue, "write_relabel_configs": [of_rules]}
    found = {"file_sd_configs": [{"files": [files], "refresh_interval": "1s"}]} if files else {}
    authorized = {"authorization": {"credentials": token}} if token else {}
    (directory / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [rules] if rules else [],
                "remote_write": [{"url": write_to, **writing}] if write_to else [],
                "scrape_configs": [
                    {"job_name": "otel-rl", "static_configs": [{"targets": list(targets)}], **found, **authorized}
                ],
            }
        )
    )
    with running(directory) as server:
        yield server


@contextlib.contextmanager
def running(directory: Path, *arguments: str, user: int | None = None) -> Iterator[Prometheus]:
    """Start a server with the prometheus.yml of a directory, on a free port, as a user who is in no group."""
    port = free_port()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *arguments,
            ],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_for(server.ready, "Prometheus does not answer", 60)
        yield server
    finally:
        process.terminate()
        process.wait(10)
