"""The stand-in for NVML's library, and a poller in a process of its own that finds it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.processes import run_python

_SOURCE = Path(__file__).with_name("nvml_standin.c")
_SAMPLE = """
import json, os, sys, time
from otel_rl.recorder.agent.hardware import poller as sampling
from otel_rl.recorder.agent.hardware.processes import TrainerProcess
from otel_rl.recorder.agent.hardware.poller import Poller

sampling._SLOW_S = 0.2
wanted = json.loads({wanted!r})
poller = Poller(0.3, io=wanted["io"])
visible = enumerate(wanted["visible"])
poller.watch([TrainerProcess(os.getpid(), rank, "", devices, time.time_ns()) for rank, devices in visible])
poller.start()
seen, times, began = {{}}, {{}}, time.monotonic()

def is_enough():
    failures = [list(key) for key in poller.failures]
    often = all(times.get(name, 0) >= n for name, n in wanted["times"].items())
    return often and all(failure in failures for failure in wanted["failures"])

while not is_enough() and time.monotonic() < began + 60:
    for measurement in poller.pop():
        seen[measurement.probe] = [[point.metric, point.value, dict(point.attributes)] for point in measurement.points]
        times[measurement.probe] = times.get(measurement.probe, 0) + 1
    time.sleep(0.02)
poller.stop()
print(json.dumps({{"seen": seen, "failures": [[*key, n] for key, n in poller.failures.items()]}}), flush=True)
os._exit(0)
"""
_OF_EACH = ("hw.id", "rl.gpu.index", "hw.type")


class Found(msgspec.Struct):
    """The measurements of a poller: the last points of each probe, and how often each failed."""

    seen: dict[str, list[tuple[str, float, dict[str, Any]]]]
    failures: list[tuple[str, str, int]]

    def of(self, probe: str) -> dict[str, float]:
        """Return values by metric, with the attributes other than hw.id and rl.gpu.index."""
        return {
            " ".join([metric, *(str(said) for name, said in told.items() if name not in _OF_EACH)]): value
            for metric, value, told in self.seen[probe]
        }

    @property
    def gpus(self) -> list[str]:
        """The devices that were measured."""
        return sorted(name.removeprefix("nvml/") for name in self.seen if name.startswith("nvml/"))


def build(directory: Path, *options: str) -> Path:
    """Compile the library into a directory, which is returned."""
    library = directory / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *options, "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True)
    return directory


def measure(
    library: Path | None,
    plays: str,
    directory: Path,
    *,
    times: Mapping[str, int],
    failures: list[tuple[str, str]] | None = None,
    visible: list[str | None] | None = None,
    io: bool = False,
) -> Found:
    """Measure until each probe was measured so often, and has failed as it should; a minute at most."""
    wanted = {"io": io, "visible": visible or [], "times": dict(times), "failures": failures or []}
    script = _SAMPLE.format(wanted=msgspec.json.encode(wanted).decode())
    found = {"LD_LIBRARY_PATH": str(library)} if library else {}
    return msgspec.json.decode(run_python(script, directory, NVML_STANDIN=plays, **found), type=Found)
