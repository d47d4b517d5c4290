"""The machine, its software, and its load."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path

import msgspec

_PACKAGES = ("otel-rl", "msgspec", "opentelemetry-sdk", "wandb", "tensorboard", "torch", "trl")


class Conditions(msgspec.Struct, frozen=True):
    """Where and when figures were made; three sentences."""

    machine: str
    packages: str
    load: str


def load() -> str:
    """Return the load averages of the last 1, 5 and 15 minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def conditions(load_before: str) -> Conditions:
    """Return the conditions now; the load average is the one before and the one after."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    cores = len(os.sched_getaffinity(0))
    versions = ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)))
    return Conditions(
        f"{when}, {_processor()}, {cores} cores, Linux {platform.release()}",
        f"Python {platform.python_version()}, {versions}",
        f"Load average {load_before} before and {load()} after, on {cores} cores",
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
