"""The waits of a run, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.view.terminal.lines import Span, fit, line, safe
from otel_rl.view.terminal.words import age

if TYPE_CHECKING:
    from otel_rl.archive.now import Wait
    from otel_rl.insight.owed import Owed
    from otel_rl.view.terminal.lines import Line

_COLUMNS = (("WAITER", 15), ("KIND", 11), ("WAITS FOR", 0), ("OWED BY", 24), ("AGE", 9))
_LEAST = 12
_MOST_ROWS = 20


def lines(owed: Owed, width: int) -> list[Line]:
    """Return the answer as lines of a terminal: sentences, then the waits."""
    found = [line(("✗ ", "bad"), safe(one)) for one in owed.verdicts]
    found += [line("● ", safe(one)) for one in owed.sentences]
    if not owed.waits:
        return found
    room = max(_LEAST, width - sum(cells for _, cells in _COLUMNS))
    found += [line(), line(("".join(fit(name, cells or room) for name, cells in _COLUMNS), "dim"))]
    found += [_row(one, owed.at_unix_nano, room) for one in owed.waits[:_MOST_ROWS]]
    if len(owed.waits) > _MOST_ROWS:
        found.append(line((f"… {wording.count(len(owed.waits) - _MOST_ROWS, 'more wait')}", "dim")))
    return found


def _row(wait: Wait, at: int, room: int) -> Line:
    waiter = wait.waiter if wait.waiters == 1 else f"{wait.waiter} +{wait.waiters - 1:,}"
    what = " ".join(one for one in (wait.subject, wait.group, wait.doing) if one)
    texts = (waiter, wait.kind, what, wording.names(wait.debtors, 2) or "unknown", age(wait.since_unix_nano, at))
    cells = [f"{fit(safe(text), (size or room) - 1)} " for text, (_, size) in zip(texts, _COLUMNS, strict=True)]
    return (Span("".join(cells), "bad" if wait.cause else ""),)
