"""A trainer that becomes another user after `init`, as servers do that begin as root."""

from __future__ import annotations

from pathlib import Path

from tests.processes import rows_of, run_python
from tests.security.other_users import needs_root

_TRAINER = """
import os, time, otel_rl
run = otel_rl.init(project="p", id="r", exporters=["jsonl"], hardware=False, quiet=True)
os.setgroups([]); os.setgid(12345); os.setuid(12345)
began, step = time.monotonic(), 0
while time.monotonic() - began < 1.5:  # longer than until the next check of its files
    with run.step(step), run.phase("generate"):
        run.log({"loss": 1.0})
    step += 1
    time.sleep(0.1)
result = run.finish(30)
print(step, bool(result or result.missing), run.refused)
"""


@needs_root
def test_a_trainer_that_becomes_another_user(tmp_path: Path) -> None:
    """Nothing raises, the rows are there, and `finish` says what it could not find out."""
    steps, is_said, refused = run_python(_TRAINER, tmp_path).split(maxsplit=2)

    assert (is_said, refused) == ("True", "{}\n")
    assert len(rows_of(tmp_path / "runs" / "p" / "r")) == int(steps)
