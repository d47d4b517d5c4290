"""Decorated functions, threads, forked and spawned processes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.recorder.journal.ids import step_ids
from otel_rl.recorder.journal.records import SpanStarted
from tests.processes import run_python
from tests.recorder.trainer.reading import begin, ended, logged, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from otel_rl import Run
    from tests.recorder.trainer.reading import RecordsOf


def test_traced(recording: Run, records_of: RecordsOf) -> None:
    """Each call of a traced function is a phase; its arguments, its result and its name are the same."""

    @otel_rl.traced("reward", model="judge")
    def score(text: str, *, scale: float = 1.0) -> float:
        """Score a text."""
        return len(text) * scale

    with recording.step(0):
        result = score("abc", scale=2.0)
    records = records_of(recording)

    assert result == 6.0
    assert (score.__name__, score.__doc__) == ("score", "Score a text.")
    assert started(records)["reward"].parent_id == step_ids(recording.id, 0, 0).span_id
    assert ended(records, "reward").attributes == {"model": "judge"}


def test_traced_coroutine(recording: Run, records_of: RecordsOf) -> None:
    """A traced coroutine is a phase until it ends, and coroutines at once do not become each other's children."""
    order: list[str] = []

    @otel_rl.traced("rollout")
    async def rollout(name: str) -> str:
        with recording.phase(name):
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)
        return name

    async def both() -> list[str]:
        return await asyncio.gather(rollout("a"), rollout("b"))

    assert asyncio.run(both()) == ["a", "b"]
    assert order == ["a", "b", "a", "b"]

    records = records_of(recording)
    rollouts = {record.span_id for record in records if isinstance(record, SpanStarted) and record.name == "rollout"}

    assert rollouts == {started(records)[name].parent_id for name in "ab"}
    assert len(rollouts) == 2


def test_traced_without_a_name(recording: Run, records_of: RecordsOf) -> None:
    """The name of a function is that of its phase, with and without parentheses, also of each kind of method."""

    @otel_rl.traced
    def score() -> int:
        return 1

    class Worker:
        @otel_rl.traced()
        async def generate(self) -> int:
            return 2

        @otel_rl.traced(host="a")
        @staticmethod
        def load() -> int:
            return 3

        @otel_rl.traced
        @classmethod
        def build(cls) -> type:
            return cls

    assert (score(), asyncio.run(Worker().generate()), Worker.load(), Worker().build()) == (1, 2, 3, Worker)
    assert [*started(records_of(recording))] == ["score", "generate", "load", "build"]


class Remote:
    """A function of Ray, which cannot be called itself."""

    def __call__(self) -> None: ...

    def remote(self) -> None:
        """Call it elsewhere."""


@pytest.mark.parametrize("function", [int, property(len), Remote()])
@pytest.mark.parametrize("decorate", [otel_rl.traced, otel_rl.traced()], ids=["bare", "called"])
def test_what_cannot_be_traced(decorate: Callable[[Any], object], function: Any) -> None:
    """A class or a property is an error where it is decorated, which says what can be."""
    with pytest.raises(TypeError, match="use it on a function or on methods of a class"):
        decorate(function)


def test_traced_objects(recording: Run, records_of: RecordsOf) -> None:
    """Whatever can be called can be traced, also without parentheses; the name of the phase can be a keyword."""

    class Judge:
        def __call__(self, text: str) -> int:
            return len(text)

    class Engine:
        async def __call__(self) -> list[object]:
            with recording.phase("inner"):
                return []

    scores = [otel_rl.traced(partial(len, "abc"))(), otel_rl.traced(Judge())("abc")]
    scores.append(otel_rl.traced(name="reward")(Judge())("abc"))
    asyncio.run(otel_rl.traced(Engine())())
    spans = started(records_of(recording))

    assert scores == [3, 3, 3]
    assert [*spans] == ["partial", "Judge", "reward", "Engine", "inner"]
    assert spans["inner"].parent_id == spans["Engine"].span_id


def test_traced_without_a_run() -> None:
    """Without a run a traced function is what it was."""
    assert otel_rl.traced("reward")(len)("abc") == 3


def test_traced_before_init(tmp_path: Path, records_of: RecordsOf) -> None:
    """A function that is traced when it is defined records the run that is there when it is called."""
    size = otel_rl.traced("reward")(len)
    run = begin(tmp_path)
    size("abc")

    assert "reward" in started(records_of(run))


def test_traced_exception(recording: Run, records_of: RecordsOf) -> None:
    """An exception passes a traced function unchanged, and is recorded."""
    with pytest.raises(TypeError):
        otel_rl.traced("reward")(len)(7)
    error = ended(records_of(recording), "reward").error

    assert error is not None
    assert error[0] == "TypeError"


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator])
def test_traced_generator(function: Callable[[], object]) -> None:
    """A generator cannot be traced, and the error says what can."""
    with pytest.raises(TypeError, match=rf"{function.__name__} is a generator; use `with run.phase\('reward'\)`"):
        otel_rl.traced("reward")(function)


