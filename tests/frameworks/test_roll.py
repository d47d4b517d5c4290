"""ROLL's own code, from a checkout in the directory that `OTEL_RL_SOURCES` names: its RLVR loop, trackers, reducers."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.frameworks import roll as ours
from otel_rl.frameworks.patches import Patches
from otel_rl.recorder.journal.records import Record, SpanStarted
from tests.docs.snippets import coming_from
from tests.frameworks.recorded import Recorded, launched, messages_of, only, plain, tokens_of
from tests.frameworks.results import SOURCES, Values, by_step, logged, tensorboard

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (SOURCES / "ROLL").exists(), reason="no ROLL in OTEL_RL_SOURCES"),
]
_OF_THE_SNIPPET = "roll-agentic"
"""The project of the snippet in the page on migrating."""
REVISION = "8eb27cc"
_SCRIPT = "roll_with_toy_clusters.py"
_TIMED = {"stop_server", "model_update", "generate", "ref_log_probs", "old_log_probs_values", "get_sample_level_mask"}
_TIMED |= {"reward_postprocess", "get_token_reward", "compute_advantage", "train", "do_checkpoint"}


@pytest.fixture(scope="module")
def roll(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Import ROLL's trackers, reducers and context managers, for a device that has no memory."""
    sys.path.insert(0, str(SOURCES / "ROLL"))
    os.environ["ROLL_LOG_DIR"] = str(tmp_path_factory.mktemp("logs"))
    import torch
    from roll.utils import context_managers, functionals, tracking  # type: ignore[import-not-found] # a checkout

    platform = context_managers.current_platform
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats"):
        setattr(platform, name, lambda _: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(platform, name, lambda *_: 2**30)
    platform.device_memory_used, platform.mem_get_info = lambda: 2**31, lambda _: (2**31, 2**32)
    return type(
        "roll", (), {"tracking": tracking, "functionals": functionals, "states": context_managers, "torch": torch}
    )


def environment(directory: Path) -> dict[str, str]:
    """Return the variables of a training with ROLL's loop."""
    told = {"PYTHONPATH": str(SOURCES / "ROLL"), "OTEL_RL_DIR": str(directory / "runs"), "ROLL_DEBUG": "1"}
    return told | {"WANDB_MODE": "offline"}


def wrote(directory: Path) -> Values:
    """Return the values that the pipeline logged, without the tags of reducers."""
    rows = logged(directory / "logged.jsonl").items()
    return {step: {name.rsplit("@", 1)[0]: value for name, value in values.items()} for step, values in rows}


def scalars(directory: Path) -> Values:
    """Return the numbers in TensorBoard's files, also in those of nested values."""
    places = {event.parent for event in directory.rglob("events.out.tfevents.*")}
    nested = {path: f"{path.name}:" if path != directory and "_" in path.name else "" for path in places}
    found = ((nested[path], step, of) for path in places for step, of in tensorboard(path).items())
    return by_step((step, {f"{prefix}{tag}": value for tag, value in of.items()}) for prefix, step, of in found)


def finite(values: dict[str, float]) -> dict[str, float]:
    """Return what is a number, as precise as TensorBoard's files are."""
    return {name: float(np.float32(value)) for name, value in values.items() if not math.isnan(value)}


def test_the_loop_without_changes(tmp_path: Path) -> None:
    """Every number that the loop logs is in the row of its step, its timers are phases, its tracker gets the same."""
    launched(tmp_path, _SCRIPT, "tensorboard", '{"log_dir": "tb"}', **environment(tmp_path))
    (recorded,) = map(Recorded, (tmp_path / "runs").glob("*/*"))
    spelled = {
        step: {name: "NaN" if math.isnan(value) else value for name, value in values.items()}  # as rows have it
        for step, values in wrote(tmp_path).items()
    }
    ran = "RLVRPipeline.run for three steps under `otel-rl run`; toy clusters and schedulers, the rest is ROLL's"
    found = recorded.agrees(spelled, "roll", REVISION, ran)
    phases = {step: set(inside) for step, inside in recorded.phases.items()}

    assert (len(found.equal) > 900, found.steps) == (True, [0, 1, 2])
    assert phases == {0: _TIMED | {"val_step"}, 1: _TIMED, 2: _TIMED | {"val_step"}}
    own = scalars(tmp_path / "tb")
    for step, values in wrote(tmp_path).items():
        assert finite(values) == finite(own[step])


def test_texts_and_tokens_are_those_that_it_trains_on(tmp_path: Path) -> None:
    """Texts of each step are those of ROLL's own dump, ids, masks and log-probabilities those of its batches."""
    launched(tmp_path, _SCRIPT, "stdout", "{}", **environment(tmp_path), OTEL_RL_CONTENT="true")
    (directory,) = (tmp_path / "runs").glob("*/*")
    dumps = [json.loads(path.read_text()) for path in (tmp_path / "own").glob("*.jsonl")]
    theirs = {}
    for batch in map(json.loads, (tmp_path / "batches.jsonl").read_text().splitlines()):
        attended = [sum(attention) - 3 for attention in batch["attention_mask"]]
        names = {"input_ids": 3, "final_response_mask": 2, "infer_logprobs": 2, "old_log_probs": 2}
        theirs[batch["step"]] = sorted(
            tuple(batch[name][n][start : start + of] for name, start in names.items()) for n, of in enumerate(attended)
        )
    texts = {step: sorted(own[-1]["text"] for own in of_step) for step, of_step in messages_of(directory).items()}

    assert tokens_of(directory) == theirs
    assert dumps
    assert all(texts[dump["global_step"][0]] == sorted(dump["responses"]) for dump in dumps)


def test_coming_from_its_tracker(tmp_path: Path) -> None:
    """With the snippet of the page executed in ROLL's module, the agent writes what ROLL's own tracker would write."""
    (tmp_path / "snippet.py").write_text(coming_from("ROLL"))
    plain(tmp_path, _SCRIPT, "tensorboard", '{"log_dir": "tb"}', **environment(tmp_path))
    written = scalars(tmp_path / "tb")
    (row,) = only(tmp_path / "runs" / _OF_THE_SNIPPET).reduced

    assert (row.step, row.values) == (1, row.values | {"critic/score/mean": 0.5, "actor/clipfrac": 0.1})

    for step, values in wrote(tmp_path).items():
        assert finite(values).items() <= written[step].items()


_VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(-1e6, 1e6),
    st.booleans(),
    st.text("ab", max_size=3),
    st.none(),
    st.lists(st.floats(-1e6, 1e6), max_size=5),
    st.lists(st.booleans(), max_size=4),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)),
    st.lists(st.floats(-9, 9), min_size=1, max_size=4).map(np.array),
    st.lists(st.lists(st.floats(-9, 9), min_size=2, max_size=2), min_size=1, max_size=3).map(np.array),
    st.floats(-9, 9).map(np.float32),
    st.floats(-9, 9).map(np.array),
    st.sampled_from(["0-d tensor", "2-d tensor"]),
    st.dictionaries(st.text("ab"), st.integers(), max_size=1),
)
_NAMES = st.sampled_from(
    ["loss", "loss@sum", "x@ max", "x@foo", "a@b@mean", "@std", "ratio_max", "max", "_min", "x_p99", "t@p50", "n_foo"]
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), st.sampled_from([None, np.max, len]))
@settings(max_examples=400, deadline=None)
def test_metrics_are_reduced_as_by_roll(
    roll: Any, metrics: dict[str, Any], function: Callable[..., Any] | None
) -> None:
    """The same metrics are left, in place, or the same exception is raised."""
    tensors = {"0-d tensor": roll.torch.tensor(1.5), "2-d tensor": roll.torch.ones(2, 2)}
    given = {
        name: tensors[value] if isinstance(value, str) and value in tensors else value
        for name, value in metrics.items()
    }
    outcomes = []
    for reduce in (roll.functionals.reduce_metrics, ours.reduce_metrics):
        reduced = dict(given)
        try:
            returned = reduce(reduced, *([] if function is None else [function]))
            outcomes.append((returned is reduced, repr(reduced)))
        except Exception as error:  # whatever ROLL raises
            outcomes.append((type(error), repr(reduced)))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("name", "keywords", "error"),
    [
        (None, {}, None),
        ("", {}, None),
        ("comet", {}, ValueError),
        ("tensorboard", {}, KeyError),
        ("stdout", {"x": 1}, None),
    ],
)
def test_trackers_raise_the_same(
    roll: Any, recording: otel_rl.Run, name: str | None, keywords: dict[str, int], error: type[Exception] | None
) -> None:
    """Both raise, or neither does, and whatever is logged then raises only in ROLL's."""
    for create in (roll.tracking.create_tracker, ours.create_tracker):
        if error is None:
            tracker = create(name, {}, **keywords)
            tracker.log({"loss": 1.0, "nested": {"a@max": 2}}, step=0)
            tracker.finish()
        else:
            with pytest.raises(error):
                create(name, {}, **keywords)


