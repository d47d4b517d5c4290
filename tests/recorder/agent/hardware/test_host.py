"""The host, against what psutil says of it."""

from __future__ import annotations

import time

import psutil

from otel_rl.recorder.agent.hardware.host import Host


def values(host: Host) -> dict[str, float]:
    return {
        " ".join([point.metric, *(str(value) for _, value in point.attributes)]): point.value for point in host.read()
    }


def test_the_host_as_psutil_has_it() -> None:
    """Sizes exactly; what changes, between two looks."""
    before = psutil.disk_io_counters()
    found = values(Host())
    after = psutil.disk_io_counters()

    assert found["system.memory.limit"] == psutil.virtual_memory().total
    assert 0 < found["system.memory.usage used"] < found["system.memory.limit"]
    assert found["system.network.io receive"] >= 0
    assert {"rl.host.load_average", "system.paging.usage used"} <= found.keys()
    if before is not None and after is not None:
        assert before.read_bytes <= found["system.disk.io read"] <= after.read_bytes


def test_utilisation_needs_two_looks() -> None:
    """The first measurement has nothing to compare with, and has no value rather than 0."""
    host = Host()
    first = values(host)
    busy = time.process_time() + 0.3
    while time.process_time() < busy:
        pass
    second = values(host)

    assert "system.cpu.utilization" not in first
    assert 0 < second["system.cpu.utilization"] <= 1
