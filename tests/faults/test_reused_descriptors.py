"""A trainer that closes and reuses 256 descriptors keeps them, whatever it does at that moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector import wait_for
from tests.processes import rows_of, start

TRAINER = Path(__file__).with_name("reusing_trainer.py")
MOMENTS = (
    *(
        "before the import",
        "before init",
        "in init",
        "after init",
        "between steps",
        "in a step",
        "in a phase",
        "in log",
    ),
    *("in a conversion", "in params", "with full journals", "with a locked run", "in a thread", "in a reaction"),
    *("in a forked child", "without an agent", "in an autopsy", "in finish", "after finish", "at SIGTERM"),
    "at SIGTERM at once",
    *("in a handler of SIGTERM", "at exit", "in the next run"),
)
CODES = {"at SIGTERM": -signal.SIGTERM, "at SIGTERM at once": -signal.SIGTERM}
ASKED = ("in an autopsy", "in a handler of SIGTERM")


def facts(place: Path) -> dict[str, object]:
    """Return what the trainer has written about itself."""
    path = place / "facts.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: value for line in lines for name, value in json.loads(line).items()}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_trainer_that_reuses_descriptors(tmp_path: Path, moment: str) -> None:
    """Its files, descriptors and exit code are its own, and its rows are there."""
    trainer = start([sys.executable, str(TRAINER), str(tmp_path), moment], tmp_path, stdin=subprocess.PIPE)
    if moment in ASKED:
        wait_for(lambda: "ready" in facts(tmp_path), "the trainer does not come there", timeout=60)
        if moment == "in an autopsy":
            command = [sys.executable, "-m", "otel_rl.cli", "autopsy", str(facts(tmp_path)["run"])]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        else:
            trainer.send_signal(signal.SIGTERM)
    output, errors = trainer.communicate("\n", timeout=100)

    known = facts(tmp_path)
    assert (trainer.returncode, output) == (CODES.get(moment, 7), ""), errors
    assert "Traceback" not in errors
    assert known["broken"] == []
    own = {path.name: path.read_bytes() for path in tmp_path.glob("own*")}
    assert own == {f"own{number}": b"checkpoint %d\n" % number for number in range(256)}
    if "delivered" in known:
        rows = {row["step"] for row in rows_of(Path(str(known["run"])))}
        assert rows == set(range(12))
        assert known["delivered"] or known["missing"]
