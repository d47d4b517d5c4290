"""An exporter that writes down the options that it got, and the environment of a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_rl.export import Item, RunInfo


class Keeping:
    """Writes its options to `kept.json`."""

    def __init__(self, run: RunInfo, **options: Any) -> None:
        variables = subprocess.run(
            [sys.executable, "-c", "import os; print(*os.environ)"], capture_output=True, text=True, check=True
        )
        kept = {"options": options, "inherits": "OTEL_RL_SECRET_OPTIONS" in variables.stdout}
        with Path(run.directory, "kept.json").open("a") as file:
            file.write(json.dumps(kept) + "\n")

    def export(self, items: Sequence[Item]) -> None:
        """Accept the items."""

    def shutdown(self) -> None:
        """Do nothing."""
