"""Asynchronous RL in processes of their own: trainers, rollout workers, an inference server, and a queue between.

Only what moves data is here, over HTTP; there is no model.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.collector import answers, free_port, wait_for
from tests.processes import start_python

if TYPE_CHECKING:
    from pathlib import Path

TRAINERS, WORKERS = 2, 3

_SERVER = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "vllm"}))
exporter = OTLPSpanExporter(f"http://{os.environ['HEAD']}/v1/traces")
provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=200_000, schedule_delay_millis=200))
tracer = provider.get_tracer("vllm.llm_engine")

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/flush":
            provider.force_flush()
        else:
            context = propagate.extract(dict(self.headers.items()))
            with tracer.start_as_current_span("llm_request", context, kind=trace.SpanKind.SERVER) as span:
                span.set_attribute("gen_ai.usage.completion_tokens", 16)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SERVER"])), Handler)
server.serve_forever()
"""

_COMMON = """
import http.client, json, os, otel_rl
from concurrent.futures import ThreadPoolExecutor

def post(connection, path, body, headers={}):
    connection.request("POST", path, json.dumps(body), headers)
    return json.loads(connection.getresponse().read() or "null")

def connect(name):
    return http.client.HTTPConnection("127.0.0.1", int(os.environ[name]))

queue = connect("QUEUE")
each = int(os.environ["TRAJECTORIES"])
turns = int(os.environ["TURNS"])
place = dict(dir=".", project="p", id="async", head=os.environ["HEAD"], hardware=False, quiet=True, exporters=[],
             traces={"budget": int(os.environ["BUDGET"])}, rows={"deadline": 60})
"""

_WORKER = """
me = int(os.environ["ME"])
run = otel_rl.init(role="rollout", **place)

def sample(number, version, rollout, server):
    with otel_rl.attach(rollout), run.trajectory(policy_version=version) as trajectory:
        with run.phase("generate"):
            for turn in range(turns):
                post(server, "/generate", {"turn": turn}, otel_rl.carrier())
                trajectory.generated(16)
        trajectory.rewarded((number * 7919 + me) % 1000 / 1000)
        if number % 50 == 49:
            trajectory.set_status(otel_rl_error, "the tool timed out")
        return trajectory.ticket()

from opentelemetry.trace import StatusCode
otel_rl_error = StatusCode.ERROR
server = connect("SERVER")
number = 0
while (version := post(queue, "/version", {})) is not None:
    with run.rollout(policy_version=version):
        carrier = {}
        tickets = []
        for number in range(number, number + each // 6):
            tickets.append(sample(number, version, carrier, server))
        number += 1
    post(queue, "/put", tickets)
post(server, "/flush", {})
print(run.finish(60), flush=True)
"""

_TRAINER = """
rank = int(os.environ["ME"])
os.environ["OTEL_RL_LOCAL_WORLD_SIZE"] = "2"
run = otel_rl.init(rank=rank, world_size=2, **place)
print(run.dir, flush=True)
for n in range(int(os.environ["STEPS"])):
    with run.step(n):
        with run.phase("actor_dequeue"):
            tickets = post(queue, "/get", each // 2)
        run.queue("rollouts", depth=post(queue, "/depth", {}))
        fresh = [ticket for ticket in tickets if n - min(ticket["policy_version"]) <= 2]
        run.trained(fresh, policy_version=n)
        run.dropped([ticket for ticket in tickets if ticket not in fresh], reason="stale", policy_version=n)
        run.log({"loss": 1.0 / (n + 1)})
        post(queue, "/trained", n)
post(connect("SERVER"), "/flush", {})
print(run.finish(90), flush=True)
"""


class Queue(ThreadingHTTPServer):
    """The exchange between workers and trainers: tickets, and the version of the weights."""

    daemon_threads = True

    def __init__(self, limit: int, steps: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = threading.Condition()
        self.tickets: list[Any] = []
        self.trained: list[int] = []  # steps, of each trainer
        self.limit, self.steps = limit, steps
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def version(self) -> int:
        """The version that both trainers have."""
        return len(self.trained) // TRAINERS

    def answer(self, path: str, body: Any) -> Any:
        """Do what is asked for; wait for it if need be."""
        with self.changed:
            if path == "/put":
                self.tickets += body
            elif path == "/get":
                ahead = 0 if self.trained else self.limit  # so that the workers are ahead from the beginning
                self.changed.wait_for(lambda: len(self.tickets) >= max(body, ahead))
                taken, self.tickets = self.tickets[:body], self.tickets[body:]
                self.changed.notify_all()
                return taken
            elif path == "/depth":
                return len(self.tickets)
            elif path == "/trained":
                self.trained.append(body)
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.version > body)  # as if they had exchanged gradients
            elif path == "/version":
                self.changed.wait_for(lambda: len(self.tickets) < self.limit or self.version >= self.steps)
                return None if self.version >= self.steps else self.version
            self.changed.notify_all()
            return None


class _Handler(BaseHTTPRequestHandler):
    server: Queue
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own name
        """Log nothing."""


def train(directory: Path, *, steps: int, trajectories: int, turns: int, budget: int) -> Path:
    """Run it all; return the run directory.

    Args:
        directory: Where.
        steps: Steps of each trainer.
        trajectories: How many both trainers take for a step; workers run ahead by two steps.
        turns: Requests of each.
        budget: Spans of trajectories per minute.
    """
    queue = Queue(2 * trajectories, steps)
    place = {
        "HEAD": f"127.0.0.1:{free_port()}",
        "QUEUE": str(queue.server_port),
        "SERVER": str(free_port()),
        "STEPS": str(steps),
        "TRAJECTORIES": str(trajectories),
        "TURNS": str(turns),
        "BUDGET": str(budget),
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port()),
    }
    server = start_python(_SERVER, directory, **place)
    wait_for(lambda: answers(int(place["SERVER"])), "the inference server does not listen")
    trainers = [start_python(_COMMON + _TRAINER, directory, **place, ME=str(n)) for n in range(TRAINERS)]
    workers = [start_python(_COMMON + _WORKER, directory, **place, ME=str(n)) for n in range(WORKERS)]
    try:
        said = [process.communicate(timeout=250) for process in (*workers, *trainers)]
        assert [output.split()[-1:] for output, _ in said] == [["True"]] * len(said), [errors for _, errors in said]
    finally:
        for process in (server, *trainers, *workers):
            process.kill()
        queue.shutdown()
    return directory / said[-1][0].splitlines()[0]
