"""Collects the tests of dashboards where Grafana's SDK is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

collect_ignore_glob: list[str] = []
if find_spec("grafana_foundation_sdk") is None and os.environ.get("REQUIRE_REAL_PARTS") != "1":
    collect_ignore_glob = ["test_*.py"]
