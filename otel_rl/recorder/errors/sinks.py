"""Texts from outside, made harmless for the place where they go: one function for each kind of place.

Names of metrics, runs, tables, hosts and roles come from frameworks, other machines and OTLP clients. They can hold
anything: escape sequences of a terminal, forged lines of a log, `../`, or a page of text.

A place may be broken: a message that cannot be written to standard error or to a handler of `logging` raises nowhere.
"""

from __future__ import annotations

import logging
import os
import re
import select
import sys
import unicodedata
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from pathlib import Path

    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

LONGEST_FILE_NAME = 100
"""The largest part of a file name that comes from outside, in bytes: file systems allow 255 for the whole name."""

_HASH_DIGITS = 16
_HASHED = re.compile(rf"-[0-9a-f]{{{_HASH_DIGITS}}}\Z")
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9¹²³])(\.|\Z)", re.IGNORECASE)
"""Names of devices on Windows, from where a shared directory can be mounted."""
ACTIVE = (
    r"\x00-\x1f\x7f-\x9f"  # they move the cursor, ring the bell, begin an escape sequence
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"  # they end a line, or change the direction of the text
    r"\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e01ef"  # they are invisible
    r"\ud800-\udfff"  # they cannot be encoded
)
"""Characters that no line of a terminal or of a log may have, as a set of a regular expression."""
_PATIENCE_MS = 100
"""Milliseconds that a message waits for a slow reader, such as a pager or a terminal after Ctrl-S."""
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL
_IN_A_LINE = re.compile(f"[{ACTIVE}]")
_IN_LINES = re.compile(rf"(?![\n\t])[{ACTIVE}]")
_LITERAL = str.maketrans(
    {character: f"&#{ord(character)};" for character in "\\`*_[]<>&|!~#\t"}
    | {chr(code): chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}  # HTML does not have these
    | {"\n": "<br>"}
)


def one_line(text: str) -> str:
    """Return a text for a line of a terminal or of a log.

    Line ends, escape sequences, characters that change the direction of the text, and invisible ones are escaped as in
    Python's literals.
    """
    return _IN_A_LINE.sub(_escaped, text)


def lines(text: str) -> str:
    """Return a text of several lines for a terminal, escaped as by `one_line` but for line ends and tabs."""
    return _IN_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def markdown_cell(text: str) -> str:
    """Return a text for a cell of a Markdown table, which shows it literally in HTML too."""
    return text.replace("\r\n", "\n").translate(_LITERAL)


def shortened(text: str, longest: int, of: str | None = None, *, in_bytes: bool = False) -> str:
    """Return a text if it is not longer than `longest` characters, otherwise its beginning and a hash.

    Args:
        text: The text.
        longest: The largest number of characters.
        of: The name that `text` was made from. If it differs from `text`, the result always has a hash of it, so that
            two names never become one.
        in_bytes: If true, `longest` counts bytes of UTF-8, as file systems do.
    """
    if (len(text.encode("utf-8", "surrogatepass")) if in_bytes else len(text)) <= longest and (
        of is None or of == text
    ):
        return text
    room = longest - _HASH_DIGITS - 1
    kept = _first_bytes(text, room) if in_bytes else text[:room]
    return f"{kept.rstrip('/. ')}-{_digest(text if of is None else of)}"


def readable(text: str, longest: int = LONGEST_FILE_NAME) -> str:
    """Return a text as a part of a file name of at most `longest` bytes, not unique; maybe empty."""
    allowed = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")
    return _first_bytes(allowed, longest).rstrip(".-")


def file_name(text: str, longest: int = LONGEST_FILE_NAME) -> str:
    """Return the name of a file or directory for a text: the text itself if it is a valid name.

    Otherwise it is a readable part with a hash. A text that already ends like a hash gets another one, so that two
    texts never have the same name.
    """
    kept = readable(text, longest)
    is_device = _DEVICES.match(kept) is not None
    if kept and kept == text and unicodedata.is_normalized("NFC", text) and not (is_device or _HASHED.search(text)):
        return text
    if is_device:
        kept = kept.replace(".", "-")  # Windows ignores what follows the first dot
    return f"{kept or 'unnamed'}-{_digest(text)}"


