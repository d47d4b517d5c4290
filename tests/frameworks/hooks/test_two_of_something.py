"""Programs of real trackers that have two of something: axes, data sets, threads, names, and what is logged again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_rl.frameworks.mlflow_runs import MetricNames
from tests.frameworks.hooks.test_kept import kept, records
from tests.processes import run_python
from tests.real_parts import needs

_SLOW = [pytest.mark.slow, pytest.mark.timeout(200)]
_PROGRAMS = {
    "wandb": (
        """
import os, wandb
run = wandb.init(project="p", name="first", dir=os.getcwd())
run.config.lr = 0.1
run.name = "mine"; run.tags = ("a",)
run.define_metric("x", step_metric="env"); run.define_metric("x", summary="max")
for n in range(2): run.log({"x": 1.0 * n, "env": 100 * n, "y": 2.0})
run.notes = "late"
run.finish()
""",
        {"x@0": 0.0, "x@100": 1.0, "y@0": 2.0, "y@1": 2.0},
        {"lr": 0.1, "wandb.tags.0": "a", "wandb.notes": "late"},
    ),
    "tensorboard": (
        """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("tb/mine")
writer.add_text("note", "text")
writer.add_hparams({"lr": 0.1}, {"best": 0.5}, None, "trial", 3)
writer.close()
""",
        {"best@3": 0.5},
        {"lr": 0.1},
    ),
    "mlflow": (
        """
import mlflow
mlflow.set_tracking_uri("sqlite:///ml.db"); mlflow.set_experiment("p")
client = mlflow.MlflowClient()
with mlflow.start_run(run_name="first") as run:
    client.update_run(run.info.run_id, name="mine")
    for n in range(2):
        for data in ("train", "eval"):
            value = 1.0 * n + 10 * (data == "eval")
            of = {"dataset_name": data, "dataset_digest": data}
            client.log_metric(run.info.run_id, "acc", value, step=n, **of)
    client.set_tag(run.info.run_id, "mlflow.runName", "later")
""",
        {"acc@0": 0.0, "acc@1": 1.0, "eval/acc@0": 10.0, "eval/acc@1": 11.0},
        {"mlflow.name": "later"},
    ),
    "swanlab": (
        """
import swanlab
run = swanlab.init(project="p", experiment_name="mine", mode="offline", log_dir="swan", group="g", tags=["a"])
run.define_metric("train/*", x_axis="train/step")
for n in range(2): swanlab.log({"train/x": 1.0 * n, "train/step": 100 * n})
run.async_log(lambda: {"score": 0.5}, step=7).result()
run.log_scalar(key="last", value=2.0)
swanlab.finish()
""",
        {"train/x@0": 0.0, "train/x@100": 1.0, "score@7": 0.5, "last@8": 2.0},
        {"swanlab.group": "g", "swanlab.tags.0": "a"},
    ),
    "trackio": (
        """
import trackio
run = trackio.init(project="p", name="mine", auto_log_gpu=False, embed=False, group="g")
run.log({"x": 1.0}); run.log({"x": 2.0}, step=5); run.log({"x": 3.0})
run.finish()
""",
        {"x@0": 1.0, "x@5": 2.0, "x@6": 3.0},
        {"trackio.group": "g"},
    ),
}


@pytest.mark.parametrize("tracker", [pytest.param(name, marks=[*_SLOW, needs(name)]) for name in _PROGRAMS])
def test_each_is_recorded(tracker: str, tmp_path: Path) -> None:
    """Under the last name from before the first value, at its axis or counter; later names and tags are parameters."""
    program, expected, described = _PROGRAMS[tracker]
    name, values, params = kept(tmp_path, tracker, program)

    assert name == "mine"
    assert values == expected
    assert {key: params.get(key) for key in described} == described
    assert [place.name for place in tmp_path.glob("runs/*")] == ["p"] or tracker == "tensorboard"


_THREADS = """
import os, sys, threading, wandb
sys.setswitchinterval(1e-5)
run = wandb.init(project="p", dir=os.getcwd())
def log(number):
    for n in range(60): run.log({f"x{number}": 1.0 * n})
