"""A trainer's lines and messages are recorded, and reach its own streams byte for byte as without otel-rl."""

from __future__ import annotations

import logging
import logging.config
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Printed, Record

RUN = (
    "import otel_rl\nrun = otel_rl.init(project='p', dir={dir!r}, exporters=[], agent='off', quiet=True, output=True)\n"
)
PROGRAMS = {
    "print": "print('a', 1, end=' ')\nprint('b', flush=True)\nprint('ünïcode ✓ 日本')",
    "binary": "import sys\nsys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()",
    "threads": (
        "import threading\ndef work(n):\n    for i in range(200): print('thread', n, 'line', i)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(1)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    ),
    "tqdm": "from tqdm import tqdm\nfor _ in tqdm(range(3), bar_format='{n_fmt}/{total_fmt}', mininterval=0): pass",
    "rich": "from rich.console import Console\nConsole(width=40).print('[bold]text[/] [red]red[/]')",
    "logging": "import logging\nlogging.basicConfig(format='%(name)s: %(message)s')\nlogging.getLogger('x').error(1)",
    "odd message": (
        "import logging\nlogging.raiseExceptions = False\nclass Odd:\n    def __str__(self): raise RuntimeError\n"
        "logging.getLogger('x').error(Odd())\nprint('went on')"
    ),
    "redirect": (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()): print('hidden')\nprint('shown')"
    ),
    "faulthandler": "import faulthandler, sys\nfaulthandler.dump_traceback(file=sys.__stderr__, all_threads=False)",
    "c": "import ctypes\nctypes.CDLL(None).puts(b'of C')\nctypes.CDLL(None).fflush(None)",
    "writelines": "import sys\nsys.stdout.writelines(['one\\n', 'two\\n'])",
    "closed": "import sys\nprint('before')\nsys.stderr.close()",
}


def outputs_of(script: str) -> tuple[bytes, bytes, int]:
    """Return what a program writes to standard output and error, and its exit code."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout, done.stderr.replace(b'File "<string>", line 3', b'File "<string>", line 1'), done.returncode


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_bytes_stay_as_they_are(tmp_path: Path, program: str) -> None:
    """A terminal or a pipe gets what it got before."""
    recorded = RUN.format(dir=str(tmp_path)) + PROGRAMS[program]
    plain = "import os\nos.devnull\n" + PROGRAMS[program]

    assert outputs_of(recorded) == outputs_of(plain)


def lines_of(journal: Path) -> list[Printed]:
    """Return what a journal has of printed lines."""
    reader: Reader[Record] = Reader(journal, AnyRecord)
    records: list[Record] = []
    while more := reader.read(final=True):
        records += more
    reader.close()
    return [record for record in records if isinstance(record, Printed)]


def printed(tmp_path: Path, script: str) -> list[Printed]:
    """Return what is recorded of a program whose output is a pipe."""
    subprocess.run([sys.executable, "-c", RUN.format(dir=str(tmp_path)) + script], capture_output=True, check=False)
    (journal,) = tmp_path.glob("p/*/local/*/journals/rank0*/")
    return lines_of(journal)


def test_lines_of_a_pipe(tmp_path: Path) -> None:
    """Lines of both streams are recorded, those of threads whole, and the last one without its end too."""
    script = """
import sys, threading
print('out'); print('err', file=sys.stderr)
threads = [threading.Thread(target=lambda n=n: [print('thread', n, 'is', 'well') for _ in range(50)]) for n in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print('the end', end='')
"""
    lines = printed(tmp_path, script)
    of_threads = Counter(line.text for line in lines for _ in range(line.repeated) if line.text.startswith("thread"))

    assert [(line.stream, line.text) for line in lines[:2]] == [("stdout", "out"), ("stderr", "err")]
    assert of_threads == {f"thread {n} is well": 50 for n in range(4)}
    assert lines[-1].text == "the end"


def test_the_traceback_that_ends_a_program(tmp_path: Path) -> None:
    """It is printed before the run ends."""
    assert printed(tmp_path, "raise ValueError('no prompt')")[-1].text == "ValueError: no prompt"


def test_messages_of_logging(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Each has its severity, logger, place, thread and exception; those of debugging and otel-rl's own have none."""
    log = logging.getLogger("trainer.rollout")
    log.setLevel(logging.DEBUG)
    log.debug("details")
    logging.getLogger("otel_rl.somewhere").warning("its own")
    try:
        raise ValueError("no prompt")
    except ValueError:
        log.exception("rollout %d failed", 7)
    recording.finish(0)
    (message,) = [record for record in records_of(recording) if isinstance(record, Printed)]

    assert (message.stream, message.severity, message.logger, message.text) == (
        *("logging", 17, "trainer.rollout"),
        "rollout 7 failed",
    )
    assert message.attributes["exception.type"] == "ValueError"
    assert str(message.attributes["exception.stacktrace"]).endswith("ValueError: no prompt")
    assert message.attributes["code.file.path"] == __file__
    assert message.attributes["thread.name"] == "MainThread"


def test_logging_is_configured_anew(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """No handler is added, and none that is replaced takes the recording away."""
    before = [*logging.getLogger().handlers]
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    logging.getLogger("trainer").error("after dictConfig")
    recording.finish(0)
    texts = [record.text for record in records_of(recording) if isinstance(record, Printed)]

    assert texts == ["after dictConfig"]
    assert logging.getLogger().handlers == before


def test_the_span_that_is_open(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """A message has the ids of its span, also that of a trajectory in another thread."""
    with recording.step(0), recording.phase("generate") as phase:
        logging.getLogger("trainer").warning("inside")
        ids = phase.get_span_context()
    recording.finish(0)
    (message,) = [record for record in records_of(recording) if isinstance(record, Printed)]

    assert (int.from_bytes(message.trace_id), message.span_id) == (ids.trace_id, ids.span_id)


def test_streams_and_loggers_are_given_back(tmp_path: Path) -> None:
    """After `finish`, nothing of otel-rl is left in them."""
    handlers, write = logging.Logger.callHandlers, vars(sys.stdout).get("write")
    run = otel_rl.init(project="p", dir=tmp_path, exporters=[], agent="off", quiet=True, output=True)
    run.finish(0)

    assert logging.Logger.callHandlers is handlers
    assert vars(sys.stdout).get("write") is write


def test_a_forked_child_prints(tmp_path: Path) -> None:
    """Its lines are not those of its parent, and the parent's are not there twice."""
    script = "import os\nprint('parent')\nif not os.fork(): print('child'); os._exit(0)\nos.wait(); print('after')"
    texts = [line.text for line in printed(tmp_path, script)]

    assert texts == ["parent", "after"]


def test_nothing_is_recorded_where_it_is_off(tmp_path: Path) -> None:
    """`output=False` records no line and no message."""
    run = otel_rl.init(project="p", dir=tmp_path, exporters=[], agent="off", quiet=True, output=False)
    logging.getLogger("trainer").error("not wanted")
    run.finish(0)
    (journal,) = tmp_path.glob("p/*/local/*/journals/rank0*/")

    assert lines_of(journal) == []
