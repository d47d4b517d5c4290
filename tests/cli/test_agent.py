"""The verb that delivers what nobody has delivered yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import rows_of, run, run_python


@pytest.mark.slow
def test_a_run_that_only_recorded_is_delivered_later(tmp_path: Path) -> None:
    """`agent="off"` writes journals alone; `otel-rl agent RUN_DIR --once` delivers them and says so."""
    run_python(
        "import otel_rl; run = otel_rl.init(dir='runs', project='p', id='i', agent='off', quiet=True)\n"
        "for n in range(5): run.log({'loss': float(n)}, step=n)\n"
        "assert run.prometheus is None and not run.finish()",
        tmp_path,
    )
    run_dir = tmp_path / "runs" / "p" / "i"
    assert rows_of(run_dir) == []
    run([sys.executable, "-m", "otel_rl.cli", "agent", str(run_dir), "--once"], tmp_path)

    assert [row["step"] for row in rows_of(run_dir)] == list(range(5))
