"""Reads a run in which a stranger has replaced a file: `python -m tests.security.reading RUN KIND [FILE ...]`.

KIND is a number to replace each file by another kind, from that one on.

Prints a line for each file and reader that did something else than to return, or to say in an exception what is wrong.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import stat
import sys
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from otel_rl.cli.ansi import this_terminal
from otel_rl.cli.late.once import LateDelivery
from otel_rl.cli.verbs.watch import waiting
from otel_rl.look.insight.compare.conclude import compare
from otel_rl.look.page.report import write_report
from otel_rl.look.reader.runs import open_run, open_runs
from otel_rl.look.terminal import show
from otel_rl.look.terminal.listing import runs_below
from otel_rl.recorder.agent.process import StartError
from otel_rl.recorder.archive.runs import directory_of, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_S, _MOST_MIB = 60, 320
"""Limits of a reader: seconds, and MiB above those before."""


_TERMINAL = this_terminal(ascii_alone=True)


def _wide(place: Path) -> None:
    place.write_bytes(b'{"lost": {' + b",".join(b'"%d": 1' % n for n in range(1_000_000)) + b"}}")


def _socket(place: Path) -> None:
    before = Path.cwd()
    os.chdir(place.parent)  # a path of a socket is short
    socket.socket(socket.AF_UNIX).bind(place.name)
    os.chdir(before)


def _sparse(place: Path, start: bytes, size: int) -> None:
    with place.open("wb") as file:
        file.write(start)
        file.truncate(size)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link to a device": lambda place: place.symlink_to("/dev/zero"),
    "device": lambda place: os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
    "socket": _socket,
    "link to itself": lambda place: place.symlink_to(place.name),
    "link to nothing": lambda place: place.symlink_to("nothing"),
    "directory": lambda place: (place / "inside").mkdir(parents=True),
    "empty file": lambda place: place.touch(),
    "endless line": lambda place: _sparse(place, b'{"values": {"a', 1 << 30),
    "large file": lambda place: _sparse(place, b"", 1 << 40),
    "wide JSON": _wide,
    "deep JSON": lambda place: place.write_bytes(b"[" * (8 << 20)),
}


def readers(run: Path) -> dict[str, Callable[[], object]]:
    """Return everything that reads a run, by its name."""
    above = run.parents[1]
    good = run.with_name("good")

    def read_all() -> None:
        opened = open_run(run)
        _ = opened.parameters, opened.environment, opened.damaged, opened.holes
        for table in (opened.rows(), opened.spans(), opened.events(), opened.attempts):
            len(table)

    return {
        "open_run": read_all,
        "open_runs": lambda: open_runs(above).sql("SELECT count(*) FROM rows"),
        "ls": lambda: _expect(good, [Path(one.path) for one in runs_below([above])]),
        "top": lambda: show.once(place_of(run), _TERMINAL),
        "report": lambda: write_report(run, above.parent / "report.html"),
        "compare": lambda: compare([open_run(good)], [open_run(run)], [], by_tokens=False),
        "names": lambda: _expect(good, [Path(directory_of("good", Path(os.environ["OTEL_RL_DIR"])))]),
        "watch": lambda: waiting(above),
        "agent": lambda: LateDelivery(run, lambda _: None).deliver(),
    }


def _expect(run: Path, found: list[Path]) -> None:
    if run not in found:
        raise AssertionError(f"{run} is not among {found}")


def _limited(read: Callable[[], object]) -> str:
    """Call a reader; return what it did wrong, empty if nothing."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is that of the reader
    before = _memory("VmRSS")
    signal.alarm(_MOST_S)
    said = ""
    try:
        read()
    except (OSError, ValueError, StartError, duckdb.Error) as error:
        said = f"slow: {error}" if isinstance(error, _SlowError) else ""
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    used = _memory("VmHWM") - before
    return said or (f"{used} MiB" if used > _MOST_MIB else "")


class _SlowError(OSError):
    pass


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def _stop(*_: object) -> None:
    raise _SlowError(f"{_MOST_S} s")


def names_in(run: Path) -> list[Path]:
    """Return everything in a run; of the files of a table, the first."""
    every = sorted(path for path in run.rglob("*") if not path.name.startswith("."))
    return [path for path in every if path.suffix != ".parquet" or path == sorted(path.parent.glob("*.parquet"))[0]]


def main(run: Path, kind: str, names: list[str]) -> None:
    """Replace each file of a run, read the run, and restore the file."""
    os.environ["OTEL_RL_DIR"] = str(run.parents[1])
    signal.signal(signal.SIGALRM, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    for read in readers(run).values():
        _limited(read)  # what it imports would count as its memory
    kinds = [*KINDS][int(kind) :] + [*KINDS][: int(kind)] if kind.isdigit() else [kind]
    for place, of_place in zip([run / name for name in names] or names_in(run), cycle(kinds), strict=False):
        aside = run.parents[2] / "aside"
        place.rename(aside)
        KINDS[of_place](place)
        for name, read in readers(run).items():
            began = time.monotonic()
            if wrong := _limited(read):
                seconds = f"{time.monotonic() - began:.0f} s"
                print(of_place, place.relative_to(run), name, wrong, seconds, flush=True)  # noqa: T201
        if place.is_dir() and not place.is_symlink():
            (place / "inside").rmdir()
            place.rmdir()
        else:
            place.unlink()
        aside.rename(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
