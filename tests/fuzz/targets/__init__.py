"""Targets: one for each reader of bytes that otel-rl did not write, or that another program may have changed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tests.fuzz.oracle import MOST_MEMORY

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = {
    "protobuf": "requests:Protobuf",
    "json": "requests:Json",
    "compressed": "requests:Compressed",
    "http": "servers:Http",
    "scrape": "servers:Scrape",
    "answers": "answers:Answers",
    "journal": "journals:DamagedJournal",
    "records": "journals:Records",
    "outbox": "outboxes:DamagedOutbox",
    "manifest": "run_files:RunFiles",
    "settings": "settings:SettingsFile",
    "environment": "settings:Environment",
    "archive": "texts:Archive",
    "names": "texts:Names",
    "engines": "texts:EnginePages",
    "secrets": "secrets:Secrets",
}
"""The class of each target, in a module of this folder."""


class Target:
    """A reader of bytes.

    Args:
        folder: An empty directory for the files of the target.

    Attributes:
        longest: The largest input, in bytes.
        most_memory: The bytes of resident memory that one input may take at its peak.
        is_contained: If true, an input must not import a module, start a process or change files outside of the folder.
    """

    longest = 8 << 10
    most_memory = MOST_MEMORY
    is_contained = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def seeds(self) -> list[bytes]:
        """Return inputs that the real writer makes."""
        raise NotImplementedError

    def check(self, data: bytes) -> None:
        """Feed an input to the reader.

        Raises:
            Exception: The reader broke its promise.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Stop what the target started."""


def target(name: str, folder: Path) -> Target:
    """Build a target."""
    module, _, kind = TARGETS[name].partition(":")
    found: Target = getattr(import_module(f"tests.fuzz.targets.{module}"), kind)(folder)
    return found
