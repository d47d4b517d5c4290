"""Trajectories of several turns as samples: how they are read, chosen and shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from otel_rl.archive.reader import RunReader, open_run
from otel_rl.archive.writer import Writer
from otel_rl.cli import main
from otel_rl.export import Item, Table
from otel_rl.insight.samples.choose import Wanted
from otel_rl.insight.samples.conclude import samples
from otel_rl.insight.samples.gap import gap_of
from otel_rl.insight.samples.read import held_by, read_samples, sampled
from otel_rl.insight.samples.sample import Samples, Turn
from otel_rl.insight.samples.telling import telling
from tests.insight.played import Played, Player
from tests.insight.told import Said, asked, told, trace_of
from tests.view.hostile import HOSTILE

_CALL = [{"id": "1", "type": "function", "function": {"name": "pytest", "arguments": '{"path": "tests"}'}}]


def _run(place: Path, *trajectories: Iterable[Item]) -> RunReader:
    player = Player(place, Played())
    player.start()
    player.step(0)
    for one in trajectories:
        for item in one:
            player.add(item)
    player.finish()
    return player.open()


def _agent(step: int = 3, number: int = 0) -> Iterable[Item]:
    """Return a trajectory with a tool call, of which everything is known."""
    return told(
        step,
        number,
        Said(author="system", text="Be short."),
        Said(author="user", text="Do the tests pass?"),
        Said(author="assistant", text="I look.", calls=_CALL, version=2, tokens=[7, 8], logprobs=[-0.5, -1.0],
             trainer=[-0.25, -3.0], mask=[True, False], pieces=["I", " look."]),
        Said(author="tool", name="pytest", text="2 passed"),
        Said(author="assistant", text="They pass.", version=3, tokens=[9], logprobs=[-0.5], trainer=[-1.25],
             mask=[True]),
        tool_seconds=1.5, reward=0.7, components={"format": 1.0, "verifier": 0.4}, advantage=1.25, loss=0.5,
        prompt_id="p-17", group_id="g-3", row="4711",
    )  # fmt: skip


def _texts(found: Samples) -> list[str]:
    return [one.sample.completion for one in found.samples]


def test_a_trajectory_is_a_sample(tmp_path: Path) -> None:
    """Its prompt is what came before the policy's first turn, its completion what the policy wrote."""
    run = _run(tmp_path, _agent())
    held = held_by(run)
    (found,) = read_samples(run, held.names, held.steps, tokens=True)

    assert (held.names, held.steps) == (("messages",), (3,))
    assert found.prompt == "Be short.\n\nDo the tests pass?"
    assert found.completion == 'I look.\n\npytest({"path": "tests"})\n\nThey pass.'
    assert (found.reward, found.advantage, found.loss) == (0.7, 1.25, 0.5)
    assert found.components == {"format": 1.0, "verifier": 0.4}
    assert (found.prompt_id, found.group_id, found.row, found.group) == ("p-17", "g-3", "4711", 0)
    assert (found.policy_version, found.trained_version, found.outcome) == (2, 3, "trained")
    assert found.turns[2] == Turn(
        author="assistant",
        text="I look.",
        calls=('pytest({"path": "tests"})',),
        policy_version=2,
        tokens=(7, 8),
        logprobs=(-0.5, -1.0),
        trainer_logprobs=(-0.25, -3.0),
        mask=(True, False),
        pieces=("I", " look."),
    )
    assert found.turns[3] == Turn(author="tool", name="pytest", text="2 passed")


def test_lists_of_tokens_are_read_for_one_trajectory_alone(tmp_path: Path) -> None:
    """The answer to other questions has the gap and the times, and no lists."""
    run = _run(tmp_path, _agent())
    (shown,) = samples(run, Wanted()).samples
    (whole,) = samples(run, Wanted(trajectory=trace_of(3, 0)[:6], order="recorded")).samples

    assert not any(turn.tokens or turn.pieces for turn in shown.sample.turns)
    assert [turn.pieces for turn in whole.sample.turns] == [(), (), ("I", " look."), (), ()]
    assert [turn.tokens for turn in whole.sample.turns] == [(), (), (7, 8), (), (9,)]
    assert shown.sample.gap == whole.sample.gap == (0.25 + 0.75) / 2
    assert shown.sample.seconds == {"tool pytest": 1.5}


def test_the_largest_gap_comes_first(tmp_path: Path) -> None:
    """Those without log-probabilities are left out; without any, the command says so."""
    gaps = (0.1, 2.0, 0.5)
    known = [
        told(1, n, *asked("q", f"gap {gap}", logprobs=[-1.0, -1.0], trainer=[-1.0 - gap, -math.inf]))
        for n, gap in enumerate(gaps)
    ]
    run = _run(tmp_path / "known", *known, told(1, 3, *asked("q", "unknown")))
    without = _run(tmp_path / "without", told(1, 0, *asked("q", "a")))

    assert _texts(samples(run, Wanted(order="best", by="gap"))) == ["gap 2.0", "gap 0.5", "gap 0.1"]
    with pytest.raises(ValueError, match="log-probabilities of both the engine and the trainer"):
        samples(without, Wanted(order="best", by="gap"))


