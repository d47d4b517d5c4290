"""Every code block of README and the docs runs, or is checked as far as a machine without frameworks can."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import groupby

import click
import msgspec
import pytest

from otel_rl.cli import main
from tests.docs.snippets import ROOT, Block, blocks, pages

_BLOCKS = blocks()
_NOT_CODE = ("", "text", "mermaid")
"""Languages of blocks that are not tested here: output, diagrams, and the runbook's queries, which have a test."""
_SHELL = ("sh", "bash")
_ENVIRONMENT = {"OTEL_RL_HARDWARE": "false", "OTEL_RL_IDLE_TIMEOUT": "5", "WANDB_MODE": "offline"}


def _of(*languages: str) -> list[Block]:
    return [block for block in _BLOCKS if block.language in languages]


def _python(how: str) -> list[Block]:
    return [block for block in _of("python") if block.how == how]


def _run(directory: os.PathLike[str], command: list[str]) -> None:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | _ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


_PAGES = {page: list(of_page) for page, of_page in groupby(_python(""), key=lambda block: block.page)}


@pytest.mark.parametrize("page", _PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path) -> None:
    """Blocks run one after the other, as somebody does who reads the page and types them."""
    (tmp_path / "page.py").write_text("".join(f"{block.setup}{block.code}\n" for block in _PAGES[page]))

    _run(tmp_path, [sys.executable, "page.py"])


@pytest.mark.parametrize("block", _python("file"), ids=lambda block: block.id)
def test_a_program_runs(block: Block, tmp_path) -> None:
    """A block that the page calls a file is a whole program."""
    (tmp_path / "train.py").write_text(block.code)

    _run(tmp_path, [sys.executable, "train.py"])


@pytest.mark.slow
@pytest.mark.parametrize("block", _python("slow"), ids=lambda block: block.id)
def test_a_slow_program_runs(block: Block, tmp_path) -> None:
    """The same for what takes long."""
    if "import ray" in block.code:
        pytest.importorskip("ray")
    (tmp_path / "train.py").write_text(block.code)

    _run(tmp_path, [sys.executable, "train.py"])


@pytest.mark.slow
@pytest.mark.parametrize("block", _python("torchrun"), ids=lambda block: block.id)
def test_a_program_of_two_ranks_makes_one_row_per_step(block: Block, tmp_path) -> None:
    """The rows are what the page says: a sum of 200 tokens."""
    (tmp_path / "train.py").write_text(block.code)

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-id=tutorial"]
    _run(tmp_path, [*torchrun, "train.py"])
    (rows,) = tmp_path.glob("runs/*/*/rows.jsonl")
    assert [json.loads(line)["values"]["tokens"] for line in rows.read_text().splitlines()] == [200, 200, 200]


@pytest.mark.slow
def test_what_needs_a_framework_has_the_right_types(tmp_path) -> None:
    """Mypy finds every name of otel-rl that does not exist, and every wrong argument."""
    for n, block in enumerate(_python("check")):
        (tmp_path / f"snippet_{n}.py").write_text(f"# {block.id}\n{block.setup}{block.code}")

    options = [
        "--ignore-missing-imports",
        "--allow-untyped-decorators",
        "--allow-untyped-calls",
        "--disable-error-code=misc",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(ROOT / ".mypy_cache"), *tmp_path.glob("*.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", _of(*_SHELL), ids=lambda block: block.id)
def test_shell_commands_parse(block: Block) -> None:
    """Bash parses the block, and the parser of otel-rl its own commands."""
    subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
    for arguments in _commands(block.code):
        _parse(arguments)


def _commands(code: str) -> list[list[str]]:
    """Return the arguments of each `otel-rl` in a script."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for ends, command in groupby(words, key=lambda word: word in ("&&", "||", "|", ";", "&")):
            words = list(command)
            name = next((n for n, word in enumerate(words) if word.rpartition("/")[2] == "otel-rl"), None)
            if not ends and name is not None:
                found.append(words[name + 1 :])
    return found


def _parse(arguments: list[str]) -> None:
    """Let click parse the arguments; nothing is run, and files need not exist.

    Raises:
        click.UsageError: There is no such command or option.
    """
    command: click.Command = main
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        known = command.get_command(click.Context(command), arguments[0])
        if known is None:
            raise click.UsageError(f"no such command: {arguments[0]}")
        command, arguments = known, arguments[1:]
    context = click.Context(command, info_name="otel-rl", **command.context_settings)
    command.make_parser(context).parse_args(list(arguments))


@pytest.mark.parametrize(
    "arguments", [["agnet"], ["agent", "--twice", "runs"], ["stack", "--wrong"], ["demo", "--rank", "2"]]
)
def test_a_wrong_command_is_found(arguments: list[str]) -> None:
    """The check above is worth something."""
    with pytest.raises(click.UsageError):
        _parse(arguments)


@pytest.mark.parametrize("block", _of("yaml", "toml", "json"), ids=lambda block: block.id)
def test_data_parses(block: Block) -> None:
    """YAML, TOML and JSON are valid."""
    decode = {"yaml": msgspec.yaml.decode, "toml": msgspec.toml.decode, "json": msgspec.json.decode}[block.language]
    assert decode(block.code.encode())


def test_every_block_is_tested() -> None:
    """A block in another language is tested by nothing."""
    known = ("python", "yaml", "toml", "json", *_SHELL, *_NOT_CODE)
    assert [block.id for block in _BLOCKS if block.language not in known] == []


def test_no_block_is_missed() -> None:
    """As many blocks are found as there are pairs of fences."""
    fences = sum(len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) for page in pages())
    assert 2 * len(_BLOCKS) == fences


def test_the_readme_is_a_front_page() -> None:
    """It has at most 150 lines; everything else is in the docs."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
