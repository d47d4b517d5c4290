"""The command line: what starting it loads, and how it finds verbs and says what is absent."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import extras, main
from otel_rl.cli.commands import ENTRY_POINT_GROUP, Commands, Section, Verb
from tests.processes import run_python

ROOT = Path(__file__).parents[2]
VERBS = main.list_commands(click.Context(main))

HEAVY = (
    *("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client", "requests", "grpc", "google.protobuf"),
    *(
        "otel_rl.recorder.agent.process",
        "otel_rl.cli.late.once",
        "otel_rl.recorder.otlp",
        "otel_rl.frameworks.instrument",
        "otel_rl.look.reader",
        "otel_rl_exporters",
    ),
    *("torch", "numpy", "rich", "yaml", "psutil", "tornado"),
)


@pytest.mark.parametrize("arguments", [["--help"], ["agent", "--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_is_light(arguments: list[str], tmp_path: Path) -> None:
    """Help loads no SDK, no agent, no server and no package that draws, so that it takes less than 0.4 s."""
    script = f"""
import sys
from otel_rl.cli import main
main({arguments}, standalone_mode=False)
print("loaded:", [name for name in {HEAVY} if name in sys.modules])
"""

    assert run_python(script, tmp_path).endswith("loaded: []\n")


@pytest.mark.slow
@pytest.mark.parametrize("output", [">&-", "2>&1 >/dev/full", "| true"])
def test_an_output_that_cannot_be_written(output: str, tmp_path: Path) -> None:
    """Closed, full or not read: no command prints a traceback."""
    otel_rl.init(dir=tmp_path, agent="off", exporters=[], quiet=True, id="one").finish(0)
    calls = [*(f"{name} --help" for name in VERBS), f"ls {tmp_path}", f"top --once {tmp_path}", "ls --json one"]
    script = "\n".join(f"{sys.executable} -m otel_rl.cli {call} {output}" for call in calls)
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Traceback" not in ended.stderr + ended.stdout


def test_status_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A list of servers, here of none, and the exit code that it has without `--json`."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no container engine
    result = CliRunner().invoke(main, ["stack", "status", "--json"])

    assert (result.exit_code, result.output) == (1, "[]\n")


def test_a_verb_is_one_file() -> None:
    """Each file of a package `verbs` is a verb in a section of the help, and nothing else is one."""
    files = [path for path in (ROOT / "otel_rl").glob("*/verbs/*.py") if path.name != "__init__.py"]

    assert sorted(path.stem for path in files) == VERBS
    verbs = [main.get_command(click.Context(main), name) for name in VERBS]
    assert {verb.section for verb in verbs if isinstance(verb, Verb)} == {*get_args(Section)}
    assert [verb.name for verb in verbs if verb] == VERBS


def test_each_extra_of_a_verb_exists() -> None:
    """An extra that a verb names is one of the distribution."""
    verbs = [main.get_command(click.Context(main), name) for name in VERBS]
    known = metadata.metadata("otel-rl").get_all("Provides-Extra") or []

    assert {verb.extra for verb in verbs if isinstance(verb, Verb)} <= {"", *known}


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A distribution with a verb that needs an absent package, and with a wing that is absent."""
    package = tmp_path / "their_verbs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "greet.py").write_text(
        "import click\nfrom otel_rl.cli.commands import Verb\n"
        "@click.command(cls=Verb, section='look', extra='look', short_help='Greet.', examples={})\n"
        "@click.argument('who')\n"
        "def greet(who):\n    import absent.part\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\ntheirs = their_verbs\ngone = otel_rl.gone.verbs\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.usefixtures("distributed")
def test_a_verb_of_another_distribution() -> None:
    """An entry point is enough."""
    result = CliRunner().invoke(Commands("otel-rl"), ["--help"])

    assert "  greet    Greet.\n" in result.output


@pytest.mark.usefixtures("distributed")
def test_an_extra_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install, and the same command from an environment of its own."""
    monkeypatch.setattr(extras, "_source", lambda: "/a checkout")
    result = CliRunner().invoke(Commands("otel-rl"), ["greet", "the world"])

    elsewhere = "uvx --from '/a checkout[look]' otel-rl greet 'the world'"
    fix = f"pip install 'otel-rl[look]', or leave this environment as it is: {elsewhere}"
    assert (result.exit_code, result.output) == (1, f"Error: absent is not installed: {fix}\n")
    assert shlex.split(elsewhere)[2] == "/a checkout[look]"


@pytest.mark.usefixtures("distributed")
def test_a_wing_that_is_absent() -> None:
    """An unknown verb may be one of its; other verbs work."""
    result = CliRunner().invoke(Commands("otel-rl"), ["fly", "south"])

    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert result.output.startswith(
        "Error: no command 'fly' is here, but gone of otel-rl is not installed: pip install"
    )
    assert result.output.endswith(" otel-rl fly south\n")


def test_an_unknown_verb() -> None:
    """The error says which one was meant, and lists those that help shows."""
    near, far = (CliRunner().invoke(main, [name]) for name in ("reprot", "explain"))

    assert near.output.endswith("Error: no command 'reprot'; did you mean report?\n")
    assert (near.exit_code, far.exit_code) == (2, 2)
    assert "; known are: agent, autopsy" in far.output
    assert "owes" not in far.output


def test_the_source_of_an_installation(tmp_path: Path) -> None:
    """A checkout or a wheel that is still there, else the name on the index."""
    urls = {f"file://{tmp_path}": str(tmp_path), f"file://{tmp_path}/gone": "otel-rl", "https://host/x": "otel-rl"}

    assert {url: extras.source_in(f'{{"url": "{url}"}}') for url in urls} == urls
    assert extras.source_in("{}") == "otel-rl"