threads = [threading.Thread(target=log, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
run.finish()
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
@needs("wandb")
def test_threads_that_log_without_a_step(tmp_path: Path) -> None:
    """Each call has a step of its own, as in W&B's file."""
    _, values, _ = kept(tmp_path, "wandb", _THREADS)

    assert sorted(int(name.partition("@")[2]) for name in values) == list(range(240))


_FIRST_IN_A_CHILD = """
import multiprocessing, os, wandb
run = wandb.init(project="p", name="mine", dir=os.getcwd(), config={"lr": 0.1})
run.define_metric("*", step_metric="env")
child = multiprocessing.get_context("fork").Process(target=run.log, args=({"x": 1.0, "env": 10},))
child.start(); child.join()
run.finish()
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
@needs("wandb")
def test_a_first_value_in_a_forked_child(tmp_path: Path) -> None:
    """Its run has the name and the configuration that the parent gave it."""
    name, values, params = kept(tmp_path, "wandb", _FIRST_IN_A_CHILD)

    assert (name, values, params.get("lr")) == ("mine", {"x@10": 1.0}, 0.1)


_MEANWHILE = """
import itertools, threading
from torch.utils.tensorboard import SummaryWriter
writer, other, done = SummaryWriter("tb/mine"), SummaryWriter("tb/mine/eval"), threading.Event()
writer.add_scalar("x", 1.0, 0)
def log():
    count = next(n for n in itertools.count(1) if other.add_scalar("x", 2.0, n) or done.is_set())
    other.add_scalar("count", count, 0)
thread = threading.Thread(target=log)
thread.start()
for n in range(2): writer.add_hparams({"lr": 0.1}, {"best": 0.5}, run_name=str(n))
done.set(); thread.join()
writer.close(); other.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
@needs("tensorboard")
def test_a_thread_that_logs_while_another_adds_hparams(tmp_path: Path) -> None:
    """Its values are recorded, though what `add_hparams` itself writes is left out."""
    values = kept(tmp_path, "tensorboard", _MEANWHILE)[1]

    assert sum(name.startswith("eval/x@") for name in values) == values["eval/count@0"] > 0
    assert {name for name in values if not name.startswith("eval/")} == {"x@0", "best@0"}


_AGAIN = """
import os
from torch.utils.tensorboard import SummaryWriter
for purge in (None, 2):
    writer = SummaryWriter("tb/mine", purge_step=purge)
    for n in range(purge or 0, 3 if purge else 5): writer.add_scalar("x", 1.0 * n, n)
    writer.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
@needs("tensorboard")
def test_a_writer_that_purges_later_steps(tmp_path: Path) -> None:
    """It is another attempt, which takes the place of these steps."""
    kept(tmp_path, "tensorboard", _AGAIN)
    (journal,) = tmp_path.rglob("journals/rank0.attempt1.*")

    assert records(journal.parents[3], attempt=1)[0] == {"x@2": 2.0}


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ([("a", None, 0), ("b", None, 0), ("a", None, 1), ("b", None, 1)], ["x", "b/x", "x", "b/x"]),
        ([(None, "m0", 0), (None, "m1", 10), (None, "m2", 20)], ["x", "x", "x"]),
        ([(None, "m0", 0), (None, "m1", 0)], ["x", "m1/x"]),
        ([("a", "m0", 0), ("b", "m0", 0), ("a", "m1", 1), ("b", "m1", 1)], ["x", "b/x", "x", "b/x"]),
        ([(None, None, 0), (None, None, 0)], ["x", "x"]),
        ([(None, None, 0), ("a", None, 0), (None, None, 1), ("a", None, 1)], ["x", "a/x", "x", "a/x"]),
        ([("a", None, 0), (None, None, 0), ("a", None, 1), (None, None, 1)], ["x", "none/x", "x", "none/x"]),
    ],
)
def test_data_sets_and_models(metrics: list[tuple[str | None, str | None, int]], names: list[str]) -> None:
    """A curve of a data set or a model is apart where it goes over steps that another one has."""
    known = MetricNames()
    found: list[Any] = []
    for data, model, step in metrics:
        found.append(known.of("run", {"key": "x", "step": step, "dataset_name": data, "model_id": model}))

    assert found == names


def test_a_count_that_was_interrupted(tmp_path: Path) -> None:
    """A handler of a signal may log inside of a call, and a child may be forked while another thread counts."""
    script = """
import os, signal, threading
from otel_rl.frameworks import tracker

run = lambda: None
known = tracker.Tracker("x")
source = known.run("a", run)
with tracker._counting:  # as the call that a handler interrupts
    counts = [known.count(source, run, None, 0)]
    signal.alarm(20)
    child = threading.Thread(target=lambda: counts.append(os.fork() or os._exit(known.count(source, run, None, 0))))
    child.start()
    child.join()
    counts.append(os.waitstatus_to_exitcode(os.waitpid(counts.pop(), 0)[1]))
print(counts)
"""
    assert run_python(script, tmp_path).strip() == "[0, 1]"
