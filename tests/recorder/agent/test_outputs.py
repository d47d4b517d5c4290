"""The agent reads the files that processes print into: real processes, and real files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from otel_rl.recorder.agent.input.outputs import Outputs
from otel_rl.recorder.agent.steps.state import Journal
from otel_rl.recorder.files.processes import file_of, output_files
from otel_rl.recorder.journal.records import Printed, Started
from otel_rl.recorder.settings.settings import PrintedOutput
from tests.file_systems import sshfs

ANSWERS = "import os, sys\nfor line in sys.stdin: exec(line); print('ok', file=sys.__stderr__, flush=True)"


class Printer:
    """A process that runs lines of Python, and prints into a file."""

    def __init__(self, file: Path, rank: int = 0, *, mode: str = "w") -> None:
        with file.open(mode) as output:
            self._size = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-uc", ANSWERS],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            )
        status = file.stat()
        outputs = [(1, file_of(status), self._size, os.fsencode(file))]
        self.journal = Journal(
            Started("r", 0, rank, 2, 2, "", self.process.pid, "h", 4096, time.time_ns(), None, outputs)
        )

    def run(self, script: str) -> None:
        """Run a line, and wait for its end."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.write(f"{script}\n")
        self.process.stdin.flush()
        assert self.process.stderr.readline() == "ok\n"

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


@contextmanager
def printer(file: Path, rank: int = 0, *, mode: str = "w") -> Iterator[Printer]:
    one = Printer(file, rank, mode=mode)
    try:
        yield one
    finally:
        one.process.kill()
        one.end()


def followed(places: dict[str, int] | None = None, settings: PrintedOutput | None = None) -> Outputs:
    return Outputs(settings or PrintedOutput(), places or {})


def taken(outputs: Outputs, *printers: Printer, over: bool = False) -> list[tuple[str, str]]:
    """Return the journals and the texts of new lines."""
    outputs.watch({} if over else {f"rank{one.journal.started.rank}": one.journal for one in printers})
    outputs.settle(10)
    time.sleep(0)
    return [(name, record.text) for name, record in outputs.take() if isinstance(record, Printed)]


