"""MLflow, read back with its own client from a running server and from its database."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.export import Params, Refused, Row, RunInfo, Table
from otel_rl_exporters.mlflow import MlflowExporter, escape, unescape
from tests.collector import wait_for
from tests.exporters import same_run
from tests.exporters.exactly import bits
from tests.exporters.mlflow_server import serving
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs("mlflow")

LARGEST = 1.7976931348623157e308


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which MLflow needs seconds to create; agents in tests start without."""
    import mlflow

    place = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{place}").search_experiments()
    return place


@pytest.fixture
def run(run: RunInfo, empty: Path) -> RunInfo:
    """A run that has such a database in its directory."""
    shutil.copy(empty, run.directory)
    return run


def read(uri: str, run: RunInfo) -> tuple[Any, Any]:
    """Return a client and the one MLflow run of our run."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(run.project)
    (found,) = client.search_runs([experiment.experiment_id], filter_string=f"tags.`rl.run.id` = '{run.id}'")
    return client, found


def history(client: Any, found: Any, name: str) -> list[tuple[int, int | bytes]]:
    return [(point.step, bits(point.value)) for point in client.get_metric_history(found.info.run_id, escape(name))]


def stored(value: float) -> float:
    """Return what MLflow's database makes of a value."""
    return math.copysign(LARGEST, value) if math.isinf(value) else float(value) + 0.0  # -0.0 is 0.0 there


def write(exporter: MlflowExporter, run: RunInfo) -> None:
    items = same_run.items(run)
    for start in range(0, len(items), exporter.batch_size):
        exporter.export(items[start : start + exporter.batch_size])
    exporter.shutdown()


@pytest.fixture(scope="module", params=["database", pytest.param("server", marks=pytest.mark.slow)])
def written(
    request: pytest.FixtureRequest, empty: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, RunInfo]]:
    """The run of 200 steps, in its own database or logged to a server."""
    run = RunInfo("run-7", "grpo-gsm8k", "baseline", str(tmp_path_factory.mktemp("run")))
    with contextlib.ExitStack() as stack:
        if request.param == "server":
            uri = stack.enter_context(serving(tmp_path_factory.mktemp("server"), empty))
            exporter = MlflowExporter(run, tracking_uri=uri)
        else:
            uri = f"sqlite:///{shutil.copy(empty, run.directory)}"
            exporter = MlflowExporter(run)
        write(exporter, run)
        yield *read(uri, run), run


@pytest.mark.slow
def test_the_same_run_reads_back(written: tuple[Any, Any, RunInfo]) -> None:
    """Every value of 500 names at its step, in order; infinities are the largest floats there, and -0.0 is 0.0."""
    client, found, run = written
    expected: dict[str, list[tuple[int, int | bytes]]] = {}
    for row in same_run.rows(run):
        for name, value in row.values.items():
            expected.setdefault(name, []).append((row.step, bits(stored(value))))

    assert len(expected) == 500
    assert {unescape(name) for name in found.data.metrics} == set(expected)
    assert {name: history(client, found, name) for name in expected} == expected


