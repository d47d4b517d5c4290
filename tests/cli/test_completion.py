"""Shell completion, as the reference of the command line installs it: verbs, names of runs, formats and exporters."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import blocks
from tests.look.recorded import Shape, record
from tests.processes import run

INSTALLS = [block for block in blocks() if block.page == "docs/reference/cli.md" and "_OTEL_RL_COMPLETE" in block.code]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs, one of which has a hostile name, and with the program of this environment."""
    directory = tmp_path_factory.mktemp("completion")
    record(directory / "runs" / "p" / "one", Shape(steps=2, name="baseline"))
    record(directory / "runs" / "p" / "two", Shape(steps=2, name="base\x1b[1m"))
    program = directory / "bin" / "otel-rl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom otel_rl.cli import main\nmain(prog_name='otel-rl')\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("otel-rl wh", {"why"}),
        ("otel-rl ow", set()),
        ("otel-rl why base", {"baseline"}),
        ("otel-rl export base", {"baseline"}),
        ("otel-rl export baseline --to jsonl,tensor", {"jsonl,tensorboard"}),
        ("otel-rl samples --st", {"--steps"}),
    ],
)
def test_what_a_shell_gets(shell: str, words: str, completed: set[str], place: Path) -> None:
    """Verbs that are shown, names of runs, exporters behind a comma, and options."""
    last = words.rpartition(" ")[2]
    environment = {"COMP_WORDS": words, "COMP_CWORD": last if shell == "fish" else str(words.count(" "))}
    output = run(["bin/otel-rl"], place, _OTEL_RL_COMPLETE=f"{shell}_complete", **environment)

    assert {value for kind, value in values_in(output, shell) if kind == "plain"} == completed


def values_in(output: str, shell: str) -> list[tuple[str, str]]:
    """Return the kinds and the values in what the program printed for a shell."""
    lines = output.strip().splitlines()
    if shell == "zsh":  # three lines each: the kind, the value, and its help
        return list(zip(lines[::3], lines[1::3], strict=True))
    return [(kind, value.partition("\t")[0]) for kind, _, value in (line.partition(",") for line in lines)]


def test_each_shell_has_its_line() -> None:
    """The page has those of bash, zsh and fish."""
    assert [shell for shell in ("bash", "zsh", "fish") if any(f"{shell}_source" in one.code for one in INSTALLS)] == [
        "bash",
        "zsh",
        "fish",
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(place: Path) -> None:
    """With the line of the page, bash itself completes a verb and the name of a run."""
    (line,) = [line for block in INSTALLS for line in block.code.splitlines() if "bash_source" in line]
    line = line.partition(" >>")[0].removeprefix("echo '").removesuffix("'")
    script = f"""
export PATH=$PWD/bin:$PATH
{line}
complete_words() {{
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _otel_rl_completion otel-rl 2> /dev/null
    echo "${{COMPREPLY[@]}}"
}}
complete_words otel-rl aut
complete_words otel-rl top base
"""
    (place / "complete.sh").write_text(script)

    assert run(["bash", "complete.sh"], place).split() == ["autopsy", "baseline"]
