"""Asynchronous RL in processes of their own: trainers, rollout workers, an inference server, and a queue between.

Only what moves data is here; there is no model.
"""

from __future__ import annotations

import threading
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from tests.collector import answers, free_port, wait_for
from tests.processes import start_python

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
import http.client, os, otel_rl
from multiprocessing.managers import BaseManager

def post(connection, path, headers={}):
    connection.request("POST", path, "{}", headers)
    connection.getresponse().read()

server = http.client.HTTPConnection("127.0.0.1", int(os.environ["SERVER"]))
BaseManager.register("queue")
manager = BaseManager(("127.0.0.1", int(os.environ["QUEUE"])), b"key")
manager.connect()
queue = manager.queue()
each = int(os.environ["TRAJECTORIES"])
turns = int(os.environ["TURNS"])
place = dict(dir=".", project="p", id="async", head=os.environ["HEAD"], hardware=False, quiet=True, exporters=[],
             traces={"budget": int(os.environ["BUDGET"])}, rows={"deadline": 60})
"""

_WORKER = """
me = int(os.environ["ME"])
run = otel_rl.init(role="rollout", **place)

def sample(number, version, rollout):
    with otel_rl.attach(rollout), run.trajectory(policy_version=version) as trajectory:
        with run.phase("generate"):
            for turn in range(turns):
                post(server, "/generate", otel_rl.carrier())
                trajectory.generated(16)
        trajectory.rewarded((number * 7919 + me) % 1000 / 1000)
        if number % 50 == 49:
            trajectory.set_status(otel_rl_error, "the tool timed out")
        return trajectory.ticket()

from opentelemetry.trace import StatusCode
otel_rl_error = StatusCode.ERROR
number = 0
while (version := queue.version()) is not None:
    with run.rollout(policy_version=version):
        carrier = {}
        tickets = []
        for number in range(number, number + each // 6):
            tickets.append(sample(number, version, carrier))
        number += 1
    queue.put(tickets)
post(server, "/flush")
print(bool(run.finish(60)), flush=True)
"""

_TRAINER = """
rank = int(os.environ["ME"])
os.environ["OTEL_RL_LOCAL_WORLD_SIZE"] = "2"
run = otel_rl.init(rank=rank, world_size=2, **place)
print(run.dir, flush=True)
for n in range(int(os.environ["STEPS"])):
    with run.step(n):
        with run.phase("actor_dequeue"):
            tickets = queue.get(each // 2)
        run.queue("rollouts", depth=queue.depth())
        fresh = [ticket for ticket in tickets if n - min(ticket["policy_version"]) <= 2]
        run.trained(fresh, policy_version=n)
        run.dropped([ticket for ticket in tickets if ticket not in fresh], reason="stale", policy_version=n)
        run.log({"loss": 1.0 / (n + 1)})
        queue.has_trained(n)
post(server, "/flush")
print(bool(run.finish(90)), flush=True)
"""


class Queue:
    """The exchange between workers and trainers: tickets, and the version of the weights; calls wait if need be."""

    def __init__(self, limit: int, steps: int) -> None:
        self._changed = threading.Condition()
        self._tickets: list[Any] = []
        self._trained = 0  # steps, of all trainers
        self._limit, self._steps = limit, steps

    def put(self, tickets: list[Any]) -> None:
        """Add tickets."""
        with self._changed:
            self._tickets += tickets
            self._changed.notify_all()

    def get(self, count: int) -> list[Any]:
        """Take some tickets; at first the workers are ahead by as many as they may be."""
        with self._changed:
            ahead = 0 if self._trained else self._limit
            self._changed.wait_for(lambda: len(self._tickets) >= max(count, ahead))
            taken, self._tickets = self._tickets[:count], self._tickets[count:]
            self._changed.notify_all()
            return taken

    def depth(self) -> int:
        """Return the number of tickets."""
        return len(self._tickets)

    def has_trained(self, step: int) -> None:
        """End a step, when all trainers do, as if they had exchanged gradients."""
        with self._changed:
            self._trained += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._version() > step)

    def version(self) -> int | None:
        """Return the version that all trainers have, when there is room for tickets; `None` after the last step."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._tickets) < self._limit or self._version() >= self._steps)
            return None if self._version() >= self._steps else self._version()

    def _version(self) -> int:
        return self._trained // TRAINERS


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
    BaseManager.register("queue", callable=lambda: queue, exposed=["put", "get", "depth", "has_trained", "version"])
    exchange = BaseManager(("127.0.0.1", 0), b"key").get_server()
    threading.Thread(target=exchange.serve_forever, daemon=True).start()
    place = {
        "HEAD": f"127.0.0.1:{free_port()}",
        "QUEUE": str(exchange.address[1]),
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
    return directory / said[-1][0].splitlines()[0]
