"""Trackers online, through the agent, with servers of their protocols."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.agent_start import read_status
from tests.collector import wait_for
from tests.exporters.every import needs_packages
from tests.exporters.networks import NETWORKS, Wandb
from tests.faulty_proxy import FaultyProxy
from tests.processes import run, start

pytestmark = pytest.mark.slow
_TRAIN = """
import sys, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=sys.argv[1:], hardware=False)
run.params({"lr": 0.5})
for n in range(300):
    run.log({"a": float(n)}, step=n)
input()
print(bool(run.finish(200)))
"""
_PATH = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_packages(name)) for name in ("wandb", "swanlab")])
def test_a_start_that_is_refused(tmp_path: Path, name: str) -> None:
    """The user reads the first cause and its fix; once the key is accepted, the same agent delivers everything."""
    network = NETWORKS[name]()
    with network.serving(tmp_path) as address, FaultyProxy(address) as proxy:
        proxy.set(401)
        command = [sys.executable, "-c", _TRAIN, name]
        trainer = start(command, tmp_path, stdin=-1, **network.environment(proxy.url), **_PATH)
        wait_for(lambda: proxy.hits > 2, "it is not tried again", 100)
        here = directories.at(tmp_path / "runs/p/r")
        refused = read_status(here)
        proxy.set("")
        said, errors = trainer.communicate("\n", 250)

    assert "401" in refused.last_error[name], errors
    assert "check the API key" in refused.last_error[name]
    assert said == "True\n", errors
    assert network.steps("r") == dict.fromkeys(range(300), 1)
    assert (network.params("r") >= {"lr"}, network.state("r")) == (True, "finished")
    assert read_status(here).pid == refused.pid


@needs_packages("wandb")
def test_a_key_in_a_file(tmp_path: Path) -> None:
    """A netrc file that its group may read, as Kubernetes mounts it, takes the place of the variable."""
    network, netrc = Wandb(), tmp_path / "netrc"
    with network.serving(tmp_path) as address:
        netrc.write_text(f"machine {address.removeprefix('http://')} login user password {'k' * 40}\n")
        netrc.chmod(0o440)
        environment = network.environment(address) | {"NETRC": str(netrc)} | _PATH
        del environment["WANDB_API_KEY"]
        said = run([sys.executable, "-c", _TRAIN.replace("input()\n", ""), "wandb"], tmp_path, **environment)

    assert said == "True\n"
    assert network.steps("r") == dict.fromkeys(range(300), 1)


@needs_packages("wandb")
@pytest.mark.parametrize("sends", [True, False])
def test_printed_lines(tmp_path: Path, sends: bool) -> None:
    """W&B's server has them in the output of the run, with the rank and without secrets, if that is asked for."""
    network = Wandb()
    script = _TRAIN.replace("hardware=False", f"hardware=False, output={{'tee': True, 'send': {sends}}}")
    script = script.replace("input()\n", "print('\\x1b[31mit failed, password=hunter2hunter2', flush=True)\n")
    with network.serving(tmp_path) as address:
        said = run([sys.executable, "-c", script, "wandb"], tmp_path, **network.environment(address), **_PATH)
    shown = "\n".join(network.server.runs["r"].read("output.log"))

    assert said.endswith("True\n")
    assert ("rank 0: it failed, password=[redacted]" in shown) == sends
    assert bool(shown) == sends
