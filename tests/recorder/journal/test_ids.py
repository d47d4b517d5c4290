"""Ids: the same where all ranks must agree, random everywhere else, and never from the trainer's randomness."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import otel_rl
from otel_rl.recorder.journal.ids import RandomIds, SpanIds, format_traceparent, parse_traceparent, step_ids
from tests.processes import run_python
from tests.real_parts import part

torch = part("torch")

TRACE_IDS = st.integers(1, 2**128 - 1)
SPAN_IDS = st.integers(1, 2**64 - 1)
VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# Steps


def test_step_ids_on_another_rank(tmp_path: Path) -> None:
    """Another process has the same ids for the same step."""
    script = "from otel_rl.recorder.journal.ids import step_ids; print(tuple(step_ids('run-7', 1, 12)))"

    assert f"{tuple(step_ids('run-7', 1, 12))}\n" == run_python(script, tmp_path)


@given(st.sets(st.tuples(st.text("abc-/1", max_size=5), st.integers(0, 99), st.integers(0, 99)), min_size=2))
def test_step_ids_differ(identities: set[tuple[str, int, int]]) -> None:
    """Steps that differ in run, attempt or number have different trace ids and span ids."""
    ids = [step_ids(f"{run}/", attempt, step) for run, attempt, step in identities]

    assert len(identities) == len({one.trace_id for one in ids}) == len({one.span_id for one in ids})


@given(st.text(), st.integers(), st.integers())
def test_step_ids_are_valid(run_id: str, attempt: int, step: int) -> None:
    """The ids of a step fit OpenTelemetry's 128 and 64 bits and are not zero."""
    ids = step_ids(run_id, attempt, step)

    assert 0 < ids.trace_id < 2**128
    assert 0 < ids.span_id < 2**64


# Randomness


def test_random_ids_are_unique() -> None:
    """100,000 random ids of each kind, drawn by threads at once, are different, fit their bits, and are not zero."""
    ids = RandomIds()
    drawn: list[list[int]] = [[] for _ in range(4)]

    def draw(mine: list[int]) -> None:
        mine.extend(ids.span_id() for _ in range(25_000))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = {span_id for mine in drawn for span_id in mine}
    traces = {ids.trace_id() for _ in range(100_000)}

    assert len(spans) == len(traces) == 100_000
    assert all(0 < span_id < 2**64 for span_id in spans)
    assert all(0 < trace_id < 2**128 for trace_id in traces)


_FORKED = """
import os, otel_rl
from otel_rl.recorder.trainer.current import recorder_of
run = otel_rl.init(agent="off", exporters=[], quiet=True)
recorder_of(run).ids.span_id()  # there is a pool to inherit
out, into = os.pipe()
if os.fork() == 0:
    os.write(into, b" ".join(b"%d" % recorder_of(run).ids.span_id() for _ in range(1000)))
    os._exit(0)
os.close(into)
os.wait()
theirs = {int(word) for word in open(out).read().split()}
ours = {recorder_of(run).ids.span_id() for _ in range(1000)}
print(len(theirs | ours))
"""


def test_random_ids_after_fork(tmp_path: Path) -> None:
    """A forked child never draws its parent's ids."""
    assert run_python(_FORKED, tmp_path) == "2000\n"


def test_ids_under_equal_seeds(tmp_path: Path) -> None:
    """Processes that seed everything alike have different random ids."""
    script = (
        "import random, numpy; random.seed(0); numpy.random.seed(0)\n"
        "from otel_rl.recorder.journal.ids import RandomIds; print(RandomIds().trace_id())"
    )

    assert run_python(script, tmp_path) != run_python(script, tmp_path)


def test_randomness_of_the_trainer(recording: otel_rl.Run) -> None:
    """A recorded step draws nothing from `random`, NumPy or torch."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
    for number in range(300):  # more ids than are drawn at once
        with recording.step(number, kind="test"), recording.phase("generate", tokens=7) as phase:
            recording.log({"loss": torch.tensor(0.5), "reward": np.float32(1)})
            recording.event("checkpoint", path="somewhere")
            phase.add_event("sampled")
            with recording.tracer_provider.get_tracer("test").start_as_current_span("http"):
                pass
    recording.params({"lr": 1e-6})
    after = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    assert before == after


# traceparent


@given(TRACE_IDS, SPAN_IDS)
def test_traceparent_round_trip(trace_id: int, span_id: int) -> None:
    """A `traceparent` gives back the ids that it was made of, also to OpenTelemetry's own propagator."""
    text = format_traceparent(SpanIds(trace_id, span_id))
    found = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": text})).get_span_context()

    assert parse_traceparent(text) == (trace_id, span_id)
    assert (found.trace_id, found.span_id, found.trace_flags.sampled) == (trace_id, span_id, True)


@pytest.mark.parametrize("text", [VALID, VALID.upper(), f"  {VALID}\n", f"01{VALID[2:]}", f"01{VALID[2:]}-more"])
def test_good_traceparent(text: str) -> None:
    """Capitals, white space around, and later versions with more behind are read."""
    assert SpanIds(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331) == parse_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "garbage",
        VALID[:-1],
        VALID[:-3],
        VALID[1:],
        f"{VALID}0",
        f"{VALID}-more",  # version 00 has no more
        f"ff{VALID[2:]}",  # no version
        VALID.replace("-", "_"),
        VALID.replace("a", "g"),
        VALID.replace("7", "\u0667"),  # a digit, but not an ASCII one
        f"00-{0:032x}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{0:016x}-01",
    ],
)
def test_bad_traceparent(text: str) -> None:
    """An invalid `traceparent` is ignored."""
    assert parse_traceparent(text) is None


@given(st.text())
def test_any_text_as_traceparent(text: str) -> None:
    """No text whatsoever makes the parser raise."""
    assert parse_traceparent(text) is None
