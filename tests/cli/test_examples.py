"""The examples in the help of verbs: all can be parsed, and those that read a run do what they say."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.cli.commands import SECTIONS, Verb
from tests.exporters.every import needs_packages
from tests.look.recorded import Shape, record
from tests.processes import run, run_python

_CONTEXT = click.Context(main)
VERBS = [verb for name in main.list_commands(_CONTEXT) if isinstance(verb := main.get_command(_CONTEXT, name), Verb)]
EXAMPLES = [example for verb in VERBS for example in verb.examples]
_PROCESS = ("run", "demo", "rm", "mcp", "watch", "bridge", "stack", "token", "ui")
"""Verbs that train, serve, delete, or change this machine."""
_DELIVERS = "agent newest --once"
_SENDS = ("export newest --to wandb", "export newest --to tensorboard,mlflow")
"""Examples that end the process."""
_FOLLOWS = "logs -f"
"""Goes on until Ctrl-C."""
_OTHERS = (_DELIVERS, _FOLLOWS, *_SENDS)
READ = [example for example in EXAMPLES if example.split()[0] not in _PROCESS and example not in _OTHERS]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the directory `runs`, which has two runs."""
    place = tmp_path_factory.mktemp("examples")
    for number, name in enumerate(("baseline", "other")):
        run_dir = record(place / "runs" / "p" / name, Shape(steps=210, name=name, texts=True, slower_from=150 + number))
        manifest = run_dir / "run.json"
        manifest.write_text(manifest.read_text().replace("0123456789abcdef", f"id-{name}"))
    return place


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_parsed(example: str, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names options and runs as the verb has them."""
    monkeypatch.chdir(recorded)
    name, *arguments = shlex.split(example)
    verb = main.get_command(_CONTEXT, name)
    assert verb is not None

    assert verb.make_context(name, arguments, resilient_parsing=False)


@pytest.mark.parametrize("example", READ)
def test_an_example_works(example: str, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints something; a gate decides on the exit code, and a check may find something on this machine."""
    monkeypatch.chdir(recorded)
    result = CliRunner().invoke(main, shlex.split(example), catch_exceptions=False)

    assert result.stdout
    assert result.exit_code in {"compare": (0, 1, 2), "doctor": (0, 1, 2)}.get(example.split(maxsplit=1)[0], (0,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(_SENDS[0], marks=needs_packages("wandb")),
        pytest.param(_SENDS[1], marks=[needs_packages("mlflow"), needs_packages("tensorboard")]),
    ],
)
def test_an_example_that_sends(example: str, recorded: Path) -> None:
    """It ends well, and says what it sent."""
    environment = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{recorded}/mlflow.db"}
    command = [sys.executable, "-m", "otel_rl.cli", *shlex.split(example), "--json"]
    new = json.loads(run(command, recorded, **environment))["new"]

    assert {*new} == {*example.rsplit(maxsplit=1)[-1].split(",")}
    assert all(sum(counts.values()) for counts in new.values())


@pytest.mark.slow
def test_the_example_that_delivers(tmp_path: Path) -> None:
    """The rows of a run without an agent are there afterwards."""
    started = "import otel_rl\nrun = otel_rl.init(agent='off', exporters=['jsonl'], quiet=True)"
    run_python(f"{started}\nrun.log({{'loss': 1.0}}, step=0)\nrun.finish(0)", tmp_path)
    run([sys.executable, "-m", "otel_rl.cli", *shlex.split(_DELIVERS)], tmp_path)

    assert [*tmp_path.glob("runs/**/rows.jsonl")]


def test_each_section_has_the_example_of_a_verb() -> None:
    """The help of `otel-rl` begins each section with one, and lists rare verbs by their names alone."""
    printed = CliRunner().invoke(main, ["--help"]).output
    known = {(verb.section, example) for verb in VERBS if not verb.hidden for example in verb.examples}

    assert {*SECTIONS.items()} <= known
    assert [f"{section.capitalize()}: $ otel-rl {example}" in printed for section, example in SECTIONS.items()]
    assert "also    bridge\n" in printed
    assert not {"owes", "replay"} & {*printed.split()}
    assert len(printed.splitlines()) <= 40
