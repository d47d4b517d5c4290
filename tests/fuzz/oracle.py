"""The rules for each input of a target: limited time and memory, nothing executed, no file changed elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.targets import Target

MOST_CPU_S = 5.0
"""CPU seconds of one input, in all threads; the wall clock of a busy machine says nothing."""
MOST_MEMORY = 64 << 20
"""Bytes of resident memory that one input may take at its peak, unless the target has another limit."""
_EXECUTED = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "ctypes.dlopen")
_CHANGED = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate")
_HARMLESS = "encodings."
"""Codecs, such as that of JSON in UTF-16, are loaded when they are needed."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PEAK = re.compile(rb"VmHWM:\s*([0-9]+) kB")
_watched: list[str] | None = None
_folder = ""
_is_hooked = False


class Broken(Exception):
    """An input broke a rule."""


def check(target: Target, data: bytes) -> None:
    """Feed one input to a target, within the limits.

    Raises:
        Broken: It took too long or too much memory, or something was imported or executed.
        Exception: The reader raised something that it does not document.
    """
    before, began = _resident(), time.process_time()
    _forget_peak()
    with contained(target.folder) if target.is_contained else contextlib.nullcontext():
        target.check(data)
    spent, grown = time.process_time() - began, _peak() - before
    if spent > MOST_CPU_S:
        raise Broken(f"took {spent:.1f} s of CPU")
    if grown > target.most_memory:
        raise Broken(f"took {grown >> 20} MiB of memory")


@contextlib.contextmanager
def contained(folder: Path) -> Iterator[None]:
    """Watch for modules that were not imported before, for processes, and for files outside of a folder that change.

    Raises:
        Broken: There was one.
    """
    global _watched, _folder, _is_hooked  # audit hooks cannot be removed
    if not _is_hooked:
        sys.addaudithook(_hook)
        _is_hooked = True
    _watched, _folder = [], f"{folder}/"
    try:
        yield
    finally:
        seen, _watched = _watched, None
    if seen:
        raise Broken(f"not contained: {', '.join(seen)}")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    is_import = event == "import" and arguments[0] not in sys.modules and not arguments[0].startswith(_HARMLESS)
    if event in _EXECUTED or is_import or (_changes(event, arguments) and not _is_inside(event, arguments)):
        _watched.append(f"{event} {arguments[0]!r}")


def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool(arguments[2] & _WRITES)
    return event in _CHANGED


def _is_inside(event: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether a path is below the folder of the target, or relative to a directory that was opened before."""
    path = arguments[0]
    is_relative = isinstance(path, int) or (event != "open" and isinstance(arguments[-1], int) and arguments[-1] >= 0)
    return is_relative or os.path.abspath(os.fsdecode(path)).startswith(_folder)  # noqa: PTH100


class Formatting(logging.Handler):
    """A handler that formats each record and drops it; a record that cannot be formatted raises."""

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record.

        Raises:
            Broken: Code of otel-rl logged an exception: it did not expect it.
        """
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None and record.name.startswith("otel_rl"):
            raise Broken(text) from record.exc_info[1]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # then the peak is that of the process
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Return the peak of resident memory; `getrusage` would include that of the parent before `exec`."""
    found = _PEAK.search(Path("/proc/self/status").read_bytes())
    return int(found[1]) << 10 if found else 0
