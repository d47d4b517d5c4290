"""Trinity-RFT's names, and the statistics that its suffixes choose. The rest is in `tests/frameworks`."""

from __future__ import annotations

from pathlib import Path

import otel_rl
from tests.processes import rows_of


def test_suffixes_choose_the_reducer(tmp_path: Path) -> None:
    """`count:sum` is the sum of what ranks and samples hold, without its suffix."""
    run = otel_rl.init(dir=tmp_path, quiet=True, dialect="trinity")
    run.log({"count:sum": [1, 2, 3], "length:max": 7.0}, step=0)
    assert run.finish()

    assert rows_of(run.dir)[0]["values"] == {"length": 7.0, "count": 6.0}
