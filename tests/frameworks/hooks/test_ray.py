"""A Ray driver with actors, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rl.export import Event, Item, Row, Span
from otel_rl.recorder.journal.ids import step_ids
from tests.processes import items_of, run_python
from tests.real_parts import needs

pytestmark = [needs("ray"), pytest.mark.timeout(240), pytest.mark.slow]
_DRIVER = """
import otel_rl, ray
from otel_rl.frameworks.ray import traced_actor

@ray.remote
@traced_actor(role="rollout")
class Worker:
    def __init__(self, scale):
        self.scale = scale
    def generate(self, prompts, *, temperature=1.0):
        with otel_rl.current().phase("generate"):
            return [prompt * self.scale for prompt in prompts]
    def fail(self):
        raise ValueError("no prompt")
    def stream(self):
        yield 1

@ray.remote
@traced_actor()
class Reward:
    def __init__(self, workers):
        self.workers = workers
    async def score(self, texts, **options):
        with otel_rl.current().phase("reward"):
            return len(await self.workers[0].generate.remote(texts, **options))

ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
workers = [Worker.remote(n + 1) for n in range(2)]
print(ray.get(workers[0].generate.remote(["before"])) if RECORDS is False else "")
if RECORDS:
    run = otel_rl.init(project="p", id="ray", dir=".", quiet=True, hardware=False)
    reward = Reward.remote(workers)
    for n in range(3):
        with run.step(n), run.phase("rollout"):
            texts = ray.get([worker.generate.remote(["a"], temperature=0.5) for worker in workers])
            score = ray.get(reward.score.remote(texts[0] + texts[1], temperature=0.1))
        run.log({"reward": score}, step=n)
    with run.step(3):
        try:
            ray.get(workers[1].fail.remote())
        except ValueError as error:
            print(type(error).__name__)
    print(ray.get(next(workers[0].stream.options(num_returns="streaming").remote())))
    ray.shutdown()
    print(bool(run.finish(30)))
"""


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """The items of a driver's run with two rollout workers and a reward actor."""
    place: Path = tmp_path_factory.mktemp("ray")
    output = run_python(_DRIVER.replace("RECORDS", "True"), place, RAY_USAGE_STATS_ENABLED="0")
    assert output.split()[-3:] == ["RayTaskError(ValueError)", "1", "True"]
    return items_of(place / "p" / "ray")


def spans(items: list[Item], step: int) -> list[Span]:
    trace_id = f"{step_ids('ray', 0, step).trace_id:032x}"
    return [item for item in items if isinstance(item, Span) and item.trace_id == trace_id]


def test_one_trace_through_the_actors(items: list[Item]) -> None:
    """Calls are under the driver's phase, and a call that an actor makes is under that actor's phase."""
    for step in range(3):
        of_step = spans(items, step)
        names = {span.span_id: span.name for span in of_step}
        under = sorted((names.get(span.parent_id, ""), span.name) for span in of_step)
        assert under == [
            ("", "rl.loop"),
            ("Reward.score", "rl.reward"),
            ("Worker.generate", "rl.sample"),
            ("Worker.generate", "rl.sample"),
            ("Worker.generate", "rl.sample"),
            ("rl.loop", "rl.sample"),
            ("rl.reward", "Worker.generate"),
            ("rl.sample", "Reward.score"),
            ("rl.sample", "Worker.generate"),
            ("rl.sample", "Worker.generate"),
        ]


def test_roles_are_visible(items: list[Item]) -> None:
    """Actors of one role are numbered; without one it is the name of the class."""
    who = {(s.attributes.get("rl.role"), s.attributes.get("rl.rank")) for s in spans(items, 0) if s.name != "rl.loop"}

    assert who == {(None, 0), ("rollout", 0), ("rollout", 1), ("Reward", 0)}


def test_a_call_that_fails(items: list[Item]) -> None:
    """The span has the exception, and so has the driver."""
    (failed,) = (span for span in spans(items, 3) if span.name == "Worker.fail")

    assert failed.error == "ValueError: no prompt"


def test_actors_end_with_the_driver(items: list[Item]) -> None:
    """Ray kills idle actors, which is not a lost process. Rows are the driver's."""
    assert [item for item in items if isinstance(item, Event) and item.name == "rl.process.lost"] == []
    assert [item.values["reward"] for item in items if isinstance(item, Row) and "reward" in item.values] == [2.0] * 3


def test_without_a_run_nothing_changes(tmp_path: Path) -> None:
    """An actor that is called where nothing is recorded works as without us."""
    script = _DRIVER.replace("RECORDS", "False").replace('with otel_rl.current().phase("generate"):', "if True:")

    assert run_python(script, tmp_path, RAY_USAGE_STATS_ENABLED="0").split() == ["['before']"]