def at(directory: Path, name: str) -> Path:
    """Return the path of `name` in a directory, with a hash if another spelling of the name is there already.

    On a file system that ignores case or normalizes Unicode, two names can be one file.
    """
    hashed = directory / f"{name}-{_digest(name)}"
    return hashed if os.path.lexists(hashed) or _is_spelled_otherwise(directory, name) else directory / name


class Stream(Protocol):
    """A stream of texts; programs replace the standard ones with objects that have `write` alone."""

    def write(self, text: str, /) -> object:
        """Write a text."""


def print_line(text: str, stream: Stream | None = None) -> None:
    """Write a line to standard error, or to another stream, if that works and its reader is not slow."""
    try:
        stream = sys.stderr if stream is None else stream
        if stream is None or not _takes_a_line(stream):
            return
        try:
            stream.write(f"{text}\n")  # in one call: another thread may write too
        except UnicodeEncodeError:
            stream.write(f"{text.encode('ascii', 'backslashreplace').decode()}\n")
        if hasattr(stream, "flush"):
            stream.flush()
    except Exception as error:  # a stream is any object
        let_pass(error)


def _takes_a_line(stream: Stream) -> bool:
    """Return whether a write neither waits for a reader longer than 0.1 s, nor meets one that is gone, with SIGPIPE."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)  # type: ignore[attr-defined] # not all have it
        ((_, events),) = poll.poll(_PATIENCE_MS) or [(0, 0)]
    except Exception as error:  # it has no descriptor
        let_pass(error)
        return True
    return bool(events & select.POLLOUT) and not events & _BROKEN


class Log(_Adapter):
    """A logger whose messages are each one line without control characters and secrets, and which never raises.

    `logging.config.dictConfig` disables all loggers that it does not name. It does not disable this one: a level does.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, unless a stream, a handler or a filter fails."""
        try:
            self.logger.disabled = False
            self.logger.log(level, msg, *args, **{"stacklevel": 2} | kwargs)
        except Exception as error:  # handlers are those of the trainer
            let_pass(error)


def log_of(name: str) -> Log:
    """Return the logger of a module."""
    logger = logging.getLogger(name)
    logger.addFilter(_on_one_line)
    return Log(logger)


class OneLine(logging.Formatter):
    """A format of log lines without secrets, in which no message begins a line; a traceback is indented."""

    def formatException(self, ei: object) -> str:  # noqa: N802 - the name is logging's
        """Return the traceback, each line of which is indented."""
        return _indented(redacted(super().formatException(ei)))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the name is logging's
        """Return the stack, each line of which is indented."""
        return _indented(super().formatStack(stack_info))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return the message of any logger, also a foreign one, as one line."""
        return one_line(redacted(super().formatMessage(record)))


def _on_one_line(record: logging.LogRecord) -> bool:
    try:
        record.msg, record.args = one_line(redacted(record.getMessage())), None
        if record.exc_info and record.exc_info[0] and not record.exc_text:  # a handler does not format it again
            record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not logging.getLogger(record.name).hasHandlers():
            # Its own `emit` waits for a slow reader, and raises if the stream is closed.
            print_line(last.format(record))
            return False
    except Exception as error:  # logging itself reports a message that cannot be formatted
        let_pass(error)
    return True


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in lines(text).split("\n"))


def _is_spelled_otherwise(directory: Path, name: str) -> bool:
    others = {name.swapcase(), unicodedata.normalize("NFD", name)} - {name}
    if not os.path.lexists(directory / name) or not any(os.path.lexists(directory / other) for other in others):
        return False  # as on most file systems; a list of a large directory would be expensive
    return name not in {unicodedata.normalize("NFC", found.name) for found in directory.iterdir()}


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _first_bytes(text: str, number: int) -> str:
    return text.encode("utf-8", "surrogatepass")[:number].decode(errors="ignore")


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
