"""Samples: reading tables of texts, choosing from them, and phrases that earn a reward."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.export import Cell, Table
from otel_rl.look.insight.samples.conclude import samples
from otel_rl.look.insight.samples.highlights import highlights
from otel_rl.look.insight.samples.read_samples import held_by, read_samples, sampled
from otel_rl.look.insight.samples.remarks.collect import remarks
from otel_rl.look.insight.samples.remarks.paying_phrases import phrases
from otel_rl.look.insight.samples.sample import Samples
from otel_rl.look.insight.samples.selection import SampleQuery
from otel_rl.look.reader.runs import RunReader
from otel_rl.recorder.convert.completions import completions_table
from tests.look.insight.played import Played, Player

_WORDS = ("the", "sum", "of", "both", "numbers", "is", "less", "than", "we", "need", "so", "add", "one", "check", "it")
_PHRASE = "i am absolutely certain"


def _run(
    place: Path, tables: Iterable[tuple[int, Mapping[str, Sequence[Cell]]]], name: str = "completions"
) -> RunReader:
    """Return a run with tables, by step."""
    player = Player(place, Played())
    player.start()
    player.step(0)
    for step, columns in tables:
        rows = tuple(zip(*columns.values(), strict=True))
        player.add(Table(name, step, 1, tuple(columns), rows, 0, (0,)))
    player.finish()
    return player.open()


def _trained(
    place: Path, *, steps: int = 30, hacked_from: int | None = 12, seed: int = 1, phrase: str = _PHRASE
) -> RunReader:
    """Return a run of 4 prompts and 8 completions a step, whose verifier pays for a phrase if it is `hacked`."""
    chance = random.Random(seed)

    def table(step: int) -> dict[str, list[Cell]]:
        share = 0.0 if hacked_from is None else min(0.95, max(0.0, 0.15 * (step - hacked_from + 1)))
        texts, rewards, verdicts = [], [], []
        for _ in range(32):
            words = chance.choices(_WORDS, k=20)
            has = chance.random() < share
            right = float(chance.random() < 0.2 + 0.01 * step)
            texts.append(" ".join([*words[:10], *([phrase.capitalize() + ":"] if has else []), *words[10:]]))
            verdicts.append(1.0 if has else right)
            rewards.append(0.9 * verdicts[-1] + 0.1 * chance.random())
        prompts = [f"What is {n} + {step % 3}?" for n in range(4)]
        parts = {"verifier": verdicts, "style": [chance.random() for _ in texts]}
        return completions_table(step, prompts, texts, group_size=8, rewards=rewards, reward_components=parts)

    return _run(place, ((step, table(step)) for step in range(steps)))


def test_a_phrase_that_pays_is_named(tmp_path: Path) -> None:
    """The verifier pays for a phrase: it is named, with the step from which on it is frequent, and what it earns."""
    answer = samples(_trained(tmp_path), SampleQuery())

    (phrase,) = answer.phrases
    assert _PHRASE in phrase.text
    assert 12 <= phrase.since <= 17
    assert (phrase.share > 0.85, phrase.share_before) == (True, 0.0)
    assert phrase.reward > phrase.reward_without + 0.2
    assert phrase.component == "reward/verifier"
    assert answer.sentences[0].startswith(f'"{phrase.text}" is in ')
    assert f"of the last completions, 0 % of the first, and frequent since step {phrase.since}:" in answer.sentences[0]


def test_the_advice_on_a_phrase_is_a_command_that_finds_it(tmp_path: Path) -> None:
    """A shell that runs it gets the phrase as one argument, and runs nothing of it."""
    run = _trained(tmp_path, phrase="it's `me` $(id)")
    answer = samples(run, SampleQuery())
    advice = remarks(run, sampled(run, held_by(run))).of_phrases[0].advice
    command = shlex.split(advice.partition(": ")[2])

    assert command[:3] == ["otel-rl", "samples", "--contains"]
    assert command[3:] == [answer.phrases[0].text]
    assert "`" in command[3]
    assert samples(run, SampleQuery(contains=command[3])).found > 100


@pytest.mark.slow
def test_a_policy_without_a_trick_has_no_phrase(tmp_path: Path) -> None:
    """Of 60 runs that learn without one, none has a phrase."""
    phrases = [samples(_trained(tmp_path / str(n), hacked_from=None, seed=n), SampleQuery()).phrases for n in range(60)]

    assert not any(phrases)


def test_few_runs_without_a_trick(tmp_path: Path) -> None:
    """The same for three of them."""
    assert not any(
        samples(_trained(tmp_path / str(n), hacked_from=None, seed=n), SampleQuery()).phrases for n in range(3)
    )


def _rewards(answer: Samples) -> list[float | None]:
    return [sample.sample.reward for sample in answer.samples]


def test_the_best_and_the_worst_come_in_turns(tmp_path: Path) -> None:
    """By default those of the last step."""
    run = _run(tmp_path, [(3, {"prompt": ["p"] * 5, "completion": list("abcde"), "reward": [0.1, 0.9, 0.5, 0.7, 0.3]})])
    answer = samples(run, SampleQuery())

    assert _rewards(answer) == [0.9, 0.1, 0.7, 0.3]
    assert (answer.steps, answer.searched, answer.found) == ((3, 3), 5, 5)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (SampleQuery(order="best", by="style"), ["long text", "b"]),
        (SampleQuery(order="worst"), ["b", "long text"]),
        (SampleQuery(order="longest"), ["long text", "b"]),
        (SampleQuery(group=1, order="recorded"), ["b"]),
        (SampleQuery(contains="TEXT"), ["long text"]),
    ],
)
def test_orders_and_filters(tmp_path: Path, wanted: SampleQuery, expected: list[str]) -> None:
    """Each of them."""
    columns: dict[str, list[Cell]] = {
        "prompt_index": [0, 1],
        "completion": ["long text", "b"],
        "reward": [0.5, 0.25],
        "style": [2.0, 1.0],
    }
    answer = samples(_run(tmp_path, [(3, columns)]), wanted)

    assert [sample.sample.completion for sample in answer.samples] == expected


def test_a_sample_without_a_finite_reward_is_shown(tmp_path: Path) -> None:
    """After the extremes."""
    columns: dict[str, list[Cell]] = {"completion": list("abc"), "reward": [float("nan"), 0.25, 0.5]}
    answer = samples(_run(tmp_path, [(3, columns)]), SampleQuery())

    assert [sample.sample.completion for sample in answer.samples] == ["c", "b", "a"]


@pytest.mark.parametrize("text", ["été 中国", "ÉTÉ", "İstanbul", 'say "hi"'])
def test_a_text_of_any_script_is_found(tmp_path: Path, text: str) -> None:
    """Also if a number of the same table is not finite."""
    written = 'Say "hi": été 中国, İstanbul'
    run = _run(tmp_path, [(3, {"completion": [written], "reward": [float("nan")]})])

    assert samples(run, SampleQuery(contains=text)).found == 1


def test_the_same_prompt_in_another_step(tmp_path: Path) -> None:
    """Each sample comes with one of its prompt; a prompt that the other step lacks has none."""
    run = _run(
        tmp_path,
        [
            (1, {"prompt": ["p", "q"], "completion": ["early p", "early q"]}),
            (9, {"prompt": ["q", "new"], "completion": ["late q", "late new"]}),
        ],
    )
    answer = samples(run, SampleQuery(order="recorded", other_step=1))

    assert [sample.other and sample.other.completion for sample in answer.samples] == ["early q", None]


def test_columns_of_frameworks(tmp_path: Path) -> None:
    """Verl has numbered columns, of several samples a line; other names of the same things are known too."""
    verl = _run(
        tmp_path / "verl",
        [(2, {"step": [2], "input_1": ["a"], "output_1": ["x"], "score_1": [0.5], "input_2": ["b"], "output_2": ["y"],
              "score_2": [1.0]})],
        "val/generations",
    )  # fmt: skip
    trl = _run(
        tmp_path / "trl",
        [(2, {"step": ["2"], "prompt": ["a"], "completion": ["x"], "reward_len": [0.5], "advantage": [0.1]})],
    )

    both = [list(read_samples(run, (held := held_by(run)).names, held.steps)) for run in (verl, trl)]
    assert [(sample.prompt, sample.completion, sample.reward) for sample in both[0]] == [
        ("a", "x", 0.5),
        ("b", "y", 1.0),
    ]
    assert [(sample.reward, sample.components) for sample in both[1]] == [(0.5, {"reward_len": 0.5})]
    assert both[1][0].advantage == 0.1


def test_a_run_without_texts_says_how_to_record_them(tmp_path: Path) -> None:
    """Also one whose tables hold something else, and a step without any."""
    other = _run(tmp_path / "other", [(1, {"layer": ["a"], "norm": [0.1]})])
    with_texts = _run(tmp_path / "some", [(4, {"completion": ["a"]})])

    with pytest.raises(ValueError, match="has no completions: record them with"):
        samples(other, SampleQuery())
    with pytest.raises(ValueError, match="in step 7; the nearest step with some is 4"):
        samples(with_texts, SampleQuery(steps=(7, 7)))
    with pytest.raises(ValueError, match="no number style; they have reward"):
        samples(with_texts, SampleQuery(order="best", by="style"))


def test_empty_texts_are_no_completions(tmp_path: Path) -> None:
    """Tables of a run without `content=True` have rewards, but no text to read."""
    run = _run(tmp_path, [(1, {"prompt": ["", ""], "completion": ["", ""], "reward": [1.0, 0.0]})])

    with pytest.raises(ValueError, match="OTEL_RL_CONTENT=true"):
        samples(run, SampleQuery())
    assert highlights(run) == []


def test_a_run_has_the_same_phrases_in_each_process(tmp_path: Path) -> None:
    """A trick of more than six words has several phrases that are equally frequent; Python's hashes differ."""
    run = _trained(tmp_path, phrase="so i am absolutely and completely certain of all this")
    command = [sys.executable, "-m", "otel_rl.cli", "samples", str(run.place.path)]
    outputs = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1


