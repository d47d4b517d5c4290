"""A server that speaks W&B's protocol as W&B's service uses it: GraphQL for runs, and the file stream for rows."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.exporters.json_server import JsonHandler, JsonServer


class StoredRun(msgspec.Struct):
    """A run, as the server has it."""

    name: str  # its id in W&B
    fields: dict[str, Any] = {}  # what `upsertBucket` gave last, by the names of its variables
    lines: dict[str, dict[int, str]] = {}
    """The lines of each file of the stream, by file and offset: a line that is sent again replaces itself."""
    exit_code: int | None = None  # the exit code that the run ended with; `None` while it runs

    def read(self, file: str) -> list[str]:
        """Return the lines of a file in their order."""
        return [line for _, line in sorted(self.lines.get(file, {}).items())]

    @property
    def config(self) -> dict[str, Any]:
        """The config."""
        config = json.loads(self.fields.get("config") or "{}")
        return {name: one["value"] for name, one in config.items() if name != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows."""
        return [json.loads(line) for line in self.read("wandb-history.jsonl")]


class WandbServer(JsonServer):
    """Keeps the runs of every project in memory.

    Attributes:
        runs: The runs, by id.
        unknown: Names of the GraphQL operations that it does not know: it answers them with nothing.
    """

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.unknown: set[str] = set()
        super().__init__(_Handler)

    def query(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a GraphQL operation."""
        with self.lock:
            match operation:
                case "Viewer":
                    return {"viewer": _VIEWER}
                case "ServerFeaturesQuery":
                    return {"serverInfo": {"features": []}}
                case "UpsertBucket":
                    return {"upsertBucket": self._upsert(variables)}
                case "RunResumeStatus":
                    return {"model": {"id": "p", "name": "p", "entity": _ENTITY, "bucket": self._resumed(variables)}}
                case "GetDefaultEntity":
                    return {"viewer": _VIEWER}
                case "Run":
                    return {"project": {"run": self._shown(variables)}}
                case "CreateRunFiles":
                    files = [{"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in variables["files"]]
                    return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
            self.unknown.add(operation)
            return {}

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        """Store a part of the file stream of a run."""
        with self.lock:
            run = self.runs[name]
            for file, part in sent.get("files", {}).items():
                lines = run.lines.setdefault(file, {})
                lines.update(enumerate(part["content"], part["offset"]))
            if sent.get("complete"):
                run.exit_code = sent.get("exitcode")

    def _upsert(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["name"]
        is_new = name not in self.runs
        run = self.runs.setdefault(name, StoredRun(name))
        run.fields |= {field: value for field, value in given.items() if value is not None}
        run.exit_code = None
        bucket = {"id": f"id-{name}", "name": name, "displayName": run.fields.get("displayName"), "description": None}
        bucket |= {"config": run.fields.get("config"), "sweepName": None, "historyLineCount": len(run.history)}
        project = {"id": "p", "name": given.get("project") or "p", "entity": _ENTITY}
        return {"bucket": bucket | {"project": project}, "inserted": is_new}

    def _resumed(self, given: dict[str, Any]) -> dict[str, Any] | None:
        run = self.runs.get(given["name"])
        if run is None:
            return None
        counts = {f"{one}LineCount": len(run.read(f"wandb-{one}.jsonl")) for one in ("history", "events")}
        tails = {f"{one}Tail": json.dumps(run.read(f"wandb-{one}.jsonl")[-1:]) for one in ("history", "events")}
        summary = (run.read("wandb-summary.json") or ["{}"])[-1]
        said = {"id": f"id-{run.name}", "name": run.name, "displayName": run.fields.get("displayName")}
        said |= {"summaryMetrics": summary, "config": run.fields.get("config", "{}"), "logLineCount": 0}
        return said | counts | tails | {"tags": [], "notes": "", "wandbConfig": '{"t": 1}'}

    def _shown(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the public API gets of a run."""
        run = self.runs.get(given["name"])
        if run is None:
            return None
        state = "running" if run.exit_code is None else "failed" if run.exit_code else "finished"
        said = {"id": f"id-{run.name}", "name": run.name, "state": state, "historyLineCount": len(run.history)}
        return said | {"config": run.fields.get("config", "{}"), "summaryMetrics": "{}", "projectId": "1"}


_ENTITY = {"id": "e", "name": "team"}
_VIEWER = {"id": "u", "entity": "team", "username": "user", "email": "", "flags": "{}", "teams": {"edges": []}}


class _Handler(JsonHandler):
    server: WandbServer

    def respond(self) -> None:
        """Answer a GraphQL operation, or store a part of a file stream; take a file, and forget it."""
        body = self.body()
        sent = json.loads(body or b"{}") if self.command == "POST" else {}
        if self.path == "/graphql":
            operation = sent.get("operationName") or sent["query"].split("(")[0].split("{")[0].split()[-1]
            self.answer({"data": self.server.query(operation, sent.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            self.server.stream(self.path.split("/")[-2], sent)
            self.answer({"exitcode": None, "limits": {}})
        else:
            self.answer({})
