"""Exporters that only the trainer's own process can build."""

from __future__ import annotations

from pathlib import Path

import otel_rl
from tests.processes import run_python


class Backend:
    """A backend in the sense of metrax."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []
        self.closed = 0

    def log_scalar(self, event: str, value: float, **kwargs: int) -> None:
        """Remember the value."""
        self.seen.append((event, value, kwargs["step"]))

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


def record(run: otel_rl.Run) -> None:
    for n in range(3):
        run.log({"loss": n / 2}, step=n)


def test_a_lambda_gets_every_value_at_its_step(tmp_path: Path) -> None:
    """It is called once, each value is logged with its step, and the backend is closed once."""
    made: list[Backend] = []
    run = otel_rl.init(exporters=[lambda: made.append(Backend()) or made[-1]], dir=tmp_path, quiet=True)
    record(run)

    assert run.finish()
    assert [backend.seen for backend in made] == [[("loss", 0.0, 0), ("loss", 0.5, 1), ("loss", 1.0, 2)]]
    assert made[0].closed == 1


def test_an_object_is_taken_as_it_is(tmp_path: Path) -> None:
    """A backend that exists already is used."""
    backend = Backend()
    run = otel_rl.init(exporters=[backend], dir=tmp_path, quiet=True)
    record(run)

    assert run.finish()
    assert len(backend.seen) == 3


def test_other_ranks_have_none(tmp_path: Path) -> None:
    """Only the first rank delivers; the others record."""
    backend = Backend()
    run = otel_rl.init(
        exporters=[backend], dir=tmp_path, quiet=True, id="r", rank=1, world_size=2, rows={"deadline": 0.1}
    )
    record(run)

    assert run.finish()
    assert backend.seen == []


def test_the_next_attempt_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    """A restarted run delivers only what is new."""
    for _ in range(2):
        backend = Backend()
        run = otel_rl.init(exporters=[backend], dir=tmp_path, quiet=True, id="r", project="p")
        record(run)
        assert run.finish()

    assert len(backend.seen) == 3


def test_a_backend_that_fails_disturbs_nobody(tmp_path: Path) -> None:
    """`finish` says that not everything was delivered; the other exporters have it all."""

    class Broken(Backend):
        def log_scalar(self, event: str, value: float, **kwargs: int) -> None:
            raise OSError("disk full")

    run = otel_rl.init(exporters=["jsonl", Broken()], dir=tmp_path, quiet=True)
    record(run)

    assert not run.finish(2)
    assert len((run.dir / "rows.jsonl").read_text().splitlines()) == 3


def test_a_backend_in_a_module_runs_in_the_agent(tmp_path: Path) -> None:
    """A class that can be imported by name needs no thread of the trainer."""
    (tmp_path / "mine.py").write_text("""
class Csv:
    def __init__(self, path="out.csv"): self.file = open(path, "w")
    def log_scalar(self, event, value, **kwargs): print(event, value, kwargs["step"], sep=",", file=self.file)
    def close(self): self.file.close()
""")
    script = """
import sys; sys.path.insert(0, ".")
import threading, otel_rl
from mine import Csv
run = otel_rl.init(exporters=[Csv], quiet=True)
run.log({"loss": 0.5}, step=3)
print(bool(run.finish()), [t.name for t in threading.enumerate() if t.name.startswith("otel-rl")])
"""

    assert run_python(script, tmp_path) == "True []\n"
    assert (tmp_path / "out.csv").read_text() == "loss,0.5,3\n"


def test_what_is_no_backend_is_refused_at_the_start(tmp_path: Path) -> None:
    """The message names what is missing."""
    script = """
import otel_rl
class NoClose:
    def log_scalar(self, event, value, **kwargs): pass
for wrong in (NoClose, NoClose()):
    try:
        otel_rl.init(exporters=[wrong], quiet=True)
    except otel_rl.SettingsError as error:
        print(error)
"""
    first, second = run_python(script, tmp_path).splitlines()

    assert "has no method close()" in first
    assert "neither export() and shutdown(), nor log_scalar() and close()" in second
