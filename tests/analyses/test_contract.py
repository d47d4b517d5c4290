"""The contract of analyses: a third party's is found, one that raises stops nothing, a checkpoint continues each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from otel_rl.analysis import ENTRY_POINT_GROUP, Analysis, Basis, Conclusion, LoopTurn, Point
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.analyses import Analyses, registered
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.settings.settings import AgentSettings
from otel_rl.semconv.vocabulary import Vocabulary
from tests.analyses.stream import STEPS, Run, S, last_records, records
from tests.docs.snippets import blocks
from tests.processes import rows_of

_TRAINING = """
import otel_rl
run = otel_rl.init(exporters=["jsonl"], hardware=False, quiet=True, id="r", project="p")
for step, reward in enumerate((0.5, 1.0, 0.25)):
    with run.step(step):
        run.log({"reward": reward})
assert run.finish()
"""
_ACTIONS = [*records(), *range(0, 100, 20), last_records()]
"""Batches of records, and seconds after the last step at which processes are looked at."""
_BEGINS_ANEW = "now recent_shares"
"""The checkpoint does not have what a viewer shows of the last 20 steps."""
_TIME = re.compile(r"time_unix_nano=\d+|'rl.stall.age': [\d.]+")
"""A verdict that needs two looks comes one look later, and a process that is not late yet has its time again."""


def _played(run: Run, begin: int = 0) -> Iterator[int]:
    """Play the actions from a place on, and yield the place of each before it is played."""
    for number, action in enumerate(_ACTIONS[begin:], begin):
        yield number
        if isinstance(action, int):
            run.tick((STEPS * 10 + action) * S)
        else:
            run.feed(action, number)
    run.show()
    assert run.quarantine.count == 0


def _lasting(facts: Counter[str]) -> Counter[str]:
    """Return the facts that a run makes whoever looks at it, without their times."""
    return Counter(_TIME.sub("", fact) for fact in facts.elements() if not fact.startswith(_BEGINS_ANEW))


@pytest.mark.parametrize("name", [name for name, one in registered(Quarantine()).items() if "snapshot" in vars(one)])
def test_a_snapshot_continues(name: str) -> None:
    """An analysis with a part of the checkpoint concludes the same as one that was never interrupted, at any place.

    After the last place that is tried, it looks at the processes once more: before it looks, it knows nothing of now.
    """
    factories = {name: registered(Quarantine())[name]}
    run = Run(factories, "http://127.0.0.1:9/metrics")
    run.probes = []
    places: list[tuple[bytes, bytes, Counter[str]]] = []
    """The state and the snapshots before each action, and the facts until then."""
    for _ in _played(run):
        saved = msgspec.msgpack.encode(run.reducer.state), msgspec.msgpack.encode(run.analyses.snapshots())
        places.append((*saved, run.facts.copy()))

    for cut, (state, snapshots, earlier) in enumerate(places[1:-1], 1):
        saved_state = msgspec.msgpack.decode(state, type=State)
        begun = Run(
            factories,
            "http://127.0.0.1:9/metrics",
            saved_state,
            msgspec.msgpack.decode(snapshots, type=dict[str, msgspec.Raw]),
        )
        begun.probes = []
        for _ in _played(begun, cut):
            pass
        assert _lasting(begun.facts) == _lasting(run.facts - earlier), cut


class Answers(Analysis):
    """Has a column, a point and a part of `now.json`."""

    def close(self, step: object, values: object) -> Conclusion:
        return Conclusion({"answer": 42.0})

    def points(self) -> list[Point]:
        return [Point("my.answer", 42.0)]

    def now(self) -> dict[str, object]:
        return {"answer": 42}


class Unencodable(Analysis):
    """Has parts that no file can hold."""

    def now(self) -> dict[str, object]:
        return {"answer": object()}

    def snapshot(self) -> object:
        return object()


def analyses(*classes: type[Analysis]) -> tuple[Analyses, Quarantine]:
    quarantine = Quarantine()
    basis = Basis(state=State(), vocabulary=Vocabulary("auto"), settings=AgentSettings())
    return Analyses({one.__name__: one for one in classes}, basis, quarantine, {}), quarantine


def test_one_that_raises() -> None:
    """It is counted, and the others answer."""
    both, quarantine = analyses(Answers, Unencodable)

    assert both.close(object(), {}).values == {"answer": 42.0}
    assert (both.now(), both.snapshots()) == ({"answer": 42}, {})
    assert quarantine.count == 2


class WrongTypes(Analysis):
    """Gives what a row and the outbox cannot hold."""

    def close(self, step: object, values: object) -> Conclusion:
        return Conclusion({"text": "one"})  # type: ignore[dict-item]

    def see(self, items: object) -> list[Event]:
        return [Event("my.event", 1, {"none": None})]  # type: ignore[dict-item]

    def tick(self, turn: object) -> list[object]:
        return ["no item"]


def test_values_and_items_of_wrong_types() -> None:
    """They are counted: in the outbox, they would make other items unreadable."""
    both, quarantine = analyses(WrongTypes)

    assert both.close(object(), {}) == Conclusion({}, [])
    assert both.see([Event("any", 1, {})]) == both.tick(LoopTurn(0, 0.0, (), False)) == []
    assert quarantine.count == 3


def test_one_that_cannot_be_built() -> None:
    """It is left out."""
    both, quarantine = analyses(Answers, lambda basis: 1 / 0)  # type: ignore[arg-type]
    none, _ = analyses(object)  # type: ignore[arg-type]  # not an analysis

    assert ([*both.by_name], quarantine.count, none.by_name) == (["Answers"], 1, {})


def test_a_metric_of_a_third_party() -> None:
    """The registry does not have it, so it is shown as a metric that no dialect knows."""
    both, _ = analyses(Answers)

    assert [*both.points(of_run=True)] == [("Answers", [Point("rl.metric", 42.0, (("rl.metric.name", "my.answer"),))])]


def test_a_third_partys_analysis(tmp_path: Path) -> None:
    """The first example of the docs: pip's entry point is enough for its columns and its events."""
    code, *_ = (one.code for one in blocks() if one.page.endswith("write-an-analysis.md") and one.language == "python")
    (entry,) = (one.code for one in blocks() if one.page.endswith("write-an-analysis.md") and one.language == "toml")
    declared = msgspec.toml.decode(entry)["project"]["entry-points"][ENTRY_POINT_GROUP]
    metadata = tmp_path / "my_package-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    lines = "".join(f"{name} = {place}\n" for name, place in declared.items())
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}")
    (tmp_path / "my_package.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _TRAINING], cwd=tmp_path, env=environment, check=True)
    run = tmp_path / "runs" / "p" / "r"

    assert [row["values"]["reward/best"] for row in rows_of(run)] == [0.5, 1.0, 1.0]


def test_an_analysis_that_takes_single_records() -> None:
    """The second example of the docs counts the calls of each rank: one in each step."""
    _, code = (one.code for one in blocks() if one.page.endswith("write-an-analysis.md") and one.language == "python")
    names: dict[str, Any] = {}
    exec(code, names)
    run = Run({"calls": names["CallsOfLog"]}, "http://127.0.0.1:9/metrics")
    for number, batch in enumerate(records()):
        run.feed(batch, number)
    ((_, points),) = run.analyses.points(of_run=True)

    assert [(dict(point.attributes)["rl.rank"], point.value) for point in points] == [(0, STEPS), (1, STEPS)]