def test_messages_replace_the_tables_of_their_steps(tmp_path: Path) -> None:
    """A completion that is recorded in both ways is there once. An evaluation replaces nothing."""
    tables = [Table("completions", step, 1, ("completion",), ((f"table {step}",),), 0, (0,)) for step in (1, 2, 3)]
    evaluated = told(3, 0, *asked("q", "message 3"), taken=False)
    run = _run(tmp_path, told(2, 0, *asked("q", "message 2")), evaluated, tables)
    held = held_by(run)

    assert (held.names, held.steps) == (("messages", "completions"), (1, 2, 3))
    found = [one.completion for one in read_samples(run, held.names, held.steps)]
    assert found == ["message 2", "message 3", "table 1", "table 3"]


def test_a_text_is_sought_in_all_steps(tmp_path: Path) -> None:
    """Texts of tools and people are not those of the policy."""
    run = _run(
        tmp_path,
        told(1, 0, *asked("certain", "Nothing")),
        told(2, 5, *asked("q", "I am Certain")),
        told(3, 0, *asked("q", "no")),
    )
    found = samples(run, Wanted(contains="certain", order="recorded"))

    assert _texts(found) == ["I am Certain"]
    assert found.found == 1


def test_a_tool_call_is_found_as_it_is_shown(tmp_path: Path) -> None:
    """Its words alone are not enough."""
    run = _run(tmp_path, _agent())

    assert [samples(run, Wanted(contains=text)).found for text in ('pytest({"path"', "path pytest")] == [1, 0]


def test_groups_are_found_by_number_and_by_id(tmp_path: Path) -> None:
    """Numbers are those of the whole step, whichever trajectories are shown."""
    run = _run(
        tmp_path,
        told(1, 0, *asked("q", "a"), group_id="first"),
        told(1, 1, *asked("r", "b"), group_id="second"),
        told(1, 2, *asked("r", "c"), group_id="second"),
    )

    for group in ("second", "1", 1):
        assert _texts(samples(run, Wanted(group=group, order="recorded"))) == ["b", "c"]
    (alone,) = samples(run, Wanted(trajectory=trace_of(1, 2), order="recorded")).samples
    assert (alone.sample.number, alone.sample.group) == (2, 1)


def test_a_trajectory_that_no_step_took(tmp_path: Path) -> None:
    """It has no reward, and is there; so is one that was dropped, with the reason."""
    run = _run(tmp_path, told(1, 0, *asked("q", "a"), taken=False), told(1, 1, *asked("q", "b"), outcome="stale"))
    found = [one.sample for one in samples(run, Wanted(order="recorded")).samples]

    assert [(one.outcome, one.reward, one.trained_version) for one in found] == [("", None, -1), ("stale", None, 1)]


def test_the_samples_that_say_the_most(tmp_path: Path) -> None:
    """Extremes of each step, and a prompt that comes back in each of them, with its tokens."""
    every = [
        told(step, n, *asked("again" if n == 5 else f"{step} {n}", f"{step} {n}", tokens=[n]), reward=n / 10)
        for step in (0, 4, 8)
        for n in range(12)
    ]
    found = telling(_run(tmp_path, *every), [5])

    for step in (0, 4, 8):
        assert {0, 1, 5, 10, 11} <= {one.number for one in found if one.step == step}
    assert all(one.turns[1].tokens == (one.number,) for one in found)
    assert len(found) < 36


def test_the_gap_of_a_turn() -> None:
    """It names the token that differs the most among those that were trained on, with both probabilities."""
    turn = Turn(
        author="assistant",
        text="",
        logprobs=(-0.1, math.log(0.9), -1.0, -1.0),
        trainer_logprobs=(-0.1, math.log(0.1), -9.0, math.nan),
        mask=(True, True, False, True),
    )
    found = gap_of(turn)

    assert found is not None
    assert (found.place, round(found.engine, 6), round(found.trainer, 6)) == (1, 0.9, 0.1)
    assert found.mean == pytest.approx(math.log(9) / 2)
    assert gap_of(Turn(author="user", text="")) is None


