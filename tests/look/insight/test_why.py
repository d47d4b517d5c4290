"""Why steps took their time: the answers for trainings whose critical path is known."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Span
from otel_rl.look.insight.span_work import SpanWork
from otel_rl.look.insight.why.answer import ExplainedSteps
from otel_rl.look.insight.why.clocks import MOST_NS, ClockMessage, offsets
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.insight.why.slow_steps import StepWall, slow_of, usual_of
from tests.look.insight.pipelines import case, explained
from tests.look.insight.played import Played, Player, S, play
from tests.look.recorded import Shape, record

_EXACT = 1e-6
_LEAST = 0.05


class Score(NamedTuple):
    """How many answers were right: their first part, and what they say that the step would save, where they say it."""

    cases: int
    causes: int
    replayed: int
    saves: int


def score(seeds: range, directory: Path) -> Score:
    """Explain simulated steps, every other one with clocks that differ by up to 50 ms."""
    cases = causes = replayed = saves = 0
    for seed in seeds:
        played_case = case(seed, clocks=0.05 * (seed % 2))
        if played_case is None:
            continue
        answer = explained(played_case, directory / str(seed))
        first, wall = answer.parts[0], answer.seconds
        cases += 1
        causes += SpanWork(first.kind, first.name) == played_case.pipeline.expected()
        assert sum(part.seconds for part in answer.parts) == pytest.approx(wall, rel=_EXACT)
        if first.saves_seconds is not None:
            replayed += 1
            saves += abs(first.saves_seconds - played_case.seconds) <= _LEAST * wall
    return Score(cases, causes, replayed, saves)


def test_a_few_steps(tmp_path: Path) -> None:
    """The planted cause comes first, and what the step would save is what the simulation without it takes less."""
    scores = score(range(6), tmp_path)

    assert scores.causes == scores.cases > 2
    assert scores.saves >= 0.9 * scores.replayed > 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_steps(tmp_path: Path) -> None:
    """At least 95 % of the causes are right, and of the savings. `python -m benchmarks why` has 1,000 steps."""
    scores = score(range(1000, 1100), tmp_path)

    assert scores.causes >= 0.95 * scores.cases
    assert scores.saves >= 0.95 * scores.replayed


def played(
    tmp_path: Path, training: Played, steps: int = 12, step: int | None = None, phase: str = ""
) -> ExplainedSteps:
    return explained_steps(play(tmp_path / "run", training, steps), None if step is None else (step, step), phase)


def test_a_straggler(tmp_path: Path) -> None:
    """Ranks wait in the last phase for one that is late: the phase in which it was late is named, and the rank."""
    slow = Played(
        ranks=4,
        phases=lambda step, rank: {"generate": 20.0 + 9.0 * (step == 7 and rank == 2), "weight_sync": 4.0},
    )
    answer = played(tmp_path, slow)
    first = answer.parts[0]

    assert answer.steps == (7,)
    assert (first.name, first.who, first.number) == ("generate", ("rank 2",), 1)
    assert first.change_seconds == pytest.approx(9.0, abs=0.1)
    assert first.saves_seconds == pytest.approx(9.0, abs=0.1)
    assert answer.sentences[0] == "Step 7 took 33 s, usually 24 s."


def test_where_all_ranks_are_slow(tmp_path: Path) -> None:
    """They wait for nobody: the phase itself took longer."""
    answer = played(
        tmp_path, Played(ranks=2, phases=lambda step, _: {"generate": 8.0, "sync": 30.0 if step == 5 else 3.0})
    )

    assert (answer.parts[0].name, round(answer.parts[0].change_seconds)) == ("sync", 27)


def test_no_slow_step(tmp_path: Path) -> None:
    """A step of the usual time is explained, and the answer says so first."""
    answer = played(tmp_path, Played(ranks=2))
    times = [part.seconds for part in answer.parts]

    assert len(answer.steps) == 1
    assert answer.sentences[0] == "No single step stands out: a usual one is explained."
    assert answer.parts[0].name == "generate"
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("steps", "phase", "message"),
    [
        ((99, 99), "", "no span of step 99; it has steps 0 to 11"),
        ((50, 60), "", "no span of these steps; it has steps 0 to 11"),
        ((9, 2), "", "the first step, 9, is behind the last one, 2"),
        (None, "reward", "no phase reward; it has generate"),
    ],
)
def test_what_cannot_be_explained(tmp_path: Path, steps: tuple[int, int] | None, phase: str, message: str) -> None:
    """The message says what the run has."""
    run = play(tmp_path / "run", Played(phases=lambda *_: {"generate": 1.0}), 12)

    with pytest.raises(ValueError, match=message):
        explained_steps(run, steps, phase)


def test_a_resumed_run(tmp_path: Path) -> None:
    """The spans of the last attempt count for the steps that it repeats."""
    answer = explained_steps(otel_rl.open_run(record(tmp_path / "run", Shape(steps=40, resumed_at=30))), (25, 25))

    assert answer.seconds < 10  # not from the first attempt to the second
    assert sum(part.seconds for part in answer.parts) == pytest.approx(answer.seconds, rel=_EXACT)


def test_hostile_names(tmp_path: Path) -> None:
    """Names with escape sequences reach the terminal without them."""
    place = record(tmp_path / "run", Shape(steps=8, hostile="\x1b[2J[red]x"))
    result = CliRunner().invoke(main, ["why", str(place), "3", "--text"])

    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\\x1b" in result.output


def test_the_path_is_without_holes(tmp_path: Path) -> None:
    """Stage follows stage from the begin of the step to its end."""
    played_case = case(6, clocks=0.05)
    assert played_case is not None
    answer = explained(played_case, tmp_path / "run")
    ends = [0.0, *(stage.ended_seconds for stage in answer.path)]

    assert [stage.began_seconds for stage in answer.path] == pytest.approx(ends[:-1], abs=_EXACT)
    assert ends[-1] == pytest.approx(answer.seconds, abs=_EXACT)


def test_tools_side_by_side(tmp_path: Path) -> None:
    """Of calls at once, the one that ends last is on the path; if it was faster, the step would wait for the other."""

    def trajectory(step: int, began: int) -> list[Span]:
        slow = 9.0 if step == 6 else 2.0
        whole = Span(*("rl.trajectory", f"{step:032x}", f"{step:08x}{0:08x}", ""), began, began + round((slow + 1) * S))
        calls = {"search": 3.0, "pytest": slow}
        return [whole] + [
            Span(
                *("rl.trajectory.tool", f"{step:032x}", f"{step:08x}{n:08x}", whole.span_id),
                *(began, began + round(seconds * S)),
                {"gen_ai.tool.name": name},
            )
            for n, (name, seconds) in enumerate(calls.items(), 1)
        ]

    directory = tmp_path / "run"
    player = Player(directory, Played(phases=lambda step, _: {"generate": 10.0 if step == 6 else 4.0}))
    player.start()
    for step in range(10):
        player.add(
            *(
                msgspec.structs.replace(item, attributes=item.attributes | {"rl.rank": 0})
                for item in trajectory(step, player.now)
            )
        )
        player.step(step)
    player.finish()
    answer = explained_steps(player.open(), (6, 6))

    assert (answer.parts[0].kind, answer.parts[0].name) == ("tool", "pytest")
    assert answer.parts[0].seconds == pytest.approx(9.0)
    assert answer.parts[0].saves_seconds == pytest.approx(6.0, abs=0.01)  # down to the other call


def test_clocks_are_bounded_by_messages() -> None:
    """A message that arrives before it was sent moves the clock, and only as far as it must."""
    forth, back = ClockMessage("a", "b", -30_000_000), ClockMessage("b", "a", 31_000_000)
    bounds = offsets([forth, back], "a")

    assert bounds["a"] == (0, 0, 0)
    assert bounds["b"] == (30_000_000, 30_000_000, 31_000_000)


def test_clocks_without_a_contradiction() -> None:
    """They are left as they are."""
    bounds = offsets([ClockMessage("a", "b", 5), ClockMessage("b", "a", 1000)], "a")

    assert bounds["b"] == (0, -5, 1000)


@given(
    st.lists(st.integers(-MOST_NS // 2, MOST_NS // 2), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 10**9)), max_size=40),
)
def test_no_message_arrives_before_it_was_sent(errors: list[int], sent: list[tuple[int, int, int]]) -> None:
    """By the corrected clocks, whatever their errors are."""
    messages = [
        ClockMessage(str(a), str(b), took + errors[b] - errors[a])
        for a, b, took in sent
        if a != b and max(a, b) < len(errors)
    ]
    bounds = offsets(messages, "0")

    for message in messages:
        assert message.took + bounds[message.receiver].value - bounds[message.sender].value >= -2


def test_slow_and_usual_steps() -> None:
    """Those far beyond the upper quartile are slow; usual are the middle half of those near them."""
    walls = [StepWall(n, n * 100 * S, n * 100 * S + (90 if n in (20, 41) else 10 + n % 3) * S) for n in range(60)]
    slow = slow_of(walls)

    assert [wall.step for wall in slow] == [20, 41]
    assert {wall.seconds for wall in usual_of(walls, slow, 8)} <= {10.0, 11.0, 12.0}
    assert len(usual_of(walls, slow, 8)) == 8


def test_steps_that_are_slow_for_other_reasons(tmp_path: Path) -> None:
    """The slowest one is explained; of the others, the answer names the reason."""
    late = {6: ("generate", 9.0), 9: ("update_actor", 5.0), 15: ("generate", 8.0)}

    def phases(step: int, _rank: int) -> dict[str, float]:
        phase, seconds = late.get(step, ("", 0.0))
        return {name: 2.0 + seconds * (name == phase) for name in ("generate", "update_actor")}

    answer = played(tmp_path, Played(phases=phases), 20)

    assert answer.steps == (6, 15)
    assert answer.notes == ("Step 9 was slow for another reason: +5 s, update_actor.",)
    assert answer.parts[0].saves_seconds == pytest.approx(8.5, abs=0.01)


def test_a_span_of_a_broken_program(tmp_path: Path) -> None:
    """A duration beyond all times is left out, and the step is explained."""
    directory = tmp_path / "run"
    player = Player(directory, Played(phases=lambda step, _: {"generate": 30.0 if step == 5 else 10.0}))
    player.start()
    player.steps(range(8))
    player.add(Span("x", "a" * 32, "b" * 16, "", player.now - 60 * S, (1 << 63) - 1, {"rl.rank": 0}))
    player.finish()
    answer = explained_steps(player.open())

    assert (answer.steps, answer.parts[0].name) == ((5,), "generate")
