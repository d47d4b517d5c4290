"""The archive of an earlier version, as a reader sees it."""

from __future__ import annotations

import otel_rl
from otel_rl.recorder.archive.tables import TABLES
from tests.recorder.archive.test_checked_in import RUN


def test_an_archive_of_an_earlier_version() -> None:
    """All tables, by each verb and in SQL."""
    run = otel_rl.open_run(RUN)

    rows = run.rows()
    assert [*zip(rows["step"], rows["name"], rows["value"], strict=True)] == [
        (1, "loss", 0.5),
        (1, "tokens", float(2**60)),
        (2, "loss", 0.25),
    ]
    assert (run.damaged, run.holes, run.parameters) == ([], [], {"lr": 0.1})
    later = ("hangs", "messages", "logs")
    lines = {table.name: len(run.sql(f"FROM {table.name}")) for table in TABLES}
    assert lines == {name: int(name not in later) for name in lines} | {"rows": 3, "steps": 2}
    assert len(otel_rl.open_run(RUN, attempts="all").rows()) == 4