def test_its_times_are_those_of_the_rows(written: tuple[Any, Any, RunInfo]) -> None:
    """To the millisecond, which is what MLflow keeps."""
    client, found, run = written
    times = [point.timestamp for point in client.get_metric_history(found.info.run_id, "loss")]

    assert times == [row.time_unix_nano // 10**6 for row in same_run.rows(run)]


def test_its_hyper_parameters_read_back(written: tuple[Any, Any, RunInfo]) -> None:
    """As texts, which is what they are in MLflow."""
    _, found, _ = written

    assert found.data.params == {escape(name): str(value) for name, value in same_run.PARAMS.items()}


def test_its_tables_read_back(written: tuple[Any, Any, RunInfo], tmp_path: Path) -> None:
    """Each step's table is an artifact; what JSON has no number for is its name."""
    client, found, _ = written
    place = f"tables/{escape(same_run.TABLE)}"
    names = {math.inf: "Infinity", -math.inf: "-Infinity"}
    for table in same_run.tables():
        text = Path(client.download_artifacts(found.info.run_id, f"{place}/step_{table.step:06d}.json", str(tmp_path)))
        read_back = json.loads(text.read_text())

        assert read_back["columns"] == list(table.columns)
        assert read_back["data"] == [
            ["NaN" if cell != cell else names.get(cell, cell) for cell in row]  # noqa: PLR0124 # NaN
            for row in table.rows
        ]


def test_it_is_finished(written: tuple[Any, Any, RunInfo]) -> None:
    """The run has ended, and is named and tagged."""
    _, found, run = written

    assert (found.info.status, found.info.run_name) == ("FINISHED", "baseline")
    assert found.data.tags["rl.run.id"] == run.id


def test_the_local_database(run: RunInfo) -> None:
    """Without a server, a SQLite database and the artifacts lie in the run directory."""
    exporter = MlflowExporter(run)
    exporter.export([Params(0, {"lr": 0.5}), Row(3, 10**9, {"loss": math.nan, "loss/kl": 1 / 3})])
    exporter.export([Table("t", 3, 0, ("a",), ((1,),))])
    exporter.shutdown()
    client, found = read(f"sqlite:///{run.directory}/mlflow.db", run)

    assert history(client, found, "loss") == [(3, bits(math.nan))]
    assert history(client, found, "loss/kl") == [(3, bits(1 / 3))]
    assert list(Path(run.directory, "mlflow-artifacts").rglob("step_000003.json")) != []


@pytest.mark.slow
def test_a_restarted_run_goes_on(run: RunInfo) -> None:
    """It is the same MLflow run; points that come again are there once; a changed parameter is a tag."""
    for lr, steps in ((0.5, (0, 1)), (0.25, (1, 2))):
        exporter = MlflowExporter(run, tags={"team": "rl"})
        exporter.export([Params(0, {"lr": lr, "beta": 0.1}), *(Row(n, n * 10**9, {"loss": n / 3}) for n in steps)])
        exporter.shutdown()
    client, found = read(f"sqlite:///{run.directory}/mlflow.db", run)

    assert history(client, found, "loss") == [(n, bits(n / 3)) for n in (0, 1, 2)]
    assert found.data.params == {"lr": "0.5", "beta": "0.1"}
    assert (found.data.tags["changed.lr"], found.data.tags["team"]) == ("0.25", "rl")
    assert "changed.beta" not in found.data.tags


@pytest.mark.slow
def test_what_mlflow_will_never_take_is_refused(run: RunInfo) -> None:
    """The agent counts it and continues, instead of retrying it forever."""
    exporter = MlflowExporter(run)
    exporter._client.delete_run(exporter._run_id)

    with pytest.raises(Refused):
        exporter.export([Row(0, 0, {"loss": 1.0})])


@pytest.mark.slow
def test_what_is_refused_holds_up_nothing_else(run: RunInfo) -> None:
    """Where the client for the artifacts is missing, the rows that come with and after a table are there."""
    exporter = MlflowExporter(run, artifact_location="gs://nowhere/artifacts")
    with pytest.raises(Refused, match="1 request"):
        exporter.export([Table("t", 0, 0, ("a",), ((1,),)), Row(0, 0, {"loss": 1.0}), Params(0, {"lr": 0.5})])
    client, found = read(f"sqlite:///{run.directory}/mlflow.db", run)

    assert history(client, found, "loss") == [(0, bits(1.0))]
    assert found.data.params == {"lr": "0.5"}


@pytest.mark.slow
def test_the_newest_tables_are_listed_for_the_ui(run: RunInfo) -> None:
    """MLflow's UI shows what this tag lists as tables; it holds no more than a tag can."""
    exporter = MlflowExporter(run)
    exporter.export([Table("t", step, 0, ("a",), ((step,),)) for step in range(20)])
    _client, found = read(f"sqlite:///{run.directory}/mlflow.db", run)
    listed = json.loads(found.data.tags["mlflow.loggedArtifacts"])

    assert [entry["path"] for entry in listed] == [f"tables/t/step_{step:06d}.json" for step in range(4, 20)]


def test_rows_of_late_ranks(run: RunInfo) -> None:
    """They are other artifacts. A retry writes the same artifact, and a new attempt replaces it."""
    exporter = MlflowExporter(run)
    parts = [Table("t", 3, 0, ("a",), ((n,),), ranks=(n, n + 1)) for n in (0, 2, 4)]
    attempts = [Table("t", 4, 0, ("a",), ((n,),), attempt=n) for n in range(2)]
    late = Table("t", 4, 0, ("a",), ((9,),), ranks=(7,))
    for table in [*parts, parts[1], *attempts, late]:
        exporter.export([table])
    files = Path(run.directory, "mlflow-artifacts").rglob("step_*.json")

    assert {path.name: json.loads(path.read_bytes())["data"] for path in files} == {
        "step_000003.json": [[0]],
        "step_000003.ranks-2-3.json": [[2]],
        "step_000003.ranks-4-5.json": [[4]],
        "step_000004.json": [[1]],
        "step_000004.attempt-0.ranks-7.json": [[9]],
    }


def test_a_server_that_is_gone_raises(run: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent offers the rows again later."""
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(mlflow.exceptions.MlflowException, match=r"Max retries|refused"):
        MlflowExporter(run, tracking_uri="http://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_is_killed_while_the_run_goes_on(
    run: RunInfo, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows wait until it is back; each is there once, those included of which it died before it answered."""
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    place = Path(run.directory)
    for name in ("outbox", "cursors", "server"):
        (place / "local" / name).mkdir(parents=True)
    outbox = Outbox(place / "local" / "outbox", 1 << 30)

    def put(first: int, last: int) -> None:
        for n in range(first, last):
            outbox.append([Row(n, 10**18 + n * 10**9, {"loss": float(n)})], b"\xc0")

    with serving(place / "local" / "server", empty) as address:
        options = {"tracking_uri": address, "artifact_location": str(place / "artifacts")}
        thread = ExporterThread("mlflow", MlflowExporter, options, run, outbox, place / "local" / "cursors")
        thread.start()
        put(0, 20)
        wait_for(lambda: thread.delivered >= outbox.end, "nothing is delivered", 200)
        put(20, 60)
    put(60, 80)
    wait_for(lambda: thread.failures > 0, "nobody notices that the server is gone", 100)
    with serving(place / "local" / "server", empty, int(address.rpartition(":")[2])) as again:
        thread.close_when_done()
        thread.join(200)
        client = mlflow.MlflowClient(tracking_uri=again)
        (found,) = client.search_runs([client.get_experiment_by_name(run.project).experiment_id])
        points = client.get_metric_history(found.info.run_id, "loss")

    assert not thread.is_alive()
    assert sorted((point.step, point.value) for point in points) == [(n, float(n)) for n in range(80)]
    assert found.info.status == "FINISHED"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("eval/acc/mean@4", "eval/acc/mean.at.4"),
        ("critic/score/max", "critic/score/max"),
        ("50% {x}", "50.x25. .x7b.x.x7d."),
        ("a//b/", "a.x2f./b.x2f."),
        ("../x", ".x2e../x"),
        ("récompense", "récompense"),
        ("mean.at.4", "mean.x2e.at.4"),
        ("", ".x."),
    ],
)
def test_escaping(name: str, escaped: str) -> None:
    """What MLflow allows stays as it is, `@` can be read."""
    assert escape(name) == escaped
    assert unescape(escaped) == name


@given(st.text(max_size=40) | st.text("./@x2eat%", min_size=1, max_size=20))
def test_every_name_is_accepted_and_comes_back(name: str) -> None:
    """MLflow's own validation takes what any name is escaped to, and the way back gives the name."""
    import mlflow

    escaped = escape(name)
    mlflow.utils.validation._validate_metric_name(escaped)

    assert unescape(escaped) == name


def test_long_names_stay_different() -> None:
    """Names beyond MLflow's limit are cut, and differ by a hash."""
    first, second = escape("x" * 300 + "1"), escape("x" * 300 + "2")

    assert len(first) == len(second) == 250
    assert first != second
