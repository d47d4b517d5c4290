"""A run whose settings name a head, on a machine without `otel_rl.serve`."""

from __future__ import annotations

from pathlib import Path

import otel_rl
from tests.collector import free_port
from tests.processes import run_python

_TRAIN = """
import logging, os, pathlib, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
import otel_rl
place = {"dir": ".", "project": "p", "id": "r"}
run = otel_rl.init(**place, head=os.environ["HEAD"], hardware=False, exporters=["jsonl"], quiet=True)
with run.step(0):
    run.log({"loss": 1.0})
print(bool(run.finish(60)), pathlib.Path(run.dir, "rows.jsonl").exists())
"""


def test_without_the_wing(tmp_path: Path) -> None:
    """The machine is recorded, and one warning says what is not installed."""
    without = tmp_path / "otel_rl"
    without.mkdir()
    for part in Path(otel_rl.__file__).parent.iterdir():
        if part.name != "serve":
            (without / part.name).symlink_to(part)
    shown = run_python(_TRAIN, tmp_path, PYTHONPATH=str(tmp_path), HEAD=f"127.0.0.1:{free_port()}")

    warning = "records of other machines are not received, because otel_rl.serve is not installed"
    assert shown.splitlines() == [warning, "True True"]
