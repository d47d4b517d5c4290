"""Hostile names through every entrance, read back from every place where they arrive."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.recorder.directory import parts
from otel_rl.recorder.errors import SettingsError
from otel_rl.serve.bridge.step_events import run_of
from tests.collector import wait_for
from tests.exporters.every import EVERY_EXPORTER, OFFLINE, needs_every_package
from tests.processes import rows_of
from tests.real_parts import needs_program
from tests.security.hostile import CONTROLS, NAMES
from tests.serve.bridge.bridges import Bridge, step_metrics

_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: |  ")
_OF_TRACKERS = re.compile(r"(\x1b\[[\d;]*m)*(wandb|swanlab|\* )")
"""How lines begin that trackers print by themselves; some have colors."""
_STEP = 3
_RECORD = f"""
import otel_rl
from tests.security.hostile import NAMES
run = otel_rl.init(
    dir="runs", project="p", id="run-7", content=True, hardware=False,
    exporters={EVERY_EXPORTER},
    config={{name: name for name in NAMES}},
)
print(run.prometheus, flush=True)
with run.step({_STEP}):
    for name in NAMES:
        with run.phase(name):
            run.event(name, **{{name: name}})
    run.log({{name: number for number, name in enumerate(NAMES)}})
for number, name in enumerate(NAMES):
    run.table(name, {{name: [name], "number": [number]}}, step={_STEP})
    run.log({{name: "not a number"}})
input()
run.finish(300)
"""


class Recorded:
    """A run with every hostile name as metric, parameter, phase, event, attribute, table, column and cell."""

    def __init__(self, place: Path) -> None:
        self.place = place
        environment = OFFLINE | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RECORD],
            cwd=place,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=(place / "output").open("wb"),  # in a pipe, long lines of several threads would be mixed
            stderr=(place / "errors").open("wb"),
            text=True,
        )
        wait_for(lambda: "\n" in self.output or self._process.poll() is not None, "no address of the metrics", 120)
        url = self.output.partition("\n")[0]
        assert url, self.errors
        self.run_dir = place / "runs" / "p" / "run-7"
        wait_for(lambda: bool(rows_of(self.run_dir)), "there is no row", 120)
        self.scraped = urllib.request.urlopen(url, timeout=30).read().decode()
        self._process.communicate("\n", timeout=400)
        assert self._process.returncode == 0, self.errors

    @property
    def output(self) -> str:
        """Standard output of the trainer and of its agent."""
        return (self.place / "output").read_text()

    @property
    def errors(self) -> str:
        """Standard error of the trainer."""
        return (self.place / "errors").read_text()

    @property
    def log(self) -> str:
        """Log of the agent."""
        return (self.run_dir / "agent.log").read_text()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


pytestmark = pytest.mark.timeout(900)
EXPECTED = {name: float(number) for number, name in enumerate(NAMES)}


@needs_every_package
@pytest.mark.slow
def test_nothing_is_outside_of_the_run_directory(recorded: Recorded) -> None:
    """Every file is in `runs/p/run-7`, and the names of all files are printable and at most 255 bytes long."""
    paths = [
        path.relative_to(recorded.place) for path in recorded.place.rglob("*") if path.name not in ("errors", "output")
    ]

    assert {path.parts[:3] for path in paths if len(path.parts) > 2} == {("runs", "p", "run-7")}
    assert {path.name for path in recorded.place.iterdir()} == {"errors", "output", "runs"}
    assert [path for path in paths if CONTROLS & set(str(path))] == []


@needs_every_package
@pytest.mark.slow
def test_the_logs_have_no_forged_line(recorded: Recorded) -> None:
    """Each line of the agent's log begins with a time, and no line of the trainer has a control character."""
    own = [line for line in recorded.log.split("\n") if line and "otel_rl" in line]

    assert [line for line in own if not _LINE.match(line)] == []
    assert not CONTROLS & set("".join(own))
    assert not [line for line in recorded.errors.split("\n") if CONTROLS & set(line)]


@needs_every_package
@pytest.mark.slow
def test_rows_have_the_names_unchanged(recorded: Recorded) -> None:
    """`rows.jsonl` is a line of JSON per row, with every name as the framework gave it."""
    (row,) = [row for row in rows_of(recorded.run_dir) if row["step"] == _STEP]

    assert {name: row["values"][name] for name in NAMES} == EXPECTED  # type: ignore[index]


