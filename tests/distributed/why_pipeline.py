"""A small asynchronous training of real processes, with delays: two gloo ranks, three workers, an HTTP engine."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEPS, WORKERS, EACH = 66, 3, 2
USUAL_S, DELAY_S = 0.02, 0.4
PLACES = ("reward", "update_actor", "sync_weights", "tool", "verifier", "engine", "outside")
PLANTED = {step: PLACES[n % len(PLACES)] for n, step in enumerate(range(5, 65, 3))}
"""The step of each delay, and where it is."""


def late(where: str, step: int) -> float:
    """Return the time of some work in a step."""
    return USUAL_S + (DELAY_S if PLANTED.get(step) == where else 0.0)


def engine(port: Any, head: str) -> None:
    """Serve requests, and send a span of each to the head."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.trace import SpanKind

    provider = TracerProvider(resource=Resource({"service.name": "engine"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"http://{head}/v1/traces")))
    tracer = provider.get_tracer("engine")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here = extract({name.lower(): value for name, value in self.headers.items()})
            with tracer.start_as_current_span("llm_request", here, kind=SpanKind.SERVER):
                time.sleep(late("engine", int(self.path.strip("/"))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.value = server.server_address[1]
    server.serve_forever()


def work(variables: dict[str, str], number: int, port: int, prompts: Any, tickets: Any) -> None:
    """Sample trajectories."""
    launched = {"RANK": number, "WORLD_SIZE": WORKERS, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": WORKERS}
    os.environ.update(variables, **{name: str(value) for name, value in launched.items()})
    import otel_rl

    run = otel_rl.init(role="rollout", quiet=True)
    while (step := prompts.get()) is not None:
        mine = step if number == step % WORKERS else -1
        for n in range(EACH):
            delayed = mine if n == 0 else -1
            with run.trajectory(policy_version=step) as trajectory:
                with trajectory.part("model"):
                    url = f"http://127.0.0.1:{port}/{delayed}"
                    urllib.request.urlopen(urllib.request.Request(url, headers=otel_rl.carrier())).read()
                with trajectory.part("tool", name="pytest"):
                    time.sleep(late("tool", delayed))
                with trajectory.part("verifier", name="grader"):
                    time.sleep(late("verifier", delayed))
                trajectory.generated(10)
            tickets.put(trajectory.ticket())
    run.finish()


def train(rank: int) -> None:
    """Train as one of two ranks; the first one starts the workers."""
    import torch
    import torch.distributed as dist

    import otel_rl

    dist.init_process_group("gloo")
    run = otel_rl.init(dir="runs", project="why", quiet=True, hardware=False, head=os.environ["HEAD"])
    context = multiprocessing.get_context("spawn")
    prompts = [context.Queue() for _ in range(WORKERS)]
    tickets, port = context.Queue(), context.Value("i", 0)
    processes = []
    if rank == 0:
        processes.append(context.Process(target=engine, args=(port, os.environ["HEAD"]), daemon=True))
        processes[0].start()
        while not port.value:
            time.sleep(0.05)
        for n in range(WORKERS):
            processes.append(context.Process(target=work, args=(run.environment(), n, port.value, prompts[n], tickets)))
            processes[-1].start()
        for queue in prompts:  # until all workers have imported everything
            queue.put(-1)
        for _ in range(WORKERS * EACH):
            tickets.get(timeout=100)
    gradient = torch.ones(4)
    dist.barrier()
    for step in range(STEPS):
        with run.step(step):
            with run.phase("generate"):
                batch = []
                if rank == 0:
                    for queue in prompts:
                        queue.put(step)
                    batch = [tickets.get(timeout=100) for _ in range(WORKERS * EACH)]
                dist.barrier()
            with run.phase("reward"):
                time.sleep(late("reward", step) if rank == step % 2 else USUAL_S)
            with run.phase("update_actor"):
                run.trained(batch, policy_version=step)
                time.sleep(late("update_actor", step))
                dist.all_reduce(gradient)
            with run.phase("sync_weights"):
                time.sleep(late("sync_weights", step) if rank == 0 else 0.0)
                dist.barrier()
            time.sleep(late("outside", step) - USUAL_S)
            run.log({"loss": 1.0})
    for queue in prompts if rank == 0 else ():
        queue.put(None)
    for process in processes[1:]:
        process.join(60)
    delivered = bool(run.finish(60))
    sys.stdout.write(json.dumps({"dir": str(run.dir), "delivered": delivered}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]))
