"""A cgroup of version 2, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rl.recorder.agent.hardware.cgroup import Cgroup, find

_EVENTS = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 3\noom_group_kill 0\n"
_CPU = "usage_usec 81500000\nuser_usec 60000000\nsystem_usec 21500000\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree as Kubernetes makes it: the pod has the tighter limit."""
    pod = tmp_path / "kubepods" / "pod1"
    container = pod / "container"
    container.mkdir(parents=True)
    for place, limit, cpu in ((pod, "8589934592", "400000 100000"), (container, "max", "max 100000")):
        (place / "memory.max").write_text(f"{limit}\n")
        (place / "cpu.max").write_text(f"{cpu}\n")
    (container / "cgroup.controllers").write_text("cpu memory\n")
    (container / "memory.current").write_text("1073741824\n")
    (container / "memory.events").write_text(_EVENTS)
    (container / "cpu.stat").write_text(_CPU)
    return tmp_path


def test_use_limits_and_kills(root: Path) -> None:
    """A limit is the tightest of the cgroup's own and its ancestors'."""
    found = {point.metric: point.value for point in Cgroup(root / "kubepods" / "pod1" / "container", root).read()}

    assert found == {
        "container.memory.usage": 2**30,
        "rl.container.memory.limit": 2**33,
        "rl.container.memory.oom_kills": 3,
        "container.cpu.time": 81.5,
        "rl.container.cpu.limit": 4.0,
    }


def test_the_own_cgroup_is_found(root: Path, tmp_path: Path) -> None:
    """The place in /proc decides."""
    own = tmp_path / "own"
    own.write_text("0::/kubepods/pod1/container\n")
    found = find(own, root)

    assert found is not None
    assert next(iter(found.read())).value == 2**30


def test_the_memory_of_version_1(tmp_path: Path) -> None:
    """The tightest limit of all ancestors; the largest number of pages is none."""
    job = tmp_path / "memory" / "slurm" / "job"
    job.mkdir(parents=True)
    for place, limit in ((tmp_path / "memory", 9223372036854771712), (job.parent, 900 << 20), (job, 1 << 40)):
        (place / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (job / "memory.usage_in_bytes").write_text(f"{300 << 20}\n")
    (job / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    own = tmp_path / "own"
    own.write_text("9:name=systemd:/\n4:memory:/slurm/job\n0::/\n")
    found = find(own, tmp_path)

    assert found is not None
    assert {point.metric: point.value for point in found.read()} == {
        "container.memory.usage": 300 << 20,
        "rl.container.memory.limit": 900 << 20,
        "rl.container.memory.oom_kills": 2,
    }


@pytest.mark.parametrize("said", ["12:memory:/docker/abc\n", "", None])
def test_without_version_2_there_is_none(said: str | None, tmp_path: Path) -> None:
    """Version 1, or no /proc."""
    own = tmp_path / "own"
    if said is not None:
        own.write_text(said)

    assert find(own, tmp_path) is None


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    """The root cgroup has few files."""
    (tmp_path / "cpu.stat").write_text(_CPU)

    assert [point.metric for point in Cgroup(tmp_path, tmp_path).read()] == ["container.cpu.time"]
