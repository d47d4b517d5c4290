"""Messages to standard error and to `logging`, if they cannot be written: the trainer notices nothing."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import logging.config
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.recorder.errors.sinks import log_of, print_line
from tests.processes import run_python

Make = Callable[[contextlib.ExitStack], Any]


class Raises:
    """A stream whose methods raise the exceptions that they are given."""

    def __init__(self, **errors: Exception) -> None:
        for name, error in errors.items():
            setattr(self, name, self._raising(error))

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    @staticmethod
    def _raising(error: Exception) -> Callable[..., Any]:
        def method(*_: object) -> None:
            raise error

        return method


class WriteOnly:
    """A stream that is a function alone."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> None:
        self.texts.append(text)


class ToLogger:
    """Standard error that is a logger, as many trainers set it; without a handler, `logging` writes to it again."""

    def write(self, text: str) -> None:
        logging.getLogger("stderr").error(text)

    def flush(self) -> None:
        pass


def closed(_: contextlib.ExitStack) -> object:
    stream = io.StringIO()
    stream.close()
    return stream


def closed_descriptor(_: contextlib.ExitStack) -> object:
    stream = io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w", closefd=False))
    os.close(stream.fileno())
    return stream


def full_disk(stack: contextlib.ExitStack) -> object:
    stream = io.TextIOWrapper(io.FileIO(os.open("/dev/full", os.O_WRONLY), "w", closefd=False), write_through=True)
    stack.callback(os.close, stream.fileno())
    return stream


def pipe(stack: contextlib.ExitStack, *, is_full: bool = False, is_read: bool = True, waits: bool = True) -> object:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    if is_full:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
    os.set_blocking(writer, waits)
    if is_read:
        stack.callback(os.close, reader)
    else:
        os.close(reader)
    stack.callback(os.close, writer)
    return io.TextIOWrapper(io.FileIO(writer, "w", closefd=False), write_through=True)


STREAMS: dict[str, Make] = {
    "none": lambda _: None,
    "closed": closed,
    "closed descriptor": closed_descriptor,
    "full disk": full_disk,
    "reader is gone": lambda stack: pipe(stack, is_read=False),
    "slow reader": lambda stack: pipe(stack, is_full=True),
    "slow reader, no waits": lambda stack: pipe(stack, is_full=True, waits=False),
    "write raises": lambda _: Raises(write=ZeroDivisionError()),
    "flush raises": lambda _: Raises(flush=OSError()),
    "fileno raises": lambda _: Raises(fileno=RuntimeError("reentrant call")),
    "write alone": lambda _: WriteOnly(),
    "no stream": lambda _: object(),
    "a logger": lambda _: ToLogger(),
    "not UTF-8": lambda _: io.TextIOWrapper(io.BytesIO(), encoding="ascii"),
    "read only": lambda stack: stack.enter_context(open(os.devnull)),  # noqa: PTH123, SIM115
}


@contextlib.contextmanager
def handlers(*given: logging.Handler) -> Iterator[None]:
    """Let the root logger have these handlers alone; pytest gives it some when a test begins."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, [*given]
    try:
        yield
    finally:
        root.handlers = before


@contextlib.contextmanager
def standard_error(make: Make) -> Iterator[None]:
    """Let standard error be a stream."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        stream = make(stack)
        patch.setattr(sys, "stderr", stream)
        yield


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_a_whole_run_raises_nothing(make: Make, tmp_path: Path) -> None:
    """Before `init`, during the run and at its end; the value is recorded, and the refused one counted."""
    with standard_error(make), handlers():
        log_of("otel_rl.early").warning("early")
        run = otel_rl.init(dir=tmp_path, exporters=[], agent="off")
        run.log({"loss": 1.0, "损失": "a text"}, step=0)
        end = run.finish(0)

    assert len(end.refused) == 1
    assert end.missing == ""


