"""The numbers of sentences are those that `open_run` has."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Ended, Process, Row, Span
from otel_rl.look.insight import facts_of
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.facts import wording
from tests.look.insight.played import BEGAN, Played, play
from tests.look.insight.test_findings import Dice, only

S = 1_000_000_000


def test_numbers_are_those_of_the_reader(tmp_path: Path) -> None:
    """Medians before and after a change, the phase, the lengths, shares, the reward and the goodput, read apart."""
    dice = Dice()
    training = Played(
        ranks=2,
        phases=dice.phases(generate=lambda step, _: 1.7 if step >= 90 else 1),
        values=dice.values(completions__mean_length=lambda step: dice.about(1180.0 if step >= 90 else 512.0)),
    )
    run = play(tmp_path / "run", training, 150)
    facts = facts_of(run)

    def median(name: str, first: int, last: int) -> float:
        return float(np.median(run.rows(name, (first, last))["value"]))

    times = median("time/step", 1, 89), median("time/step", 90, 149)
    lengths = median("completions/mean_length", 1, 89), median("completions/mean_length", 90, 149)
    assert only(facts, "change").sentence == (
        f"Steps take {wording.seconds(times[1])} since step 90, {wording.seconds(times[0])} before: generate grew with"
        f" the length of completions ({wording.number(lengths[0])} → {wording.number(lengths[1])} tokens)."
    )
    reward = median("reward", 0, 7), median("reward", 142, 149)
    assert only(facts, "learning").sentence.startswith(
        f"Reward {wording.number(reward[0])} → {wording.number(reward[1])}"
    )

    spans = run.sql("SELECT phase, sum(duration_ns)::DOUBLE AS spent FROM spans WHERE phase IS NOT NULL GROUP BY 1")
    whole = float(run.sql("SELECT 2 * sum(duration_ns)::DOUBLE AS s FROM spans WHERE name = 'rl.loop'")["s"][0])
    spent = dict(zip(spans["phase"].tolist(), spans["spent"].tolist(), strict=True))
    assert {share.name: share.share for share in facts.shares} == pytest.approx(
        {phase: seconds / whole for phase, seconds in spent.items()}
    )
    percents = re.findall(r"(\w+) (\d+) %", only(facts, "time").sentence)
    assert {name: int(part) for name, part in percents} == {
        name: round(100 * seconds / whole) for name, seconds in spent.items()
    }
    took, fractions = run.rows("time/step")["value"], run.rows("perf/goodput")["value"]
    trained = float((took * fractions).sum()) / facts.summary.duration_s
    assert only(facts, "goodput").sentence.startswith(f"{wording.percent(trained)} of the time trained.")
    ends = run.sql("SELECT (max(ended_unix_nano) - min(started_unix_nano)) / 1e9 AS s FROM attempts")
    assert only(facts, "outcome").sentence == f"Finished after {wording.seconds(float(ends['s'][0]))}: 150 steps."


@pytest.mark.slow
def test_a_hundred_thousand_steps(tmp_path: Path) -> None:
    """The exact step of a change and the flat end of the reward are found among so many, too."""
    steps, change = 100_000, 61_234
    dice = np.random.default_rng(0)
    (tmp_path / "run.json").write_text(json.dumps({"id": "long", "project": "p", "name": "long"}))
    writer = ArchiveWriter(tmp_path / ARCHIVE / "local", 1 << 60)
    writer.add(Process(0, "", 0, 1, "node1", 1, BEGAN))
    now = BEGAN
    for step in range(steps):
        generate = (1.4 if step >= change else 1.0) * math.exp(0.05 * dice.normal())
        seconds = generate + 0.5
        trace, root = f"{step:032x}", f"{step + 1:016x}"
        end = now + round(seconds * S)
        about = {semconv.RANK: 0, semconv.LOOP_ITERATION: step}
        writer.add(Span("rl.loop", trace, root, "", now, end, {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: 0}))
        phase = about | {semconv.PHASE: "generate"}
        writer.add(Span("rl.sample", trace, f"f{step:015x}", root, now, now + round(generate * S), phase))
        values = {"reward": 0.8 * (1 - math.exp(-step / 8000)) + 0.02 * dice.normal(), "time/step": seconds}
        writer.add(Row(step, end, values, trace_id=trace, span_id=root, measured=("time/step",)))
        now = end
        if step % 1024 == 1023:
            writer.save()
    writer.add(Ended(now, 0, "finished"))
    writer.save(seals=True)
    facts = facts_of(otel_rl.open_run(tmp_path))

    assert only(facts, "change").sentence.startswith("Steps take 1.9 s since step 61,234, 1.5 s before: generate grew")
    assert only(facts, "outcome").sentence.endswith(": 100,000 steps.")
    assert ", flat since step " in only(facts, "learning").sentence
    assert facts.summary.recent_step_seconds == pytest.approx(1.9, rel=0.05)
