"""A process that records many runs, one after the other, as a hyper-parameter search does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import run_python

pytestmark = pytest.mark.slow

_MANY = """
import gc, json, os, shutil, threading
from pathlib import Path
import otel_rl

class Nothing:
    def __init__(self, run): pass
    def export(self, items): pass
    def shutdown(self): pass

def record(agent, exporters):
    run = otel_rl.init(
        dir="runs", project="p", config={"lr": 1.0}, agent=agent, exporters=exporters, hardware=False, quiet=True
    )
    for number in range(3):
        with run.step(number), run.phase("generate"):
            run.log({"loss": 1.0, "lengths": [1.0, 2.0]})
            with run.trajectory():
                pass
    run.table("t", {"text": ["a"]}, step=2)
    run.step(-1)
    run.finish(30 if agent == "auto" else 0)
    shutil.rmtree(run.dir, ignore_errors=True)

def held():
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "files mapped": sum(".seg" in line for line in maps),
        "objects": len(gc.get_objects()),
    }

count, agent = json.loads(os.environ["HOW"])
exporters = [lambda run: Nothing(run), "jsonl"] if agent == "auto" else ["jsonl"]
for _ in range(3):
    record(agent, exporters)
before = held()
for _ in range(count):
    record(agent, exporters)
print(json.dumps([before, held()]))
"""


@pytest.mark.parametrize(("count", "agent"), [(100, "off"), (3, "auto")])
def test_nothing_of_a_run_stays(tmp_path: Path, count: int, agent: str) -> None:
    """Descriptors, threads, mappings and objects are as many after a hundred runs as after a few."""
    said = run_python(_MANY, tmp_path, HOW=json.dumps([count, agent]))
    before, after = json.loads(said)

    assert after.pop("objects") - before.pop("objects") < 20
    assert after == before