@needs_every_package
@pytest.mark.slow
def test_tensorboard_has_the_names_unchanged(recorded: Recorded) -> None:
    """TensorBoard's own reader finds each metric under its own tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(recorded.run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = set(events.Tags()["scalars"])

    assert [name for name in NAMES if name not in tags] == []


@needs_every_package
@pytest.mark.slow
def test_trackio_has_every_name(recorded: Recorded) -> None:
    """Its database has one project and the values of all names."""
    (path,) = (recorded.run_dir / "trackio").glob("*.db")
    values: dict[str, Any] = {}
    with sqlite3.connect(path) as database:
        for (text,) in database.execute("SELECT metrics FROM metrics"):
            values |= {name: value for name, value in json.loads(text).items() if isinstance(value, int | float)}

    assert {name: values.get(name) for name in NAMES} == EXPECTED


@needs_every_package
@pytest.mark.slow
def test_prometheus_reads_the_labels(recorded: Recorded) -> None:
    """The text format parses; no name became another series, and a label has the name as it was."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [sample for family in text_string_to_metric_families(recorded.scraped) for sample in family.samples]
    told = {value for sample in samples for value in sample.labels.values()}

    assert not [sample.name for sample in samples if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", sample.name)]
    assert {"<script>alert(1)</script>", 'le="1",x="2"} 1\nforged 2', "\x1b[31mred\x1b[0m"} & told


@needs_every_package
@pytest.mark.slow
def test_standard_output_cannot_be_steered(recorded: Recorded) -> None:
    """The exporters for a terminal print lines without control characters."""
    harmful = [name for name in NAMES if CONTROLS & set(name)]
    assert len(harmful) > 20
    own = "\n".join(line for line in recorded.output.split("\n") if not _OF_TRACKERS.match(line))
    assert [name for name in harmful if name in own] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_run_directory_stays_in_its_place(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever project and name are, the run is two directories below `dir`, and what `init` prints is one line."""
    run = otel_rl.init(agent="off", exporters=[], dir=tmp_path / "runs", project=name, name=name, id="run-7")
    run.finish(0)

    assert [path for path in tmp_path.iterdir() if path.name != "runs"] == []
    assert run.dir.parents[1] == tmp_path / "runs"
    assert {path.name for path in (tmp_path / "runs").iterdir()} - {run.dir.parent.name} <= {".targets"}
    assert not CONTROLS - {"\n"} & set(capfd.readouterr().err)


@pytest.mark.parametrize("setting", ["id", "role"])
@pytest.mark.parametrize("name", NAMES)
def test_an_id_and_a_role_are_plain_or_refused(
    name: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the setting in one line, from a keyword and from the environment."""

    def begin(**given: Any) -> None:
        otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True, project="p", **given).finish(0)

    plain = re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) and name.strip("-.")
    variable = "OTEL_RL_RUN_ID" if setting == "id" else "OTEL_RL_ROLE"
    for begin_with in ("keyword", "environment"):
        if begin_with == "environment" and ("\0" in name or not name.strip()):
            continue
        given = {setting: name} if begin_with == "keyword" else {}
        if not given:
            monkeypatch.setenv(variable, name)
        if plain:
            begin(**given)
            continue
        with pytest.raises(SettingsError) as caught:
            begin(**given)
        assert not CONTROLS & set(str(caught.value))
        assert len(str(caught.value)) < 400


def test_the_part_of_a_host_stays_in_its_place(tmp_path: Path) -> None:
    """A host of any name has a directory in `local`."""
    for name in NAMES:
        found = parts.make(tmp_path / "run", parts.MachineId(host=name, boot=name)).place
        assert found.parent == tmp_path / "run" / "local"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_bridged_run_stays_in_its_place(tmp_path: Path) -> None:
    """Each pair of project and run id has a directory of its own, two below that of the bridge."""
    found = {
        run_of({"service.name": "s", "rl.run.id": one, "rl.run.project": other}, tmp_path).directory
        for one in NAMES
        for other in NAMES
    }

    assert len(found) == len(NAMES) ** 2
    assert {Path(path).parents[1] for path in found} == {tmp_path}
    assert not any(os.path.lexists(path) for path in found)


def test_hostile_runs_at_a_bridge(tmp_path: Path) -> None:
    """A real bridge records them side by side; its log has no forged line, and nothing is outside of its directory."""
    some = [name for name in NAMES if name.strip()][::4]  # a bridge has 32 runs of one client
    bridge = Bridge(tmp_path / "bridged")
    try:
        for name in some:
            request = step_metrics(name, {step: {name: 1.0} for step in range(3)})
            request.resource_logs[0].scope_logs[0].log_records[2].attributes[0].value.string_value = name
            assert bridge.send(request).partial_success.rejected_log_records == 1  # its step is not a number
        wait_for(lambda: len([*bridge.directory.glob("*/*/rows.jsonl")]) == len(some), "some runs are missing", 120)
    finally:
        bridge.stop()

    assert {path.name for path in tmp_path.iterdir()} == {"bridged", "bridged.log"}
    assert {len(rows_of(path.parent)) for path in bridge.directory.glob("*/*/rows.jsonl")} == {2}
    assert not CONTROLS - {"\n"} & set(bridge.log)
    assert [line for line in bridge.log.split("\n") if "forged" in line and not _LINE.match(line)] == []


@needs_program("promtool")
@needs_every_package
@pytest.mark.slow
def test_a_real_prometheus_reads_the_page(recorded: Recorded) -> None:
    """`promtool` finds no error in the page."""
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=recorded.scraped, capture_output=True, text=True, check=False
    )

    assert "error" not in checked.stderr.lower()
