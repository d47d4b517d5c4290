"""The quarantine: a file of the records and items that could not be processed, and their number.

One invalid record or item must not end the recording of all others. It is put here with the reason, and the caller
continues with the next one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.recorder.errors.occasional import is_power_of_ten
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import encodable_text
from otel_rl.recorder.files.modes import open_file
from otel_rl.recorder.secrets import redacted_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

logger = log_of(__name__)
LIMIT_BYTES = 16 << 20
"""Maximum size of the file in bytes: 16 MiB hold some thousand records."""
_LONGEST_ENTRY = 64 << 10
_LONGEST_REASON = 500
_MOST_KINDS = 1000  # kinds of failures that are logged separately


class Quarantine:
    """A bounded file of JSON lines, safe to use from several threads; putting something there never raises.

    Args:
        path: The file, created at the first failure and readable by its owner only. Without one, failures are only
            counted.
        limit_bytes: Maximum size of the file; beyond it, failures are only counted.
    """

    def __init__(self, path: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._kinds: Counter[tuple[str, ...]] = Counter()
        self._lock = threading.RLock()
        self.count = 0  # number of failures

    def put(self, stage: str, source: str, thing: object, error: BaseException) -> None:
        """Write `thing` to the file, and count it.

        Args:
            stage: The operation that failed, such as "intake".
            source: The journal or the exporter.
            thing: The record or item.
            error: The reason.
        """
        kind, reason = type(thing).__name__, f"{type(error).__name__}: {_text(error, str)}"[:_LONGEST_REASON]
        with self._lock:
            self.count += 1
            alike = (stage, kind, type(error).__name__)
            if alike not in self._kinds and len(self._kinds) >= _MOST_KINDS:
                alike = ("…", "…", "…")
            self._kinds[alike] += 1
            count = self._kinds[alike]
            kept = self._write({"stage": stage, "source": source, "kind": kind, "reason": reason, **_shown(thing)})
        if is_power_of_ten(count):
            where = f"see {self._path}" if kept else "not kept"
            what = stage if thing is None else f"{stage} of {kind}"
            logger.warning("%s: %s failed: %s (%d alike so far); %s", source, what, reason, count, where)

    @contextlib.contextmanager
    def guard(self, stage: str, source: str, thing: object = None) -> Iterator[None]:
        """Run the block; if it raises, put `thing` here, and continue after the block."""
        try:
            yield
        except Exception as error:
            self.put(stage, source, thing, error)

    def _write(self, entry: dict[str, Any]) -> bool:
        """Append a line; return whether there was room for it."""
        if self._path is None:
            return False
        line = msgspec.json.encode(entry) + b"\n"
        try:
            fd = open_file(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            try:
                if os.fstat(fd).st_size + len(line) > self._limit_bytes:
                    return False
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError:
            return False
        return True


def _shown(thing: object) -> dict[str, Any]:
    """Return the thing as JSON, or as text or hex if it cannot be encoded; at most 64 KiB."""
    try:
        raw = thing if isinstance(thing, bytes) else msgspec.json.encode(thing)
    except Exception:  # integers of more than 64 bits, for example
        return {"text": _text(thing)}
    if raw is thing or len(raw) > _LONGEST_ENTRY:
        return {"hex": raw[: _LONGEST_ENTRY // 2].hex()}
    return {"value": msgspec.Raw(raw)}


def _text(thing: object, spell: Callable[[object], str] = repr) -> str:
    try:
        text = spell(thing)
    except Exception as error:
        text = f"no text: {type(error).__name__}"
    return encodable_text(redacted_start(text, _LONGEST_ENTRY))
