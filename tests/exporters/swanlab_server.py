"""A server that speaks SwanLab's protocol as its service uses it: projects, experiments, and points of metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from tests.exporters.json_server import JsonHandler, JsonServer


class StoredRun(msgspec.Struct):
    """An experiment, as the server has it."""

    fields: dict[str, Any]  # what it was created with, and when
    points: dict[str, list[dict[str, Any]]] = {}
    """The points of each kind, "scalar", "media" or "log". A point that is sent twice is there twice."""
    config: dict[str, Any] = {}  # the config
    state: str = "RUNNING"  # "RUNNING", or how it ended

    def summary(self) -> dict[str, Any]:
        """Return the last step of each key, by kind."""
        last: dict[str, dict[str, int]] = {"scalar": {}, "media": {}, "log": {}}
        for kind, points in self.points.items():
            for point in points:
                key, step = point.get("key", "log"), point.get("index", point.get("epoch", 0))
                last[kind][key] = max(last[kind].get(key, -1), step)
        return {kind: [{"key": key, "step": step} for key, step in of.items()] for kind, of in last.items()}


class SwanlabServer(JsonServer):
    """Keeps the experiments of every project in memory.

    Attributes:
        runs: The experiments, by id.
        unknown: Method and path of the requests that it does not know: it answers them with nothing.
    """

    def __init__(self) -> None:
        self.projects: set[str] = set()
        self.runs: dict[str, StoredRun] = {}
        self.unknown: set[str] = set()
        super().__init__(_Handler)

    def answer_to(self, request: str, sent: Any) -> tuple[Any, int]:
        """Return content and status of the answer to a request, "METHOD /path"."""
        with self.lock:
            for pattern, answer in _ANSWERS:
                if found := re.fullmatch(pattern, request):
                    return answer(self, sent, *found.groups())
            self.unknown.add(request)
            return {}, 200

    def _login(self, _: Any) -> tuple[Any, int]:
        return {"sid": "s", "expiredAt": "2099-01-01T00:00:00.000Z", "userInfo": {"username": "user"}}, 200

    def _project(self, _: Any, user: str, project: str) -> tuple[Any, int]:
        if project not in self.projects:
            return {"code": 404, "message": "Not Found"}, 404
        found = {"cuid": f"id-{project}", "name": project, "version": 1, "path": f"/{user}/{project}"}
        return found | {"group": {"username": user}, "_count": {"experiments": len(self.runs)}}, 200

    def _create_project(self, sent: Any) -> tuple[Any, int]:
        self.projects.add(sent["name"])
        return {}, 201

    def _create_run(self, sent: Any) -> tuple[Any, int]:
        is_new = sent["cuid"] not in self.runs
        run = self.runs.setdefault(sent["cuid"], StoredRun({"slug": sent["cuid"], **sent}))
        run.state = "RUNNING"
        return run.fields, 201 if is_new else 200

    def _summary(self, _: Any, run: str) -> tuple[Any, int]:
        return self.runs[run].summary(), 200

    def _store(self, sent: Any) -> tuple[Any, int]:
        self.runs[sent["experimentId"]].points.setdefault(sent["type"], []).extend(sent["metrics"])
        return {}, 200

    def _profile(self, sent: Any, run: str) -> tuple[Any, int]:
        self.runs[run].config = sent.get("config", self.runs[run].config)
        return {}, 200

    def _state(self, sent: Any, run: str) -> tuple[Any, int]:
        self.runs[run].state = sent["state"]
        return {}, 200

    def _presigned(self, sent: Any) -> tuple[Any, int]:
        return {"urls": [f"{self.url}/upload/{number}" for number, _ in enumerate(sent["paths"])]}, 200

    def _nothing(self, _: Any) -> tuple[Any, int]:
        return {}, 200


_ANSWERS: list[tuple[str, Callable[..., tuple[Any, int]]]] = [
    ("POST /api/login/api_key", SwanlabServer._login),
    ("GET /api/project/([^/]+)/([^/]+)", SwanlabServer._project),
    ("POST /api/projects/[^/]+", SwanlabServer._create_project),
    ("POST /api/project/[^/]+/[^/]+/experiment", SwanlabServer._create_run),
    (r"GET /api/house/metrics/summaries/[^/]+/([^/?]+)\?.*", SwanlabServer._summary),
    ("POST /api/house/metrics", SwanlabServer._store),
    ("PUT /api/project/[^/]+/[^/]+/runs/([^/]+)/profile", SwanlabServer._profile),
    ("PUT /api/project/[^/]+/[^/]+/runs/([^/]+)/state", SwanlabServer._state),
    ("POST /api/resources/presigned/put", SwanlabServer._presigned),
    (
        "POST /api/projects/[^/]+/[^/]+/series|POST /api/house/experiments/[^/]+/heartbeat|PUT /upload/.*|GET /.*",
        SwanlabServer._nothing,
    ),
]


class _Handler(JsonHandler):
    server: SwanlabServer

    def respond(self) -> None:
        """Answer any request."""
        body = self.body()
        sent = json.loads(body) if "json" in self.headers.get("content-type", "") else body
        self.answer(*self.server.answer_to(f"{self.command} {self.path}", sent))
