"""MLflow, read back with its own client from a running server and from its database."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_rl
from otel_rl.export import Params, Refused, Row, RunInfo, Table
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl_exporters.mlflow import MlflowExporter, escape, unescape
from tests.collector import wait_for
from tests.exporters import same_run
from tests.exporters.mlflow_server import serving
from tests.exporters.trackers import MLFLOW, Mlflow, bits, empty_database
from tests.real_parts import needs

pytestmark = needs("mlflow")


@pytest.fixture
def run(run: RunInfo) -> RunInfo:
    """A run that has a database with MLflow's tables in its directory."""
    shutil.copy(empty_database(), run.directory)
    return run


def read(run: RunInfo) -> tuple[Any, Any]:
    """Return a client and the MLflow run."""
    return MLFLOW.read(Path(run.directory))


def history(run: RunInfo, name: str) -> list[tuple[int, object]]:
    """Return the points of a metric."""
    return MLFLOW.points(Path(run.directory), name)[name]


@pytest.mark.slow
def test_a_server_has_the_same(run: RunInfo, tmp_path: Path) -> None:
    """Every value, parameter and table reads back from it as from a database."""
    with serving(tmp_path, empty_database()) as address:
        server = Mlflow(address)
        server.deliver(run, same_run.items())

        assert server.points(tmp_path) == same_run.points(server)
        assert server.params(tmp_path) == {name: str(value) for name, value in same_run.PARAMS.items()}
        assert same_run.exact_tables(server.tables(tmp_path)) == same_run.exact_tables(same_run.shown(server))


def test_times_and_identity(run: RunInfo) -> None:
    """Times are to the millisecond, which is what MLflow keeps. The run is named and tagged, and has ended."""
    rows = same_run.rows()[:20]
    MLFLOW.deliver(run, rows)
    client, found = read(run)

    times = [point.timestamp for point in client.get_metric_history(found.info.run_id, "loss")]
    assert times == [row.time_unix_nano // 10**6 for row in rows]
    assert (found.info.status, found.info.run_name) == ("FINISHED", "baseline")
    assert found.data.tags["rl.run.id"] == run.id


def test_the_local_database(run: RunInfo) -> None:
    """Without a server, a SQLite database and the artifacts lie in the run directory."""
    row = Row(3, 10**9, {"loss": math.nan, "loss/kl": 1 / 3})
    MLFLOW.deliver(run, [Params(0, {"lr": 0.5}), row, Table("t", 3, 0, ("a",), ((1,),))])

    assert history(run, "loss") == [(3, bits(math.nan))]
    assert history(run, "loss/kl") == [(3, bits(1 / 3))]
    assert list(Path(run.directory, "mlflow-artifacts").rglob("step_000003.json")) != []


@pytest.mark.slow
def test_a_restarted_run_goes_on(run: RunInfo) -> None:
    """It is the same MLflow run; points that come again are there once; a changed parameter is a tag."""
    for lr, steps in ((0.5, (0, 1)), (0.25, (1, 2))):
        rows = [Row(n, n * 10**9, {"loss": n / 3}) for n in steps]
        MLFLOW.deliver(run, [Params(0, {"lr": lr, "beta": 0.1}), *rows], tags={"team": "rl"})
    _, found = read(run)

    assert history(run, "loss") == [(n, bits(n / 3)) for n in (0, 1, 2)]
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

    assert history(run, "loss") == [(0, bits(1.0))]
    assert MLFLOW.params(Path(run.directory)) == {"lr": "0.5"}


@pytest.mark.slow
def test_the_newest_tables_are_listed_for_the_ui(run: RunInfo) -> None:
    """MLflow's UI shows what this tag lists as tables; it holds no more than a tag can."""
    exporter = MlflowExporter(run)
    exporter.export([Table("t", step, 0, ("a",), ((step,),)) for step in range(20)])
    _, found = read(run)
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


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:///tmp/mlruns", "127.0.0.1:5000", "sqlite:mlflow.db"])
@pytest.mark.parametrize("is_variable", [False, True])
def test_the_file_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, *, is_variable: bool
) -> None:
    """A URI that MLflow takes for a directory is an error of `init`, which says what to write."""
    options = {} if is_variable else {"tracking_uri": uri}
    if is_variable:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(otel_rl.SettingsError, match=r"MLflow's file store .* sqlite:///mlflow.db"):
        otel_rl.init(dir=tmp_path, exporters=[{"mlflow": options}], agent="off")


@pytest.mark.parametrize("uri", ["http://a:5000", "databricks", "databricks://me", "postgresql+psycopg2://a/b"])
def test_other_uris_are_checked_by_mlflow(uri: str) -> None:
    """Servers, databases and Databricks."""
    MlflowExporter.check(tracking_uri=uri)


def test_a_server_that_is_gone_raises(run: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent offers the rows again later."""
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(mlflow.exceptions.MlflowException, match=r"Max retries|refused"):
        MlflowExporter(run, tracking_uri="http://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_is_killed_while_the_run_goes_on(run: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
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

    with serving(place / "local" / "server", empty_database()) as address:
        options = {"tracking_uri": address, "artifact_location": str(place / "artifacts")}
        thread = ExporterThread("mlflow", MlflowExporter, options, run, outbox, place / "local" / "cursors")
        thread.start()
        put(0, 20)
        wait_for(lambda: thread.delivered >= outbox.end, "nothing is delivered", 200)
        put(20, 60)
    put(60, 80)
    wait_for(lambda: thread.failures > 0, "nobody notices that the server is gone", 100)
    with serving(place / "local" / "server", empty_database(), int(address.rpartition(":")[2])) as again:
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
