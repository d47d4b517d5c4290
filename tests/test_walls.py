"""The recorder alone: the wheel without extras, installed apart, with the folders of all wings deleted."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import collector as collectors
from tests.collector import Collector, free_port
from tests.exporters.trackers import TensorBoard
from tests.processes import rows_of, start
from tests.real_parts import needs, needs_program, part
from tests.test_walls_static import WINGS

ROOT = Path(__file__).parents[1]
MOST_MB, MOST_PACKAGES = 75, 33
HEAVY = {"duckdb", "numpy", "textual", "rich", "torch", "pandas", "pyarrow"}
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "numpy", "scipy", "torch", "pandas", "pyarrow")
"""Packages for the tests of the recorder's rooms; tests that need more are skipped."""
STEPS, RANKS = 6, 2

pytestmark = [needs_program("uv"), pytest.mark.slow, pytest.mark.timeout(1200)]


class Installed(NamedTuple):
    """An environment with the recorder alone."""

    python: Path
    packages: Path  # its site-packages
    megabytes: float  # 10^6 bytes, with the wings
    distributions: frozenset[str]  # the names of what is installed


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command without the paths and the settings of this environment; return what it printed. It must succeed."""
    foreign = ("PYTHON", "VIRTUAL_ENV", "REQUIRE_", "OTEL_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    return done.stdout


def installed(wheel: Path, place: Path, *more: str) -> Installed:
    """Return a new environment with requirements that name the wheel, or other packages, and without wings."""
    python = place / "venv" / "bin" / "python"
    run("uv", "venv", "--quiet", "--python", sys.executable, place / "venv")
    install = ("uv", "pip", "install", "--quiet", "--python", python, "--constraints", ROOT / ".ci/constraints.txt")
    run(*install, wheel, *more)
    (packages,) = place.glob("venv/lib/python*/site-packages")
    megabytes = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    distributions = frozenset(path.name.partition("-")[0] for path in packages.glob("*.dist-info"))
    for wing in WINGS:  # delete and never write: uv's files are hard links into its cache, which all environments share
        shutil.rmtree(packages / "otel_rl" / wing)
    return Installed(python, packages, megabytes, distributions)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    run("uv", "build", "--quiet", "--wheel", "--out-dir", directory)
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What `pip install otel-rl` brings, and nothing else."""
    return installed(wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def equipped(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same with TensorBoard, and with what tests need."""
    return installed(wheel, tmp_path_factory.mktemp("equipped"), "tensorboard", *TOOLS)


def test_the_size(bare: Installed) -> None:
    """An installation for a trainer is small, and has none of the packages for looking."""
    assert bare.megabytes <= MOST_MB
    assert len(bare.distributions) <= MOST_PACKAGES, sorted(bare.distributions)
    assert bare.distributions.isdisjoint(HEAVY)


def test_what_is_deleted_is_still_registered(bare: Installed, tmp_path: Path) -> None:
    """The package's metadata name parts of wings, as in an environment that somebody slimmed; `otel_rl` imports."""
    script = """
import otel_rl, importlib.metadata as m
modules = {e.module for e in m.distribution("otel-rl").entry_points}
print(otel_rl.__file__)
print(*{name.split(".")[1] for name in modules if name.startswith("otel_rl.")})
"""
    place, wings = run(bare.python, "-P", "-c", script, cwd=tmp_path).splitlines()

    assert Path(place).is_relative_to(bare.packages)
    assert set(WINGS) <= set(wings.split())


def test_the_rooms_of_the_recorder(equipped: Installed, tmp_path: Path) -> None:
    """Their tests pass without a checkout."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # `-P` keeps the working directory off `sys.path`, where a checkout would win over what is installed.
    output = run(
        *(equipped.python, "-P", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-rfEs"),
        *("tests/recorder", "--durations=10"),
        cwd=tmp_path,
    )

    assert int(output.rpartition(" passed")[0].rpartition("\n")[2].split()[-1]) > 1500


RANK = f"""
import os, pathlib, time, urllib.request, otel_rl
rank = int(os.environ["RANK"])
more = [{{name: {{"precision": "double"}}}} for name in os.environ["MORE"].split()]
run = otel_rl.init(dir="runs", project="walls", quiet=True, reduce={{"tokens": "sum", "time/*": "max"}},
    exporters=["jsonl", "prometheus", "otlp", *more])
for step in range({STEPS}):
    with run.step(step), run.phase("generate"):
        run.log({{"loss": step / 7 + rank, "tokens": 3 + rank, f"only/{{rank}}": 1 / (step + 1)}})
while not pathlib.Path("scraped").exists():  # both ranks are alive until the last step can be scraped
    page = urllib.request.urlopen(run.prometheus).read().decode()
    if rank == 0 and "rl_step_current{{" in page:
        if float(page.partition("rl_step_current{{")[2].splitlines()[0].split()[-1]) == {STEPS - 1}:
            pathlib.Path("page").write_text(page)
            pathlib.Path("scraped").touch()
    time.sleep(0.1)
assert run.finish(60)
"""
Values = dict[int, dict[str, float]]
"""The values of metrics by step and name."""


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """A real collector."""
    with collectors.running(tmp_path) as running:
        yield running


@needs("rotel")
@pytest.mark.parametrize(("environment", "more"), [("bare", ""), ("equipped", "tensorboard")])
def test_a_run_of_two_ranks(
    environment: str, more: str, request: pytest.FixtureRequest, collector: Collector, tmp_path: Path
) -> None:
    """Rows, archive, OTLP and Prometheus have every value, exactly; with its package, TensorBoard too."""
    shared = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "TORCHELASTIC_RUN_ID": "walls"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OTEL_RL_HARDWARE": "false", "MORE": more}
    shared |= {"OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port()), **collector.environment("http/protobuf")}
    command = [str(request.getfixturevalue(environment).python), "-P", "-c", RANK]
    ranks = [start(command, tmp_path, RANK=str(n), LOCAL_RANK=str(n), **shared) for n in range(RANKS)]
    printed = [rank.communicate(timeout=300) for rank in ranks]
    assert [(rank.returncode, *texts) for rank, texts in zip(ranks, printed, strict=True)] == [(0, "", "")] * RANKS
    (run_dir,) = (tmp_path / "runs" / "walls").iterdir()
    rows: Values = {row["step"]: row["values"] for row in rows_of(run_dir)}  # type: ignore[misc]

    assert {step: logged(values) for step, values in rows.items()} == {
        step: {"loss": fmean([step / 7, step / 7 + 1]), "tokens": 7, "only/0": 1 / (step + 1), "only/1": 1 / (step + 1)}
        for step in range(STEPS)
    }
    archived = in_archive(run_dir)  # what is measured around phases too
    assert {step: {name: archived[step][name] for name in row} for step, row in rows.items()} == rows
    assert archived.keys() == rows.keys()
    assert dict(collector.steps()) == rows
    if more:
        assert in_tensorboard(run_dir) == rows
    assert scraped((tmp_path / "page").read_text(), "rl_metric", "rl_metric_name") == logged(rows[STEPS - 1])
    names = [span.name for span in collector.spans()]
    assert (names.count("rl.loop"), names.count("rl.sample")) == (STEPS, STEPS * RANKS)


def logged(values: dict[str, float]) -> dict[str, float]:
    """Return the values that the trainer logged."""
    return {name: value for name, value in values.items() if not name.startswith(("time/", "perf/"))}


def in_archive(run_dir: Path) -> Values:
    """Return the rows that PyArrow reads in the sealed files of an archive."""
    values: Values = {}
    for file in run_dir.glob("archive/*/rows/*.parquet"):
        columns = part("pyarrow.parquet").read_table(file).to_pydict()
        for step, name, value in zip(columns["step"], columns["name"], columns["value"], strict=True):
            values.setdefault(step, {})[name] = value
    return values


def in_tensorboard(run_dir: Path) -> Values:
    """Return the scalars that TensorBoard reads."""
    values: Values = {}
    for name, points in TensorBoard("double").points(run_dir).items():
        for step, value in points:
            (values.setdefault(step, {})[name],) = struct.unpack(">d", value)
    return values


def scraped(page: str, metric: str, label: str) -> dict[str, float]:
    """Return the values of a metric by a label, as Prometheus's own client reads them."""
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {sample.labels[label]: sample.value for sample in samples if sample.name == metric}