@pytest.fixture(params=["local", pytest.param("sshfs", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory on a local disk, and one on another machine."""
    with sshfs(tmp_path) if request.param == "sshfs" else nullcontext(tmp_path) as directory:
        yield directory


def test_lines_of_a_file(tmp_path: Path) -> None:
    """Each line is there once, and a line that has not ended waits for its end."""
    with printer(tmp_path / "out") as one:
        outputs = followed()
        one.run("print('first'); print('sec', end='')")
        begun = taken(outputs, one)
        one.run("print('ond')")

        assert begun == [("rank0", "first")]
        assert taken(outputs, one) == [("rank0", "second")]
        assert taken(outputs, one) == []
        outputs.close()


def test_a_line_without_end(tmp_path: Path) -> None:
    """The last line of a process that died is there, though it has no end."""
    with printer(tmp_path / "out") as one:
        outputs = followed()
        one.run("print('Killed in the mid', end='')")
        assert taken(outputs, one) == []
        one.end()

        assert taken(outputs, one, over=True) == [("rank0", "Killed in the mid")]
        outputs.close()


def test_what_was_in_the_file_before(tmp_path: Path) -> None:
    """A file that several jobs append to has lines of others, which are not those of this run."""
    (tmp_path / "out").write_text("of another job\n")
    with printer(tmp_path / "out", mode="a") as one:
        outputs = followed()
        one.run("print('mine')")

        assert taken(outputs, one) == [("rank0", "mine")]
        outputs.close()


def test_the_next_agent(tmp_path: Path) -> None:
    """It continues behind the lines that the last one has saved: no line is missing, and none is there twice."""
    with printer(tmp_path / "out") as one:
        first = followed()
        one.run("print('one')")
        before = taken(first, one)
        one.run("print('two')")
        first.settle(10)  # read, and not taken: as if the agent had died before it saved them
        first.close()
        second = followed(first.places)

        assert before == [("rank0", "one")]
        assert taken(second, one) == [("rank0", "two")]
        second.close()


def test_a_process_that_was_killed_before_an_agent_looked(tmp_path: Path) -> None:
    """Its lines are read from where its output was at its start, whatever bytes the name of the file has."""
    with printer(tmp_path / os.fsdecode(b"caf\xe9")) as one:
        one.run("print('last words')")
        one.process.kill()
        one.end()
        outputs = followed()

        assert taken(outputs, one) == [("rank0", "last words")]
        outputs.close()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("os.truncate(1, 0); os.lseek(1, 0, 0); print('after copytruncate')", "after copytruncate"),
        ("os.rename('{out}', '{out}.1'); print('after a rename')", "after a rename"),
        ("os.unlink('{out}'); print('after it was deleted')", "after it was deleted"),
        ("os.dup2(os.open('{out}.2', 65, 384), 1); print('into another file')", "into another file"),
        ("import subprocess; subprocess.run(['echo', 'of a child'])", "of a child"),
        ("os.write(1, b'caf\\xe9 \\x00\\n')", "caf\ufffd "),
        ("print('token=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')", "token=[redacted]"),
    ],
)
def test_files_that_change(place: Path, script: str, expected: str) -> None:
    """No line is lost, whatever becomes of the file and whoever writes into it; secrets do not leave it."""
    with printer(place / "out") as one:
        outputs = followed()
        one.run("print('a first and rather long line')")
        assert taken(outputs, one) == [("rank0", "a first and rather long line")]
        one.run(script.format(out=place / "out"))
        time.sleep(1.1)  # it looks for other descriptors once a second

        assert taken(outputs, one) == [("rank0", expected)]
        outputs.close()


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank1]: RuntimeError: NCCL error", "rank1"),
        ("[default1]:loading", "rank1"),
        ("[1,1]<stderr>:loading", "rank1"),
        ("[rank7]: of nobody here", None),
        ("loading", None),
    ],
)
def test_a_file_of_several_ranks(tmp_path: Path, line: str, rank: str | None) -> None:
    """The launcher's prefix says whose line it is; without one, nobody is named."""
    file = tmp_path / "out"
    with printer(file) as one, printer(file, rank=1, mode="a") as two:
        outputs = followed()
        outputs.watch({"rank0": one.journal, "rank1": two.journal})
        outputs.settle(10)
        two.run(f"print({line!r})")
        outputs.settle(10)
        ((name, record),) = outputs.take()
        outputs.close()

    assert isinstance(record, Printed)
    assert (None if record.is_shared else name) == rank


def test_both_streams_in_one_file(tmp_path: Path) -> None:
    """They are one stream, each line of which is there once."""
    script = "import sys; print('out', flush=True); print('err', file=sys.stderr)\nsys.stdin.read()"
    with (
        (tmp_path / "out").open("w") as file,
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=file, stderr=file) as process,
    ):
        started = Started("r", 0, 0, 1, 1, "", process.pid, "h", 4096, time.time_ns(), None, [])
        while (tmp_path / "out").stat().st_size < len("out\nerr\n"):
            time.sleep(0.01)
        outputs = followed()
        outputs.watch({"rank0": Journal(started)})
        outputs.settle(10)
        records = [record for _, record in outputs.take() if isinstance(record, Printed)]
        outputs.close()
        process.kill()

    assert [(record.stream, record.text) for record in records] == [("output", "out"), ("output", "err")]


def test_nothing_is_followed_where_it_is_off(tmp_path: Path) -> None:
    """`output=False` opens no file and starts no thread."""
    with printer(tmp_path / "out") as one:
        outputs = followed(settings=PrintedOutput(enabled=False))
        one.run("print('not wanted')")

        assert taken(outputs, one) == []
        assert outputs.places == {}


def test_the_files_of_this_process(tmp_path: Path) -> None:
    """A process notes its outputs that are files, with their sizes; a pipe or a terminal is none."""
    script = f"from {output_files.__module__} import output_files; print(output_files())"
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.write_text("before\n")
    with place.open("a") as file:
        subprocess.run([sys.executable, "-c", script], stdout=file, stderr=subprocess.PIPE, check=True)
    expected = [(1, file_of(place.stat()), len("before\n"), os.fsencode(place))]

    assert place.read_text() == f"before\n{expected}\n"
