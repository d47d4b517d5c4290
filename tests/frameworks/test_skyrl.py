"""SkyRL: its `Tracking`, `Timer` and batches, for real, called as its trainer does; its models need GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.recorded import Recorded, launched, messages_of, only, tokens_of
from tests.frameworks.results import Values, compared

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Values, Recorded]:
    """The log of a training under `otel-rl run`, by step, and the run."""
    place: Path = tmp_path_factory.mktemp("skyrl")
    output = launched(place, "skyrl_loop.py", options=["--instrument", "skyrl"], OTEL_RL_RUN_ID="skyrl")
    logged = [eval(line[5:]) for line in output.splitlines() if line.startswith("TOLD ")]
    return dict(enumerate(logged, 1)), only(place / "runs" / "p")


def test_rows_are_what_skyrl_logged(told: tuple[Values, Recorded]) -> None:
    """At its steps, number by number."""
    logged, recorded = told

    assert list(recorded.rows) == list(logged) == [1, 2, 3, 4]
    assert compared(logged, recorded.rows).different == []


def test_phases(told: tuple[Values, Recorded]) -> None:
    """Its timings are under their step, in coroutines too, and so is the evaluation after it."""
    spans = told[1].spans
    names = {span.span_id: str(span.attributes.get("rl.phase", "rl.loop")) for span in spans}
    first = [span for span in spans if span.trace_id == spans[0].trace_id]

    assert [(names.get(s.parent_id), names[s.span_id]) for s in first] == [
        ("rl.loop", "generate"),
        ("train_critic_and_policy", "policy_train"),
        ("rl.loop", "train_critic_and_policy"),
        ("rl.loop", "eval"),
        (None, "rl.loop"),
    ]


def test_texts_and_tokens_are_those_that_were_generated(tmp_path: Path) -> None:
    """Ids, masks and log-probabilities, in single precision as SkyRL has them, without those that fill a batch."""
    launched(tmp_path, "skyrl_trajectories.py", options=["--instrument", "skyrl"], OTEL_RL_CONTENT="true")
    directory = only(tmp_path / "runs" / "p").directory
    theirs = {}
    for line in map(json.loads, (tmp_path / "generated.jsonl").read_text().splitlines()):
        single = [np.array(of, np.float32) for of in line["rollout_logprobs"]]
        lists = zip(line["response_ids"], line["loss_masks"], single, strict=True)
        theirs[line["step"]] = sorted((ids, mask, of.tolist(), (of / 2).tolist()) for ids, mask, of in lists)
    texts = sorted([(one["author"], one["text"]) for one in own] for own in messages_of(directory)[1])

    assert tokens_of(directory) == theirs
    assert texts == [
        [("user", "abc"), ("assistant", "ef")],
        [("user", "abc"), ("assistant", "gh"), ("tool", "ij"), ("assistant", "k")],
        [("user", "d"), ("assistant", "l")],
        [("user", "d"), ("assistant", "mno")],
    ]