def test_a_tracker_of_the_user(roll: Any, recording: otel_rl.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that is registered with ROLL gets its calls, and is recorded."""

    class Own(roll.tracking.BaseTracker):  # type: ignore[misc] # ROLL's class
        calls: ClassVar[list[object]] = []

        def __init__(self, config: object, **keywords: object) -> None:
            self.calls.append(keywords)

        def log(self, values: object, step: int | None = None, **keywords: object) -> None:
            self.calls.append((values, step))

    monkeypatch.setitem(roll.tracking.tracker_registry, "own", Own)
    tracker: Any = ours.create_tracker("own", {}, project="p")
    tracker.log({"loss": 0.5}, step=3)

    assert Own.calls == [{"project": "p"}, ({"loss": 0.5}, 3)]


class Strategy:
    """What ROLL asks of a strategy, written down."""

    def __init__(self, offload_nccl: bool) -> None:
        self.offload_nccl = offload_nccl
        self.asked: list[object] = []

    def load_states(self, **keywords: object) -> None:
        self.asked.append(("load", keywords))

    def offload_states(self, **keywords: Any) -> None:
        self.asked.append(("offload", {name: Counter(map(str, value)) for name, value in keywords.items()}))


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("nccl", [False, True])
@pytest.mark.parametrize("offloads", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_states_are_managed_as_by_roll(
    *,
    roll: Any,
    recording: otel_rl.Run,
    records_of: Callable[..., list[Record]],
    monkeypatch: pytest.MonkeyPatch,
    hooked: bool,
    debug: str,
    nccl: bool,
    offloads: bool,
    fails: bool,
) -> None:
    """The same calls in the same order, process groups included, the same metrics, the same exception; and a phase."""
    monkeypatch.setenv("ROLL_DEBUG", debug)
    seen: list[object] = []
    for name in ("reload_process_groups", "destroy_process_groups"):
        monkeypatch.setattr(roll.states, name, lambda name=name: seen.append(name))
    keywords = {"include": [roll.states.OffloadStateType.model_params]}
    patches, found = Patches(), []
    for manage in (roll.states.state_offload_manger, ours.state_offload_manager):
        if hooked and manage is ours.state_offload_manager:
            ours.patch_states(roll.states, patches)
        strategy, metrics = Strategy(nccl), {}
        seen.clear()
        try:
            with manage(strategy, metrics, "actor_train/train_step", offloads, load_kwargs=keywords):
                strategy.asked.append("body")
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            strategy.asked.append("interrupted")
        found.append((strategy.asked, list(seen), sorted(metrics)))
    patches.undo()
    started = [r for r in records_of(recording) if isinstance(r, SpanStarted)]

    assert found[0] == found[1]
    assert [(r.name, r.part) for r in started] == [
        ("train_step", part) for part in ("", "onload", "execute", "offload") if not (fails and part == "offload")
    ]
