"""W&B online, through the agent, with a server of its protocol."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.setup import directory as directories
from otel_rl.setup.agent_start import read_status
from tests.collector import wait_for
from tests.exporters.networks import Wandb
from tests.faulty_proxy import FaultyProxy
from tests.processes import start_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs("wandb"), pytest.mark.slow]
_TRAIN = """
import otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=["wandb"], hardware=False)
run.params({"lr": 0.5})
for n in range(300):
    run.log({"a": float(n)}, step=n)
input()
print(bool(run.finish(200)))
"""


def test_a_start_that_is_refused(tmp_path: Path) -> None:
    """The user reads the first cause and its fix; once the key is accepted, the same agent delivers everything."""
    network = Wandb()
    with network.serving(tmp_path) as address, FaultyProxy(address) as proxy:
        proxy.set(401)
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        trainer = start_python(_TRAIN, tmp_path, stdin=-1, **network.environment(proxy.url), **path)
        wait_for(lambda: proxy.hits > 2, "W&B is not tried again", 100)
        here = directories.at(tmp_path / "runs/p/r")
        refused = read_status(here)
        proxy.set("")
        said, errors = trainer.communicate("\n", 250)

    assert "returned error 401" in refused.last_error["wandb"], errors
    assert "check the API key" in refused.last_error["wandb"]
    assert said == "True\n", errors
    assert network.steps("r") == dict.fromkeys(range(300), 1)
    assert (network.params("r") >= {"lr"}, network.state("r")) == (True, "finished")
    assert read_status(here).pid == refused.pid
