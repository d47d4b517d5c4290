"""The waits of a run, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, line, safe
from otel_rl.recorder.convert.cells import fit
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.cli.lines import Line
    from otel_rl.look.insight.owed import Owed
    from otel_rl.recorder.archive.now import Wait

_COLUMNS = (("WAITER", 15), ("KIND", 11), ("WAITS FOR", 0), ("OWED BY", 24), ("AGE", 9))
_LEAST = 12
_MOST_ROWS = 20


def lines(owed: Owed, width: int) -> list[Line]:
    """Return the answer as lines of a terminal: sentences, then the waits."""
    rows = [line(("✗ ", "bad"), safe(verdict)) for verdict in owed.verdicts]
    rows += [line("● ", safe(sentence)) for sentence in owed.sentences]
    if not owed.waits:
        return rows
    room = max(_LEAST, width - sum(cells for _, cells in _COLUMNS))
    rows += [line(), line(("".join(fit(name, cells or room) for name, cells in _COLUMNS), "dim"))]
    rows += [_row(wait, owed.at_unix_nano, room) for wait in owed.waits[:_MOST_ROWS]]
    if len(owed.waits) > _MOST_ROWS:
        rows.append(line((f"… {wording.count(len(owed.waits) - _MOST_ROWS, 'more wait')}", "dim")))
    return rows


def _row(wait: Wait, at: int, room: int) -> Line:
    waiter = wait.waiter if wait.waiters == 1 else f"{wait.waiter} +{wait.waiters - 1:,}"
    what = " ".join(word for word in (wait.subject, wait.group, wait.doing) if word)
    texts = (
        waiter,
        wait.kind,
        what,
        wording.names(wait.debtors, 2) or "unknown",
        wording.age(wait.since_unix_nano, at),
    )
    cells = [f"{fit(safe(text), (size or room) - 1)} " for text, (_, size) in zip(texts, _COLUMNS, strict=True)]
    return (StyledText("".join(cells), "bad" if wait.cause else ""),)
