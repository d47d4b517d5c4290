"""One cluster for all jobs of the session; it is taken down with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.jobs import Case, Cluster, Submitted
from tests.cluster.machines import RefusedError
from tests.cluster.slurm import Slurm, missing


@contextmanager
def started(*nodes: str) -> Iterator[Cluster]:
    """Start a cluster; end it with all that it made."""
    if absent := missing():
        words = f"needs {', '.join(absent)}"
        pytest.fail(words) if os.environ.get("REQUIRE_REAL_PARTS") == "1" else pytest.skip(words)
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("one cluster at a time: pytest -n 0 -m slow tests/cluster")
    root = Path(tempfile.mkdtemp(prefix="otel-rl-cluster-"))
    slurm = Slurm(root, nodes)
    try:
        try:
            slurm.start()
        except RefusedError as error:
            pytest.skip(f"no machines: {error}")  # in CI too: this project cannot choose its kernel
        yield Cluster(slurm)
    finally:
        slurm.close()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes whose names have the order of their numbers."""
    with started("node1", "node2") as one:
        yield one


@pytest.fixture(scope="session")
def renamed() -> Iterator[Cluster]:
    """Two nodes whose names are in another order as strings."""
    with started("node9", "node10") as one:
        yield one


@pytest.fixture(scope="session")
def jobs(request: pytest.FixtureRequest, cluster: Cluster) -> dict[str, Submitted]:
    """Submit the jobs that the tests are about, all at once: Slurm runs as many as its nodes hold."""
    submitted: dict[str, Submitted] = {}
    for item in request.session.items:
        about = item.get_closest_marker("about")
        cases: dict[str, Case] = getattr(getattr(item, "module", None), "CASES", {})
        for name in () if about is None else about.args:
            if name not in submitted:
                submitted[name] = cluster.submit(name, cases[name])
    return submitted