def _shown(run: RunReader, *arguments: str) -> str:
    runner = CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(main, ["samples", str(run.place.path), "--text", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_shows_turns(tmp_path: Path) -> None:
    """With authors, tools, rewards and their parts, versions and times, in the width of the terminal."""
    shown = _shown(_run(tmp_path, _agent()))

    for text in (
        "step 3 · group g-3 · #0 · reward 0.7 (format 1, verifier 0.4) · advantage 1.25",
        "version 2, staleness 1",
        "tool pytest 1.5 s",
        "  user        Do the tests pass?",
        '              → pytest({"path": "tests"})',
        "  tool pytest 2 passed",
    ):
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_long_name_of_a_tool_is_shown_whole(tmp_path: Path) -> None:
    """Above what the tool said."""
    shown = _shown(_run(tmp_path, told(1, 0, *asked("q", "a"), Said(author="tool", name="web_search", text="found"))))

    assert "  tool web_search\n              found\n" in shown


def test_both_of_a_pair_are_shown_with_all_that_is_known(tmp_path: Path) -> None:
    """The sample of the other step has its gap and its times too."""
    found = samples(_run(tmp_path, _agent(3), _agent(5)), Wanted(other_step=3))
    (pair,) = found.samples

    assert pair.other is not None
    assert (pair.sample.step, pair.other.step) == (5, 3)
    assert pair.other.gap == pair.sample.gap
    assert pair.other.seconds == {"tool pytest": 1.5}


def test_the_end_of_a_long_answer_is_shown(tmp_path: Path) -> None:
    """The middle is left out, since the answer is at the end; `--full` shows it."""
    run = _run(tmp_path, told(1, 0, *asked("q", "First. " + "We think. " * 400 + "\nSo it is 42.")))
    shown, full = _shown(run), _shown(run, "--full")

    assert "First." in shown
    assert "So it is 42." in shown.splitlines()[-1]
    assert "more characters (--full shows all)" in shown
    assert full.count("think.") == 400


def test_the_command_shows_one_trajectory_whole(tmp_path: Path) -> None:
    """With the token of each turn that engine and trainer disagree about the most."""
    run = _run(tmp_path, _agent(), told(3, 1, *asked("q", "other")))
    shown = _shown(run, "--trajectory", trace_of(3, 0)[:12])

    assert "other" not in shown
    assert (
        "2 tokens · 1 trained on · gap 0.25 on average · largest at token 0 (id 7, 'I'): probability 0.607"
        in " ".join(shown.split())
    )


def test_an_unknown_trajectory(tmp_path: Path) -> None:
    """The command says that there is none."""
    run = _run(tmp_path, _agent())
    result = CliRunner().invoke(main, ["samples", str(run.place.path), "--trajectory", "beef"])

    assert result.exit_code == 1
    assert "no trajectory has an id that begins with beef" in result.output


def test_json_has_turns(tmp_path: Path) -> None:
    """With lists of tokens if one trajectory was asked for."""
    run = _run(tmp_path, _agent())
    arguments = ["samples", str(run.place.path), "--json", "--trajectory", trace_of(3, 0)]
    found = msgspec.json.decode(CliRunner().invoke(main, arguments).output)["samples"][0]["sample"]

    assert found["turns"][4]["logprobs"] == [-0.5]
    assert found["trace_id"] == trace_of(3, 0)


def test_hostile_texts_do_nothing_on_a_terminal(tmp_path: Path) -> None:
    """In whichever field they are: nothing that acts on a terminal is printed, and 10 MB are cut."""
    lists = {"tokens": [1], "logprobs": [-1.0], "trainer": [-2.0]}
    said = [
        Said(author=text, name=text, text=text, calls=[{"function": {"name": text}}, text], pieces=[text], **lists)
        for text in HOSTILE
    ]
    names = dict.fromkeys(("prompt_id", "group_id", "row", "outcome"), "\x1b[2J\u202e")
    run = _run(
        tmp_path,
        told(1, 0, Said(author="user", text="q"), *said, components={"\x1b]0;x\x07": 1.0}, **names),
        told(1, 1, *asked("q", "x" * 10_000_000)),
    )

    for arguments in ((), ("--full", "-n", "1", "--trajectory", trace_of(1, 0))):
        shown = _shown(run, *arguments)
        assert not any(character in shown for character in "\x00\x07\x1b\x7f\u202e\u2028")
        assert max(map(cell_len, shown.splitlines())) <= 80
    assert len(_shown(run)) < 20_000


def test_some_steps_stand_for_a_long_run(tmp_path: Path) -> None:
    """Of a run with many files, evenly spaced steps are looked at, and those that are asked for; of each step some."""
    writer = Writer(tmp_path / "archive" / "local", 1 << 60)
    for step in range(100):
        for item in (one for n in range(60) for one in told(step, n, *asked("q", f"answer {n}"))):
            writer.add(item)
        writer.save(seals=True)
    (tmp_path / "run.json").write_text("{}")
    run = open_run(tmp_path)
    held = held_by(run, [37])
    steps = held.spread()
    found = sampled(run, held)

    assert {0, 37, 99} <= set(held.steps)
    assert len(held.steps) <= 13
    assert (steps[0], steps[-1]) == (0, 99)
    assert [len([one for one in found if one.step == step]) for step in steps] == [40] * len(steps)
    assert {(one.step, one.number) for one in found} >= {(0, 0), (0, 59), (99, 59)}
    assert samples(run, Wanted(step=37, order="recorded")).found == 60
    with pytest.raises(ValueError, match="no completions were recorded in step 101; the nearest step with some is 99"):
        samples(run, Wanted(step=101))
