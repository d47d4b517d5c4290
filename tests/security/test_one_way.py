"""Files are created in one way only, since the mode of each is decided where it is created."""

from __future__ import annotations

import re
from pathlib import Path

import otel_rl

_HOME = Path(otel_rl.__file__).parents[1]
_CREATES = re.compile(
    r"\.mkdir\(|\.write_(text|bytes)\(|makedirs\(|[.(]open\([^)]*\"[wax]b?\"\)|os\.open\([^)]*O_CREAT"
)
_OWN = {
    "otel_rl/journal/modes.py",
    "otel_rl/journal/own_files.py",  # a probe, which is removed at once
    "otel_rl/setup/private_directories.py",  # directories of mode 0700, whatever `share` is
    "otel_rl/setup/tokens.py",  # a file of the user, of mode 0600
    "otel_rl/cli/stack.py",  # a process with a umask of its own
    "otel_rl/demo/grpo.py",  # the same
    "otel_rl/testing.py",  # inside of a temporary directory of mode 0700
}


def test_files_are_created_in_one_way() -> None:
    """Elsewhere, the umask of the user would decide who reads them."""
    sources = [*(_HOME / "otel_rl").rglob("*.py"), *(_HOME / "exporters").rglob("*.py")]
    found = {str(path.relative_to(_HOME)) for path in sources if _CREATES.search(path.read_text())}

    assert found == _OWN