def test_threads(recording: Run, records_of: RecordsOf) -> None:
    """Phases in threads that know nothing of the step hang under the step that is open."""

    def score(number: int) -> None:
        with recording.phase(f"outer{number}"), recording.phase(f"inner{number}"):
            recording.log({f"score{number}": number})

    with recording.step(3), ThreadPoolExecutor(4) as pool:
        list(pool.map(score, range(50)))
    records = records_of(recording)
    spans = started(records)
    ids = step_ids(recording.id, 0, 3)

    assert {ids.span_id} == {spans[f"outer{number}"].parent_id for number in range(50)}
    assert all(spans[f"inner{n}"].parent_id == spans[f"outer{n}"].span_id for n in range(50))
    assert {(ids.trace_id.to_bytes(16, "big"), 3)} == {(span.trace_id, span.step) for span in spans.values()}
    assert [step for step, _ in logged(records)] == [3] * 50
    assert set(range(50)) == {number for _, values in logged(records) for number in values.values()}


_FORKED = """
import os, otel_rl
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord
def journal(run, who):
    reader = Reader(next(run.dir.glob(f"local/*/journals/{who}.attempt0.*")), AnyRecord)
    return [type(record).__name__ for record in reader.read()]
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7")
with run.step(0):
    with run.phase("generate"):
        child = os.fork()
        if child == 0:
            CHILD
            os._exit(0)
        os.waitpid(child, 0)
run.finish()
print(journal(run, "rank0"))
"""
_PARENT = ["Started", "StepStarted", "SpanStarted", "SpanEnded", "StepEnded", "Finished"]


_AGAIN = "otel_rl.init(agent='off', exporters=[], quiet=True, project='test', id='run-7'"


@pytest.mark.parametrize(
    ("child", "told"),
    [
        pytest.param(
            [
                "with run.phase('x'): run.log({'a': 1})",
                "with run.step(1): run.event('e')",
                "run.params({})",
                "run.finish(0)",
                "print(journal(run, 'worker'), flush=True)",
            ],
            "['Started', 'SpanStarted', 'Logged', 'SpanEnded', 'StepStarted', 'Happened', 'StepEnded', 'Configured', "
            "'Finished']\n",
            id="uses the run of its parent",
        ),
        pytest.param(["raise SystemExit"], "", id="unwinds the step and the phase of its parent"),
        pytest.param(
            [
                f"mine = {_AGAIN}, role='worker')",
                "with mine.step(5): mine.log({'a': 1})",
                "mine.finish()",
                "print(journal(mine, 'worker'), flush=True)",
            ],
            f"{['Started', 'StepStarted', 'Logged', 'StepEnded', 'Finished']}\n",
            id="records itself",
        ),
        pytest.param(
            [
                f"try: {_AGAIN}, strict=True)",
                "except otel_rl.SettingsError as error: print(error, flush=True)",
                "print(len(list(run.dir.glob('local/*/journals/*'))), flush=True)",
            ],
            "rank0.attempt0 in {journals} is being recorded by another process: "
            "give each process its own rank= (or RANK), or a role=\n1\n",
            id="claims the rank of its parent",
        ),
    ],
)
def test_a_forked_child(tmp_path: Path, child: list[str], told: str) -> None:
    """It writes nothing into the journal of its parent, and may record one of its own, but not as the same rank."""
    output = run_python(_FORKED.replace("CHILD", "\n            ".join(child)), tmp_path)
    (journals,) = (tmp_path / "runs").glob("test/run-7/local/*/journals")

    assert output == f"{told.replace('{journals}', str(journals))}{_PARENT}\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    """A process of `multiprocessing` that calls `init` has its whole journal, though it never calls `finish`."""
    (tmp_path / "workers.py").write_text(
        """
import otel_rl
def work(rank):
    run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7", rank=rank, world_size=2)
    run.log({"loss": 1.0}, step=0)
"""
    )
    script = f"""
import multiprocessing, pathlib, workers
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord
if __name__ == "__main__":
    processes = [multiprocessing.get_context({method!r}).Process(target=workers.work, args=(n,)) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    for path in sorted(pathlib.Path("runs/test/run-7/local").glob("*/journals/*")):
        print(path.name.rpartition(".")[0], [type(record).__name__ for record in Reader(path, AnyRecord).read()])
"""
    expected = [f"rank{rank}.attempt0 {['Started', 'Logged', 'Finished']}\n" for rank in range(2)]

    assert run_python(script, tmp_path) == "".join(expected)
