"""Trajectories of several turns as samples: how they are read, chosen and shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from otel_rl.cli import main
from otel_rl.export import Item, Table
from otel_rl.look.insight.samples.conclude import samples
from otel_rl.look.insight.samples.highlights import highlights
from otel_rl.look.insight.samples.read_samples import held_by, read_samples, sampled
from otel_rl.look.insight.samples.sample import Samples, SampleTurn, gap_of
from otel_rl.look.insight.samples.selection import SampleQuery
from otel_rl.look.reader.runs import RunReader, open_run
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.hostile import HOSTILE
from tests.look.insight.conversations import Written, asked, chat, trace_of
from tests.look.insight.played import Played, Player

_CALL = [{"id": "1", "type": "function", "function": {"name": "pytest", "arguments": '{"path": "tests"}'}}]


def _run(place: Path, *trajectories: Iterable[Item]) -> RunReader:
    player = Player(place, Played())
    player.start()
    player.step(0)
    for trajectory in trajectories:
        for item in trajectory:
            player.add(item)
    player.finish()
    return player.open()


def _agent(step: int = 3, number: int = 0) -> Iterable[Item]:
    """Return a trajectory with a tool call, of which everything is known."""
    return chat(
        step,
        number,
        Written(author="system", text="Be short."),
        Written(author="user", text="Do the tests pass?"),
        Written(author="assistant", text="I look.", calls=_CALL, version=2, tokens=[7, 8], logprobs=[-0.5, -1.0],
             trainer=[-0.25, -3.0], mask=[True, False], pieces=["I", " look."]),
        Written(author="tool", name="pytest", text="2 passed"),
        Written(author="assistant", text="They pass.", version=3, tokens=[9], logprobs=[-0.5], trainer=[-1.25],
             mask=[True]),
        tool_seconds=1.5, reward=0.7, components={"format": 1.0, "verifier": 0.4}, advantage=1.25, loss=0.5,
        prompt_id="p-17", group_id="g-3", row="4711",
    )  # fmt: skip


def _texts(answer: Samples) -> list[str]:
    return [sample.sample.completion for sample in answer.samples]


def test_a_trajectory_is_a_sample(tmp_path: Path) -> None:
    """Its prompt is what came before the policy's first turn, its completion what the policy wrote."""
    run = _run(tmp_path, _agent())
    held = held_by(run)
    (sample,) = read_samples(run, held.names, held.steps, tokens=True)

    assert (held.names, held.steps) == (("messages",), (3,))
    assert sample.prompt == "Be short.\n\nDo the tests pass?"
    assert sample.completion == 'I look.\n\npytest({"path": "tests"})\n\nThey pass.'
    assert (sample.reward, sample.advantage, sample.loss) == (0.7, 1.25, 0.5)
    assert sample.components == {"format": 1.0, "verifier": 0.4}
    assert (sample.prompt_id, sample.group_id, sample.row, sample.group) == ("p-17", "g-3", "4711", 0)
    assert (sample.policy_version, sample.trained_version, sample.outcome) == (2, 3, "trained")
    assert sample.turns[2] == SampleTurn(
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
    assert sample.turns[3] == SampleTurn(author="tool", name="pytest", text="2 passed")


def test_lists_of_tokens_are_read_for_one_trajectory_alone(tmp_path: Path) -> None:
    """The answer to other questions has the gap and the times, and no lists."""
    run = _run(tmp_path, _agent())
    (shown,) = samples(run, SampleQuery()).samples
    (whole,) = samples(run, SampleQuery(trajectory=trace_of(3, 0)[:6], order="recorded")).samples

    assert not any(turn.tokens or turn.pieces for turn in shown.sample.turns)
    assert [turn.pieces for turn in whole.sample.turns] == [(), (), ("I", " look."), (), ()]
    assert [turn.tokens for turn in whole.sample.turns] == [(), (), (7, 8), (), (9,)]
    assert shown.sample.gap == whole.sample.gap == (0.25 + 0.75) / 2
    assert shown.sample.seconds == {"tool pytest": 1.5}


def test_the_largest_gap_comes_first(tmp_path: Path) -> None:
    """Those without log-probabilities are left out; without any, the command says so."""
    gaps = (0.1, 2.0, 0.5)
    known = [
        chat(1, n, *asked("q", f"gap {gap}", logprobs=[-1.0, -1.0], trainer=[-1.0 - gap, -math.inf]))
        for n, gap in enumerate(gaps)
    ]
    run = _run(tmp_path / "known", *known, chat(1, 3, *asked("q", "unknown")))
    without = _run(tmp_path / "without", chat(1, 0, *asked("q", "a")))

    assert _texts(samples(run, SampleQuery(order="best", by="gap"))) == ["gap 2.0", "gap 0.5", "gap 0.1"]
    with pytest.raises(ValueError, match="log-probabilities of both the engine and the trainer"):
        samples(without, SampleQuery(order="best", by="gap"))


def test_messages_replace_the_tables_of_their_steps(tmp_path: Path) -> None:
    """A completion that is recorded in both ways is there once. An evaluation replaces nothing."""
    tables = [Table("completions", step, 1, ("completion",), ((f"table {step}",),), 0, (0,)) for step in (1, 2, 3)]
    evaluated = chat(3, 0, *asked("q", "message 3"), taken=False)
    run = _run(tmp_path, chat(2, 0, *asked("q", "message 2")), evaluated, tables)
    held = held_by(run)

    assert (held.names, held.steps) == (("messages", "completions"), (1, 2, 3))
    completions = [read_sample.completion for read_sample in read_samples(run, held.names, held.steps)]
    assert completions == ["message 2", "message 3", "table 1", "table 3"]


def test_a_text_is_sought_in_all_steps(tmp_path: Path) -> None:
    """Texts of tools and people are not those of the policy."""
    run = _run(
        tmp_path,
        chat(1, 0, *asked("certain", "Nothing")),
        chat(2, 5, *asked("q", "I am Certain")),
        chat(3, 0, *asked("q", "no")),
    )
    answer = samples(run, SampleQuery(contains="certain", order="recorded"))

    assert _texts(answer) == ["I am Certain"]
    assert answer.found == 1


def test_a_tool_call_is_found_as_it_is_shown(tmp_path: Path) -> None:
    """Its words alone are not enough."""
    run = _run(tmp_path, _agent())

    assert [samples(run, SampleQuery(contains=text)).found for text in ('pytest({"path"', "path pytest")] == [1, 0]


def test_groups_are_found_by_number_and_by_id(tmp_path: Path) -> None:
    """Numbers are those of the whole step, whichever trajectories are shown."""
    run = _run(
        tmp_path,
        chat(1, 0, *asked("q", "a"), group_id="first"),
        chat(1, 1, *asked("r", "b"), group_id="second"),
        chat(1, 2, *asked("r", "c"), group_id="second"),
    )

    for group in ("second", "1", 1):
        assert _texts(samples(run, SampleQuery(group=group, order="recorded"))) == ["b", "c"]
    (alone,) = samples(run, SampleQuery(trajectory=trace_of(1, 2), order="recorded")).samples
    assert (alone.sample.number, alone.sample.group) == (2, 1)


def test_a_trajectory_that_no_step_took(tmp_path: Path) -> None:
    """It has no reward, and is there; so is one that was dropped, with the reason."""
    run = _run(
        tmp_path,
        chat(1, 0, *asked("q", "a"), taken=False),
        chat(1, 1, *asked("q", "b"), outcome="stale"),
    )
    shown = [sample.sample for sample in samples(run, SampleQuery(order="recorded")).samples]

    assert [(sample.outcome, sample.reward, sample.trained_version) for sample in shown] == [
        ("", None, -1),
        ("stale", None, 1),
    ]


def test_the_samples_that_say_the_most(tmp_path: Path) -> None:
    """Extremes of each step, and a prompt that comes back in each of them, with its tokens."""
    every = [
        chat(step, n, *asked("again" if n == 5 else f"{step} {n}", f"{step} {n}", tokens=[n]), reward=n / 10)
        for step in (0, 4, 8)
        for n in range(12)
    ]
    shown = highlights(_run(tmp_path, *every), [5])

    for step in (0, 4, 8):
        assert {0, 1, 5, 10, 11} <= {sample.number for sample in shown if sample.step == step}
    assert all(sample.turns[1].tokens == (sample.number,) for sample in shown)
    assert len(shown) < 36


def test_the_gap_of_a_turn() -> None:
    """It names the token that differs the most among those that were trained on, with both probabilities."""
    turn = SampleTurn(
        author="assistant",
        text="",
        logprobs=(-0.1, math.log(0.9), -1.0, -1.0),
        trainer_logprobs=(-0.1, math.log(0.1), -9.0, math.nan),
        mask=(True, True, False, True),
    )
    gap = gap_of(turn)

    assert gap is not None
    assert (gap.place, round(gap.engine, 6), round(gap.trainer, 6)) == (1, 0.9, 0.1)
    assert gap.mean == pytest.approx(math.log(9) / 2)
    assert gap_of(SampleTurn(author="user", text="")) is None


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
    shown = _shown(
        _run(
            tmp_path,
            chat(1, 0, *asked("q", "a"), Written(author="tool", name="web_search", text="found")),
        )
    )

    assert "  tool web_search\n              found\n" in shown


def test_both_of_a_pair_are_shown_with_all_that_is_known(tmp_path: Path) -> None:
    """The sample of the other step has its gap and its times too."""
    answer = samples(_run(tmp_path, _agent(3), _agent(5)), SampleQuery(other_step=3))
    (pair,) = answer.samples

    assert pair.other is not None
    assert (pair.sample.step, pair.other.step) == (5, 3)
    assert pair.other.gap == pair.sample.gap
    assert pair.other.seconds == {"tool pytest": 1.5}


def test_the_end_of_a_long_answer_is_shown(tmp_path: Path) -> None:
    """The middle is left out, since the answer is at the end; `--full` shows it."""
    run = _run(tmp_path, chat(1, 0, *asked("q", "First. " + "We think. " * 400 + "\nSo it is 42.")))
    shown, full = _shown(run), _shown(run, "--full")

    assert "First." in shown
    assert "So it is 42." in shown.splitlines()[-1]
    assert "more characters (--full shows all)" in shown
    assert full.count("think.") == 400


def test_the_command_shows_one_trajectory_whole(tmp_path: Path) -> None:
    """With the token of each turn that engine and trainer disagree about the most."""
    run = _run(tmp_path, _agent(), chat(3, 1, *asked("q", "other")))
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
    answer = msgspec.json.decode(CliRunner().invoke(main, arguments).output)["samples"][0]["sample"]

    assert answer["turns"][4]["logprobs"] == [-0.5]
    assert answer["trace_id"] == trace_of(3, 0)


def test_hostile_texts_do_nothing_on_a_terminal(tmp_path: Path) -> None:
    """In whichever field they are: nothing that acts on a terminal is printed, and 10 MB are cut."""
    lists = {"tokens": [1], "logprobs": [-1.0], "trainer": [-2.0]}
    conversation = [
        Written(author=text, name=text, text=text, calls=[{"function": {"name": text}}, text], pieces=[text], **lists)
        for text in HOSTILE
    ]
    names = dict.fromkeys(("prompt_id", "group_id", "row", "outcome"), "\x1b[2J\u202e")
    run = _run(
        tmp_path,
        chat(1, 0, Written(author="user", text="q"), *conversation, components={"\x1b]0;x\x07": 1.0}, **names),
        chat(1, 1, *asked("q", "x" * 10_000_000)),
    )

    for arguments in ((), ("--full", "-n", "1", "--trajectory", trace_of(1, 0))):
        shown = _shown(run, *arguments)
        assert not any(character in shown for character in "\x00\x07\x1b\x7f\u202e\u2028")
        assert max(map(cell_len, shown.splitlines())) <= 80
    assert len(_shown(run)) < 20_000


def test_some_steps_stand_for_a_long_run(tmp_path: Path) -> None:
    """Of a run with many files, evenly spaced steps are looked at, and those that are asked for; of each step some."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    for step in range(100):
        for item in (item for n in range(45) for item in chat(step, n, *asked("q", f"answer {n}"))):
            writer.add(item)
        writer.save(seals=True)
    (tmp_path / "run.json").write_text("{}")
    run = open_run(tmp_path)
    held = held_by(run, [(37, 37)])
    steps = held.spread()
    sampled_ones = sampled(run, held)

    assert {0, 37, 99} <= set(held.steps)
    assert len(held.steps) <= 13
    assert (steps[0], steps[-1]) == (0, 99)
    assert [len([sample for sample in sampled_ones if sample.step == step]) for step in steps] == [40] * len(steps)
    assert {(sample.step, sample.number) for sample in sampled_ones} >= {(0, 0), (0, 44), (99, 44)}
    assert samples(run, SampleQuery(steps=(37, 37), order="recorded")).found == 45
    assert {
        pair.sample.step for pair in samples(run, SampleQuery(steps=(30, 40), order="recorded", most=10_000)).samples
    } <= {*range(30, 41)}
    assert samples(run, SampleQuery(steps=(90, 1 << 62), order="longest")).found > 45
    with pytest.raises(ValueError, match="no completions were recorded in step 101; the nearest step with some is 99"):
        samples(run, SampleQuery(steps=(101, 101)))
