"""The options of verbs: one name for one idea, in all verbs of all wings, and what earlier names still do."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.cli.commands import Verb, VerbGroup
from otel_rl.cli.options import (
    NamesType,
    RenamedOption,
    StepInterval,
    StepsType,
    steps_in,
    takes_exporters,
    takes_steps,
)

IDEAS: dict[str, tuple[str, ...]] = {
    "--steps": ("--step", "--from", "--to-step", "--first", "--last", "--range"),
    "--to": ("--exporter", "--exporters", "--format", "--destination"),
    "--json/--text": ("--as-json", "--format", "--plain"),
    "-o/--output": ("--out", "--html", "--file", "--into"),
    "--dir": ("--runs", "--root", "--directory"),
}
"""The name of each idea, and names that nobody is to look for."""


def commands(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all verbs, and the verbs of verbs."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, VerbGroup):
            yield from commands(command, f"{path}{name} ")


COMMANDS = dict(commands())
OPTIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_has_one_name(idea: str) -> None:
    """No verb shows another name of it."""
    others = {(name, opt) for name, option in OPTIONS for opt in option.opts if opt in IDEAS[idea]}

    assert others == set()


def test_a_name_is_one_idea() -> None:
    """Each `--steps` of a verb that reads is a range, each `--to` has names, and JSON can always be switched off."""
    named = [(name, opt, option) for name, option in OPTIONS for opt in option.opts]

    assert {name for name, opt, option in named if opt == "--steps" and not isinstance(option.type, StepsType)} == {
        "demo"  # it makes steps: a number of them
    }
    assert all(isinstance(option.type, NamesType) for _, opt, option in named if opt == "--to")
    assert all(option.secondary_opts == ["--text"] for _, opt, option in named if opt == "--json")
    assert all("-o" in option.opts for _, opt, option in named if opt == "--output")
    assert {name for name, opt, _ in named if opt == "--steps"} == {
        *("compare", "demo", "export", "logs", "samples", "why")
    }


def test_each_verb_has_an_example_and_each_option_a_help() -> None:
    """The help of a verb shows how it is called."""
    verbs = {name: command for name, command in COMMANDS.items() if isinstance(command, Verb)}

    assert [name for name, verb in verbs.items() if not verb.examples or "Examples:" not in str(verb.help)] == []
    assert [(name, option.name) for name, option in OPTIONS if not option.help] == []


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("100:200", (100, 200)),
        ("100", (100, 100)),
        ("100:", (100, 1 << 62)),
        (":200", (0, 200)),
        (" 0:0 ", (0, 0)),
    ],
)
def test_a_range_of_steps(text: str, steps: tuple[int, int]) -> None:
    """Both ends are included, and either can be open."""
    assert steps_in(text) == StepInterval(*steps)


@pytest.mark.parametrize("text", ["", ":", "5-9", "a:b", "1:2:3", "-3", "1.5", "9:2"])
def test_what_is_not_a_range(text: str) -> None:
    """The message says what to write, or which end is wrong."""
    with pytest.raises(ValueError, match=r"give A:B, A:, :B, or one step A|is behind the last one"):
        steps_in(text)


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ([], None),
        (["--steps", "3:6"], (3, 6)),
        (["--step", "3"], (3, 3)),
        (["--from", "3", "--until", "6"], (3, 6)),
        (["--until", "6"], (0, 6)),
        (["--from", "3"], (3, 1 << 62)),
    ],
)
def test_earlier_names_of_steps(arguments: list[str], steps: tuple[int, int] | None) -> None:
    """They do the same, and the help has none of them."""
    given: list[object] = []

    @click.command()
    @takes_steps("These.", old=["--step"], old_ends=("--from", "--until"))
    def verb(steps: StepInterval | None) -> None:
        given.append(steps)

    verb.main(arguments, standalone_mode=False)

    assert given == [steps]
    assert not {"--step", "--from", "--until"} & {*verb.get_help(click.Context(verb)).split()}


@pytest.mark.parametrize(
    "arguments",
    [["--to", "jsonl,wandb"], ["--to", "jsonl", "--to", "wandb"], ["--exporter", "jsonl", "--exporter=wandb"]],
)
def test_names_of_exporters(arguments: list[str]) -> None:
    """They are separated by commas, or given one by one, as before."""
    given: list[object] = []

    @click.command()
    @takes_exporters(["console"])
    def verb(exporters: tuple[str, ...]) -> None:
        given.append(exporters)

    verb.main(arguments, standalone_mode=False)
    verb.main([], standalone_mode=False)

    assert given == [("jsonl", "wandb"), ("console",)]


def test_an_earlier_name_of_a_verb() -> None:
    """It is the verb itself, and takes its options."""
    answer = CliRunner().invoke(main, ["replay", "--help"])

    assert answer.exit_code == 0
    assert "otel-rl export newest --to wandb" in answer.output
    assert "replay" not in main.list_commands(click.Context(main))


def test_an_earlier_name_is_not_shown() -> None:
    """Neither in the help nor in what a mistake suggests."""
    option = RenamedOption(["--new"], old=["--old"], help="It.")
    verb = click.Command("verb", params=[option], callback=lambda new: new)

    assert verb.main(["--old", "x"], standalone_mode=False) == "x"
    assert "--old" not in verb.get_help(click.Context(verb))
    assert option.opts == ["--new"]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("why", ["newest", "14"]),
        ("why", ["--from", "3", "--to", "6"]),
        ("samples", ["--step", "3"]),
        ("compare", ["a", "b", "--html", "page.html"]),
        ("export", ["newest", "--to", "csv", "--from", "3", "--to-step", "6"]),
        ("owes", []),
        ("demo", ["--exporter", "jsonl"]),
        ("bridge", ["--exporter", "jsonl"]),
        ("stack up", ["--runs", "runs"]),
    ],
)
def test_earlier_names_are_parsed(verb: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Older scripts still work; this test looks at parsing alone."""
    monkeypatch.setattr("otel_rl.cli.runs.RunArgument.convert", lambda _, value, *__: value)
    command = COMMANDS[verb]
    monkeypatch.setattr(command, "callback", None)

    command.main(arguments, standalone_mode=False)