@pytest.mark.parametrize("make", [make for name, make in STREAMS.items() if name != "slow reader"])
def test_a_handler_on_a_broken_stream_raises_nothing(make: Make) -> None:
    """`logging` reports what a handler could not write on the same stream, which raises once more."""
    with standard_error(make), handlers(logging.StreamHandler()):
        log_of("otel_rl.broken").warning("损失")


class Failing(logging.Handler):
    """A handler of a trainer with a mistake, which is its filter too."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise ZeroDivisionError(record.msg)

    def filter(self, record: logging.LogRecord) -> bool:
        raise ZeroDivisionError(record.msg)


def test_a_handler_and_a_filter_that_raise() -> None:
    """They are the trainer's; their exceptions do not come out of a call of otel-rl."""
    logger = log_of("otel_rl.failing")
    with handlers(Failing()):
        logger.warning("unwritten")
        logger.logger.filters.append(Failing())
        logger.warning("unwritten")


def test_a_stream_that_is_not_utf8_gets_escapes() -> None:
    """The message is there, in ASCII."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    with standard_error(lambda _: stream), handlers():
        log_of("otel_rl.ascii").warning("损失 is not a number")

    assert written.getvalue() == b"\\u635f\\u5931 is not a number\n"


def test_an_unconfigured_message_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """As by `logging` itself: warnings alone, and none if the last resort is switched off."""
    logger = log_of("otel_rl.unconfigured")
    with handlers():
        logger.info("not shown")
        logger.warning("shown %d\n", 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging, "lastResort", None)
            patch.setattr(logging, "raiseExceptions", False)  # otherwise `logging` says that there is no handler
            logger.warning("not shown")

    assert capsys.readouterr().err == "shown 1\\n\n"


CONFIGURE: dict[str, Callable[[], None]] = {
    "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
    "other loggers": lambda: logging.config.dictConfig({"version": 1, "loggers": {"axolotl": {"level": "INFO"}}}),
    "fileConfig": lambda: logging.config.fileConfig(
        io.StringIO("[loggers]\nkeys=root\n[handlers]\nkeys=\n[formatters]\nkeys=\n[logger_root]\nhandlers=\n")
    ),
    "by name": lambda: setattr(logging.getLogger("otel_rl.muted"), "disabled", True),
}


@pytest.mark.parametrize("configure", CONFIGURE.values(), ids=CONFIGURE)
def test_a_configuration_of_other_loggers_mutes_nothing(
    configure: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """`disable_existing_loggers` is on by default; who wants no messages sets a level."""
    logger = log_of("otel_rl.muted")
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = {one: one.disabled for one in loggers}
    try:
        with handlers():
            configure()
            logger.warning("heard")
            logger.logger.setLevel(logging.CRITICAL)
            logger.warning("not heard")
    finally:
        for one, disabled in before.items():
            one.disabled = disabled
        logger.logger.setLevel(logging.NOTSET)

    assert capsys.readouterr().err == "heard\n"


def test_a_message_names_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Not the file with the guard."""
    log_of("otel_rl.caller").warning("a message")

    assert caplog.records[0].pathname == __file__


def test_a_reader_that_is_gone_sends_no_signal(tmp_path: Path) -> None:
    """Programs that restore the default of SIGPIPE, as for `| head`, end at their own output alone."""
    script = (
        "import signal, sys, os; signal.signal(signal.SIGPIPE, signal.SIG_DFL); reader, writer = os.pipe()\n"
        "os.dup2(writer, 2); os.close(writer); os.close(reader)\n"
        "from otel_rl.recorder.errors.sinks import log_of, print_line\n"
        "print_line('a line'); log_of('otel_rl').warning('a message'); print('here')"
    )
    assert run_python(script, tmp_path) == "here\n"


def test_an_interrupt_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a signal handler that comes while a message is written is the trainer's."""

    class Interrupted:
        def write(self, _: str) -> None:
            signal.raise_signal(signal.SIGUSR1)

    def alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, alarm)
    try:
        with pytest.raises(TimeoutError):
            print_line("a line", Interrupted())
    finally:
        signal.signal(signal.SIGUSR1, before)
