"""Answers for programs: their limit, their schemas, and when commands print them."""

from __future__ import annotations

import json
import math
from itertools import cycle
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.cli.answers import MOST_BYTES, bounded
from otel_rl.recorder.archive.now import WaitKind
from otel_rl.recorder.errors.sinks import one_line
from tests.docs.answers_page import COMMANDS, schema_of
from tests.look.recorded import Shape, record
from tests.look.terminal.nows import wait, written
from tests.look.terminal.test_pty import Tty
from tests.security.hostile import CONTROLS, NAMES


class Inner(msgspec.Struct, frozen=True, array_like=True):
    """A part of an answer."""

    name: str
    value: float


class Outer(msgspec.Struct, frozen=True):
    """An answer."""

    texts: tuple[str, ...]
    inner: tuple[Inner, ...] = ()
    by_name: dict[str, float] = {}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    shape = Shape(steps=30, ranks=2, slow_rank=1, resumed_at=20, nan_from=25, names=tuple(NAMES[:40]), texts=True)
    record(directory / "one", shape)
    record(directory / "two", Shape(steps=30, slower_from=15))
    return directory


def arguments(command: str, runs: Path) -> list[str]:
    places = [str(runs / name) for name in ("one", "two")]
    several = {"ls": ["ls", str(runs)], "compare": ["compare", *places]}
    several["export"] = ["export", places[0], "--to", "csv", "-o", str(runs / "csv")]
    return several.get(command, [command, places[0]])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_gets_json(command: str, runs: Path) -> None:
    """It is one line, fits the schema in the docs, and has no character that acts on a terminal."""
    options = ["--json"] if command == "export" else []
    output = CliRunner().invoke(main, [*arguments(command, runs), *options]).output

    assert output.count("\n") == 1
    assert not CONTROLS & set(output[:-1])
    jsonschema.validate(json.loads(output), schema_of(COMMANDS[command]))


@pytest.mark.parametrize("command", COMMANDS)
def test_text_can_be_asked_for(command: str, runs: Path) -> None:
    """`--text` prints in a pipe what a terminal shows, and so does `--ascii`."""
    for option in ("--text", *(("--ascii",) if command != "export" else ())):
        output = CliRunner().invoke(main, [*arguments(command, runs), option]).output

        assert output.count("\n") > (0 if command in ("tag", "logs") else 2)
        assert not output.startswith("{")


@pytest.mark.parametrize("command", ["ls", "why", "compare"])
def test_a_terminal_gets_text(command: str, runs: Path) -> None:
    """`--json` prints JSON there."""
    text, answer = Tty(*arguments(command, runs)), Tty(*arguments(command, runs), "--json")
    text.end(), answer.end()

    assert text.written.count(b"\n") > 2
    assert "left_out" in json.loads(answer.written)


def test_an_answer_that_fits_is_whole() -> None:
    """Nothing is left out, and structs, arrays and mappings are as msgspec encodes them."""
    answer = Outer(("a",), (Inner("b", 1.5), Inner("c", math.nan)), {"d": math.inf})

    assert json.loads(bounded(answer)) == {**json.loads(msgspec.json.encode(answer)), "left_out": {}}


def test_the_waits_of_a_run_have_hostile_names(tmp_path: Path) -> None:
    """Why it is stuck fits the schema, and no name acts on the terminal."""
    names = zip(NAMES, cycle(get_args(WaitKind)), strict=False)
    waits = [wait(name, kind, name, (name,), cause="dead", culprits=(name,)) for name, kind in names]
    place = str(written(tmp_path / "waiting", waits=waits).path)
    for command in ("why", "owes"):
        output = CliRunner().invoke(main, [command, place, "--json"]).output
        text = CliRunner().invoke(main, [command, place, "--text"]).output

        assert output.count("\n") == 1
        assert not CONTROLS & {*output[:-1], *text.replace("\n", "")}
        if command == "why":
            jsonschema.validate(json.loads(output), schema_of(COMMANDS[command]))
            assert json.loads(output)["owed"]["waits"]


@pytest.mark.parametrize(
    "answer",
    [
        Outer(tuple(map(str, range(200_000)))),
        Outer(("x" * 10_000_000,)),
        Outer((), tuple(Inner("n" * 1000, 0.5) for _ in range(5000))),
        Outer((), (), {f"{'n' * 3000}{number}": 0.5 for number in range(2000)}),
        Outer(("\x00\u202e" * 200_000,)),
    ],
    ids=["many", "long", "structs", "names", "escapes"],
)
@pytest.mark.parametrize("most", [2000, 40_000, MOST_BYTES])
def test_no_answer_is_larger_than_its_limit(answer: Outer, most: int) -> None:
    """It says what is left out, and how much, and still fits its type."""
    encoded = bounded(answer, most)
    decoded = json.loads(encoded)

    assert len(encoded) <= most
    assert sum(decoded.pop("left_out").values()) > 0
    msgspec.convert(decoded, Outer)


def test_what_is_left_out_is_counted() -> None:
    """All of a list but its first items, by the field."""
    answer = json.loads(bounded(Outer(tuple(f"{number:04}" for number in range(3000))), 10_000))

    assert answer["texts"][0] == "0000"
    assert len(answer["texts"]) + answer["left_out"]["texts"] == 3000


def test_texts_are_cut_last() -> None:
    """An answer with many items has the sentences of the first ones in full."""
    answer = json.loads(bounded(Outer(tuple("a sentence " * 30 for _ in range(1000))), 40_000))

    assert set(answer["texts"]) == {"a sentence " * 30}
    assert len(answer["texts"]) == 64


def test_an_answer_that_cannot_be_cut_is_refused() -> None:
    """Nothing is returned that is larger than the limit."""
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        bounded(Outer(("a",)), 10)


def test_texts_are_the_recorded_ones() -> None:
    """Escaped characters are there again when JSON is parsed; bytes of paths that are not UTF-8 are escaped."""
    texts = (*NAMES, "\U000e0041")
    encoded = bounded(Outer((*texts, "\udcff")))

    assert json.loads(encoded)["texts"] == [*texts, "\\udcff"]
    assert one_line(encoded.decode()) == encoded.decode()
