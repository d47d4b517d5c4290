"""Trackers over a network: their servers, behind a proxy with faults, and what the servers have of a run."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.collector import free_port, wait_for
from tests.exporters import mlflow_server
from tests.exporters.swanlab_server import SwanlabServer
from tests.exporters.trackers import empty_database
from tests.exporters.wandb_server import WandbServer
from tests.processes import start


class Network:
    """A tracker that has a server.

    Attributes:
        exporter: The name of its exporter.
    """

    exporter = ""
    modules: tuple[str, ...] = ()  # what its exporter imports
    options: Mapping[str, Any] = {}  # options for the exporter, with short times

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run the server; give its address."""
        raise NotImplementedError
        yield

    def environment(self, address: str) -> dict[str, str]:
        """Return the variables by which the tracker finds a server."""
        raise NotImplementedError

    def steps(self, run: str) -> Counter[int]:
        """Return how often the server has each step of a run."""
        raise NotImplementedError

    def params(self, run: str) -> set[str]:
        """Return the names of the parameters that the server has of a run."""
        raise NotImplementedError

    def state(self, run: str) -> str:
        """Return the state of a run."""
        raise NotImplementedError


class Wandb(Network):
    """W&B's package, with a server of its protocol."""

    exporter = "wandb"
    modules = ("wandb", "wandb.apis.public", "wandb.sdk.launch")
    options: Mapping[str, Any] = {
        "settings": {
            "init_timeout": 4.0,
            "finish_timeout": 4.0,
            # W&B takes whole seconds here, and 15 s or more for less than one.
            "x_file_stream_retry_wait_max_seconds": 1.0,
            "x_file_stream_retry_wait_min_seconds": 1.0,
            "x_file_stream_transmit_interval": 1.0,
            "x_graphql_retry_wait_max_seconds": 1.0,
            "x_graphql_retry_wait_min_seconds": 1.0,
            "x_save_requirements": False,
        }
    }

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        with WandbServer() as self.server:
            yield self.server.url

    def environment(self, address: str) -> dict[str, str]:
        return {"WANDB_BASE_URL": address, "WANDB_API_KEY": "k" * 40, "WANDB_MODE": "online"}

    def steps(self, run: str) -> Counter[int]:
        return Counter(row["step"] for row in self.server.runs[run].history) if run in self.server.runs else Counter()

    def params(self, run: str) -> set[str]:
        return set(self.server.runs[run].config)

    def state(self, run: str) -> str:
        return {0: "finished", None: "running"}.get(self.server.runs[run].exit_code, "failed")


class Mlflow(Network):
    """MLflow's own server."""

    exporter = "mlflow"
    modules = ("mlflow",)

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        with mlflow_server.serving(directory, empty_database()) as self.address:
            yield self.address

    def environment(self, address: str) -> dict[str, str]:
        return {"MLFLOW_TRACKING_URI": address}

    def steps(self, run: str) -> Counter[int]:
        client, found = self._found(run)
        return Counter(p.step for one in found for p in client.get_metric_history(one.info.run_id, "a"))

    def params(self, run: str) -> set[str]:
        return {name for one in self._found(run)[1] for name in one.data.params}

    def state(self, run: str) -> str:
        return ",".join(one.info.status.lower() for one in self._found(run)[1])

    def _found(self, run: str) -> tuple[Any, list[Any]]:
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self.address)
        experiment = client.get_experiment_by_name("p")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        return client, [one for one in runs if one.data.tags["rl.run.id"] == run]


class Trackio(Network):
    """trackio's own server. It has no state of a run; the values `rl/outcome` say how it ended."""

    exporter = "trackio"
    modules = ("trackio",)
    _server = "import sys, trackio; trackio.show(host='127.0.0.1', server_port=int(sys.argv[1]), open_browser=False)"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        self.directory, port = directory, free_port()
        environment = {"TRACKIO_DIR": str(directory), "TRACKIO_WRITE_TOKEN": "token"}
        server = start([sys.executable, "-c", self._server, str(port)], directory, **environment)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(lambda: _answers(f"{address}/version"), "trackio's server does not start", 120)
            yield address
        finally:
            server.kill()
            server.communicate()

    def environment(self, address: str) -> dict[str, str]:
        return {"TRACKIO_SERVER_URL": address, "TRACKIO_WRITE_TOKEN": "token"}

    def steps(self, run: str) -> Counter[int]:
        return Counter(step for step, values in self._rows(run) if "a" in values)

    def params(self, run: str) -> set[str]:
        tables = [one["_value"] for _, values in self._rows(run) for one in values.values() if isinstance(one, dict)]
        later = {row["name"] for rows in tables for row in rows}
        configs = self._stored("SELECT config FROM configs WHERE run_name = ?", run)
        return later | {name for (text,) in configs for name in json.loads(text) if not name.startswith("_")}

    def state(self, run: str) -> str:
        return ",".join(one["rl/outcome"] for _, one in self._rows(run) if "rl/outcome" in one)

    def _rows(self, run: str) -> list[tuple[int, dict[str, Any]]]:
        found = self._stored("SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", run)
        return [(step, json.loads(text)) for step, text in found]

    def _stored(self, query: str, run: str) -> list[Any]:
        place = self.directory / "p.db"
        if place.exists():
            with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(place)) as database:
                return database.execute(query, [run]).fetchall()
        return []  # the server is about to make it


class Swanlab(Network):
    """SwanLab's package, with a server of its protocol."""

    exporter = "swanlab"
    modules = ("swanlab",)

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        with SwanlabServer() as self.server:
            yield self.server.url

    def environment(self, address: str) -> dict[str, str]:
        return {"SWANLAB_API_HOST": address, "SWANLAB_API_KEY": "k" * 20, "SWANLAB_MODE": "online"}

    def steps(self, run: str) -> Counter[int]:
        points = self.server.runs[run].points.get("scalar", []) if run in self.server.runs else []
        return Counter(point["index"] for point in points if point["key"] == "a")

    def params(self, run: str) -> set[str]:
        return set(self.server.runs[run].config)

    def state(self, run: str) -> str:
        return self.server.runs[run].state.lower()


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=2).close()
        return True
    return False


NETWORKS = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio, "swanlab": Swanlab}