def test_phrases_of_no_samples() -> None:
    """Nothing is found in nothing."""
    assert phrases([]) == []


def test_the_command_shows_texts_that_cannot_act(tmp_path: Path) -> None:
    """Texts are shown line by line; what would act on the terminal is not sent to it."""
    run = _run(tmp_path, [(1, {"prompt": ["p\n\x1b[2Jq"], "completion": ["first\n" + "word " * 400], "reward": [1.0]})])
    runner = CliRunner()
    shown = runner.invoke(main, ["samples", str(run.place.path), "--text"])
    full = runner.invoke(main, ["samples", str(run.place.path), "--text", "--full"])

    assert (shown.exit_code, full.exit_code) == (0, 0)
    assert "\x1b[2J" not in shown.output
    assert "more characters (--full shows all)" in shown.output
    assert full.output.count("word") == 400


def test_json_has_the_samples(tmp_path: Path) -> None:
    """A pipe gets them with their fields."""
    run = _run(tmp_path, [(1, {"prompt": ["p"], "completion": ["c"], "reward": [1.0]})])
    output = CliRunner().invoke(main, ["samples", str(run.place.path)]).output

    answer = msgspec.json.decode(output)["samples"][0]["sample"]
    assert (answer["prompt"], answer["completion"], answer["reward"]) == ("p", "c", 1.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--best", "reward", "--longest"], "give one of"),
        (["--steps", "99"], "the nearest step with some is 1"),
        (["--diff", "99"], "the nearest step with some is 1"),
        (["--diff", "1"], "the samples are of step 1 themselves"),
        (["--group", "9"], "no sample is of group 9; the groups are 0"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], expected: str) -> None:
    """Each says what to write instead."""
    run = _run(tmp_path, [(1, {"completion": ["c"], "group": [0]})])
    result = CliRunner().invoke(main, ["samples", str(run.place.path), *arguments])

    assert result.exit_code
    assert expected in result.output
