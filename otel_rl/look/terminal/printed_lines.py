"""Printed lines as lines of a terminal: when, which process, in which step and phase, and what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import line, safe
from otel_rl.recorder.errors import sinks
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight.printed_lines import LogLine, Logs

_HUES: tuple[Style, ...] = ("rollout", "training", "reward", "sync")
_STYLES: dict[str, Style] = {"warning": "warning", "error": "bad", "fatal": "bad"}
_PROCESS, _PLACE = 10, 16
"""Columns of the process, and of the step with its phase."""


def lines(found: Logs) -> list[Line]:
    """Return the lines that were found, or a sentence if there are none."""
    if not found.recorded:
        return [
            line(("Nothing that was printed is recorded: see output in the settings.", "dim")),
        ]
    if not found.lines:
        return [line((f"None of {wording.count(found.recorded, 'line')} is like that.", "dim"))]
    rows = [*rows_of(found.lines)]
    if found.total > len(found.lines):
        more = f"{wording.integer(len(found.lines))} of {wording.count(found.total, 'line')}; -n shows more"
        rows.insert(0, line((more, "dim")))
    return rows


def rows_of(printed: Iterable[LogLine]) -> Iterator[Line]:
    """Yield each line with its moment; a traceback that was logged follows its message, indented."""
    for one in printed:
        place = "" if one.step is None else f"{wording.integer(one.step)} {safe(one.phase)}"
        head = (
            (f"{wording.clock(one.time_unix_nano)} ", "dim"),
            (f"{safe(one.process or one.host):{_PROCESS}} ", _HUES[sum(map(ord, one.process)) % len(_HUES)]),
            (f"{place:{_PLACE}} ", "dim"),
        )
        style = _STYLES.get(one.severity, "dim" if one.left_out else "")
        of_logger = f"{one.severity.upper()} {safe(one.logger)}: " if one.logger else ""
        text = sinks.lines(one.text).split("\n")
        again = f" × {wording.integer(one.repeated)}" if one.repeated > 1 else ""
        cut = f" … {wording.count(one.cut, 'character')} more" if one.cut else ""
        yield line(*head, (of_logger, style), (text[0].expandtabs(), style), (again + cut, "dim"))
        for more in (*text[1:], *filter(None, sinks.lines(one.stack).split("\n"))):
            yield line(" " * 9, (more.expandtabs(), style or "dim"))
