"""Every exporter that a user can name, from the entry points: a new one is in the tests of all by existing."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from otel_rl.export import ENTRY_POINT_GROUP
from otel_rl.recorder.delivery.plugins import find, public
from tests.real_parts import given

EVERY_EXPORTER = [name for name in public(ENTRY_POINT_GROUP) if name not in ("command", "webhook")]
"""All but reactions to events, which need an argument: see `test_reactions`."""
OFFLINE = {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline"}
"""Environment in which none of them needs a server."""


def needs_packages(*exporters: str) -> pytest.MarkDecorator:
    """Mark a test that needs the packages of exporters."""
    packages = [module for name in exporters for module in getattr(find(ENTRY_POINT_GROUP, name), "requires", ())]
    missing = [module for module in packages if find_spec(module) is None]
    return given(", ".join(missing), present=not missing)


needs_every_package = needs_packages(*EVERY_EXPORTER)
