"""Everything that the agent sends over OTLP, against the registry."""

from __future__ import annotations

import pytest

from otel_rl import semconv
from otel_rl.semconv import registry
from otel_rl.semconv.dialect import OWN, dialect_file
from otel_rl.semconv.frameworks import dialects
from tests.processes import run_python
from tests.semconv import emitted

SIGNALS = ("TRACES", "LOGS", "METRICS")
ALL_FEATURES = """
import numpy
import otel_rl
from opentelemetry import trace
from otel_rl.recorder.directory.agent_start import end_agents
from tests.recorder.devices.gpus import Allocator
from otel_rl.recorder.trainer.current import recorder_of

run = otel_rl.init(
    dir="runs", project="p", name="n", id="i", exporters=[], dialect="trl", quiet=True,
    hardware={"interval": 0.2}, flops={"parameters": 7e9, "peak": 1e15}, traces={"ratio": 1.0},
)
recorder_of(run).devices.found = device = Allocator()
run.params({"lr": 1e-6})
for n in range(4):
    tickets = []
    with run.rollout(policy_version=n):
        for each in range(3):
            with run.trajectory(policy_version=n) as trajectory:
                for kind in ("model", "tool", "environment", "verifier"):
                    with trajectory.part(kind, name="x"):
                        pass
                trajectory.generated(100)
                trajectory.rewarded(each / 3)
            tickets.append(trajectory.ticket())
    with run.step(n):
        with run.phase("generate"):
            pass
        with run.phase("train_step") as phase:
            with phase.onload():
                pass
            with phase.execute():
                pass
        with run.phase("my_own"), run.phase("compute_rewards"):
            pass
        with run.phase("update_weights"), trace.get_tracer("library").start_as_current_span("library.call"):
            pass
        run.trained(tickets[:2], policy_version=n + 1)
        run.dropped(tickets[2:], reason="stale", policy_version=n + 1)
        run.queue("experience", depth=n, waited=0.01)
        run.weights(n, {"w": numpy.full(8, 1 + n * 1e-9)})
        run.weights(n, {"w": numpy.full(8, 2.0 if n == 3 else 1.0, "f2")}, side="engine")
        run.log({"loss": float("nan") if n == 2 else 0.5, "reward": 0.1 * n, "kl": 0.1, "unknown/name": 1.0})
        run.log({"clip_ratio": 2.0})
        run.completions(["p"], ["c"], rewards=[1.0])
        run.table("t", [{"a": 1}])
assert run.finish(60)
end_agents(60)
"""


DEATHS = """
import os, signal, subprocess, sys
import otel_rl
from otel_rl.recorder.directory.agent_start import end_agents

if os.environ["RANK"] == "0":
    other = subprocess.Popen([sys.executable, "-c", os.environ["SELF"]], env=os.environ | {"RANK": "1"})
run = otel_rl.init(dir="runs", project="p", name="n", id="i", exporters=[], dialect="trl", quiet=True)
with run.step(0), run.phase("generate"):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
try:
    with run.rollout(), run.trajectory() as trajectory, trajectory.part("tool", name="x"):
        raise ValueError("bad")
except ValueError:
    pass
try:
    with run.step(1), run.phase("train_step"):
        other.wait()
        raise MemoryError("no memory")
except MemoryError:
    assert run.finish(60)
end_agents(60)
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Requests of the agents of a run with all features, and of one whose ranks die."""
    environment = {f"OTEL_{signal}_EXPORTER": "otlp/stdout" for signal in SIGNALS}
    printed = run_python(ALL_FEATURES, tmp_path_factory.mktemp("features"), **environment)
    environment |= {"RANK": "0", "WORLD_SIZE": "2", "SELF": DEATHS}
    printed += run_python(DEATHS, tmp_path_factory.mktemp("deaths"), **environment)
    return emitted.requests(printed)


@pytest.mark.slow
def test_everything_is_declared(sent: list[dict[str, object]]) -> None:
    """Each metric, span, event and attribute is in the registry, with its type; the scope has the schema URL."""
    assert emitted.faults(sent) == set()


@pytest.mark.slow
def test_nearly_all_is_used(sent: list[dict[str, object]]) -> None:
    """Each span and event of the registry was sent, but those that need many steps or processes that return or hang."""
    declared = {group.name for group in registry.groups() if group.type in ("span", "event")}
    rare = {semconv.EVENT_STRAGGLER, semconv.EVENT_MEMORY_GROWING, semconv.EVENT_PROCESS_REVIVED}
    rare |= {semconv.EVENT_PHASE_STALLED, semconv.EVENT_PHASE_RESUMED}
    rare |= {semconv.EVENT_AUTOPSY_CONCLUDED, semconv.EVENT_WAIT_BROKEN, semconv.EVENT_WAIT_RESUMED}
    rare |= {semconv.SPAN_COMPLETION}  # with content=True alone

    assert declared - emitted.names(sent) == rare


def test_each_metric_has_an_emitter() -> None:
    """Code names its constant, or a framework logs it under a name of a dialect, or it is the duration of a span."""
    groups = registry.groups()
    named = {value for name, value in vars(semconv).items() if name.startswith("METRIC_")}  # there is no other one
    meanings = [meaning for name in (OWN, *dialects()) for meaning in dialect_file(name).metrics.values()]
    logged = {meaning if isinstance(meaning, str) else meaning.metric for meaning in meanings}
    measured = {f"{group.name}.duration" for group in groups if group.type == "span"}

    assert {group.metric_name for group in groups if group.type == "metric"} <= named | logged | measured
