"""Descriptors that are kept: high numbers, and never somebody else's file."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

import pytest

from otel_rl.recorder.devices.host_memory import MemoryReader
from otel_rl.recorder.files.descriptors import kept, raised
from otel_rl.recorder.files.signals import SignalFiles, stacks_of
from otel_rl.recorder.journal.writer import Writer
from otel_rl.recorder.trainer.questions import Questions


def reused(number: int, place: Path) -> int:
    """Close a descriptor, and let another file have its number."""
    fd = os.open(place, os.O_CREAT | os.O_RDWR, 0o600)
    os.dup2(fd, number)
    os.close(fd)
    return number


def numbers() -> set[int]:
    """Return the numbers of the open descriptors."""
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


def test_a_high_number(tmp_path: Path) -> None:
    """The file is the same, and programs do not inherit it; the low number is free."""
    low = os.open(tmp_path, os.O_RDONLY)
    status = os.fstat(low)
    high = raised(low)

    assert high > 256
    assert os.path.samestat(os.fstat(high), status)
    assert not os.get_inheritable(high)
    os.close(high)


def test_a_number_of_another_file(tmp_path: Path) -> None:
    """It is known, and not closed."""
    descriptor = kept(os.open(tmp_path, os.O_RDONLY))
    assert descriptor.is_same
    reused(descriptor.number, tmp_path / "own")

    assert not descriptor.is_same
    descriptor.close()
    os.close(descriptor.number)  # it is open


def test_a_number_that_is_free(tmp_path: Path) -> None:
    """It is known, and a close raises nothing."""
    descriptor = kept(os.open(tmp_path, os.O_RDONLY))
    descriptor.close()

    assert not descriptor.is_same
    descriptor.close()


def test_numbers_of_a_journal(tmp_path: Path) -> None:
    """A trainer that has closed all descriptors keeps its own files when the journal is closed."""
    before = numbers()
    journal = Writer(tmp_path, limit_bytes=1 << 20)
    own = [reused(number, tmp_path / f"own{number}") for number in numbers() - before if number < 640]
    journal.close()

    for number in own:
        assert os.path.samestat(os.fstat(number), (tmp_path / f"own{number}").stat())
        os.close(number)


def test_numbers_of_signals(tmp_path: Path) -> None:
    """Nothing is written into a file that has got the number, and it stays open."""
    files = SignalFiles()
    files.begin(tmp_path)
    (number, place) = stacks_of(tmp_path) or (0, Path())
    descriptor = files._files[number].descriptor.number
    reused(descriptor, tmp_path / "own")
    files.write_stacks()
    files.close()

    assert (tmp_path / "own").read_bytes() == b""
    assert not place.exists()
    os.close(descriptor)


def test_a_number_of_the_memory_reader(tmp_path: Path) -> None:
    """It is high, and a file that has got it stays open."""
    reader = MemoryReader()
    number = reader._fd
    assert number > 256
    reused(number, tmp_path / "own")
    reader.close()

    os.close(number)


@pytest.mark.parametrize("way", ["signal", "register"])
def test_a_handler_of_the_trainer(tmp_path: Path, way: str) -> None:
    """Whoever takes the signal that asks for stacks closes its file, by which an autopsy does not send it."""
    files = SignalFiles()
    files.begin(tmp_path)
    number, place = stacks_of(tmp_path) or (0, Path())
    try:
        if way == "signal":
            assert signal.signal(number, lambda *_: None) is signal.SIG_DFL
        else:
            faulthandler.register(number, (tmp_path / "own").open("w"), chain=False)
        assert not place.exists()
        files.close()
        os.kill(os.getpid(), number)  # their handler is still there: otherwise it would end this process
    finally:
        faulthandler.unregister(number)
        signal.signal(number, signal.SIG_DFL)


def test_functions_that_set_handlers(tmp_path: Path) -> None:
    """They are those of Python again in the end, and the signals have their defaults."""
    before = signal.signal, faulthandler.register, faulthandler.unregister
    files = SignalFiles()
    files.begin(tmp_path)
    files.close()

    assert (signal.signal, faulthandler.register, faulthandler.unregister) == before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_functions_that_set_handlers_with_many_runs(tmp_path: Path) -> None:
    """Runs that overlap, each ending before the next, leave no chain of wrappers behind."""
    before = signal.signal
    last = SignalFiles()
    last.begin(tmp_path)
    for _ in range(1100):  # more than Python calls in one another
        following = SignalFiles()
        following.begin(tmp_path)
        last.close()
        last = following
    assert signal.signal(signal.SIGUSR2, signal.SIG_DFL) is signal.SIG_DFL
    last.close()

    assert signal.signal is before


def test_a_handler_with_two_runs(tmp_path: Path) -> None:
    """A run whose signal is taken closes its file, also after a later run has ended."""
    (tmp_path / "later").mkdir()
    files, later = SignalFiles(), SignalFiles()
    files.begin(tmp_path)
    later.begin(tmp_path / "later")
    later.close()
    number, place = stacks_of(tmp_path) or (0, Path())
    try:
        signal.signal(number, lambda *_: None)
        assert not place.exists()
    finally:
        files.close()
        signal.signal(number, signal.SIG_DFL)


def test_a_snapshot_of_another_file(tmp_path: Path) -> None:
    """A file that has got the number is not read for a snapshot; later, the memory is read again."""
    reader = MemoryReader()
    number = reused(reader._fd, tmp_path / "own")
    (tmp_path / "own").write_text("text of the trainer")

    assert reader.snapshot(1) == b""
    reader.keep()
    assert reader.snapshot(2)
    reader.close()
    os.close(number)


def test_signals_and_questions_after_their_files_were_closed(tmp_path: Path) -> None:
    """They have new files, so that an autopsy can ask again, and nothing is written into those of the trainer."""
    files, questions = SignalFiles(), Questions()
    files.begin(tmp_path)
    questions.begin(tmp_path, files.write_stacks)
    assert not files.keep()
    assert not questions.keep()
    own = [reused(file.descriptor.number, tmp_path / "own") for file in files._files.values()]
    assert questions._pipe is not None
    own += [reused(end.number, tmp_path / "own") for end in questions._pipe]
    numbers_before = {*files._files}

    assert files.keep()
    assert questions.keep()
    assert {*files._files} == numbers_before
    assert all(file.descriptor.is_same for file in files._files.values())
    assert questions._pipe is not None
    assert (tmp_path / "questions").read_text() == f"{questions._pipe[1].number} {questions._pipe[1].inode}"
    number, place = stacks_of(tmp_path) or (0, Path())
    os.kill(os.getpid(), number)
    assert "test_signals_and_questions" in place.read_text()
    questions.close()
    files.close()
    assert (tmp_path / "own").read_bytes() == b""
    for number in own:
        os.close(number)
