"""The verb that delivers what nobody has delivered yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_rl.cli import main
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


@pytest.mark.parametrize("name", ["local", "archive", "attempts"])
def test_a_link_in_the_run(tmp_path: Path, name: str) -> None:
    """It can lead into another run, whose records would be taken: nothing is delivered, and the link is named."""
    (tmp_path / "other").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / name).symlink_to(tmp_path / "other")
    result = CliRunner().invoke(main, ["agent", str(tmp_path / "run"), "--once"])

    assert result.exit_code
    assert f"{name} is a link" in result.output
    assert [*(tmp_path / "other").iterdir()] == []
