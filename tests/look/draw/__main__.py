"""`python -m tests.look.draw pages` draws screenshots for the docs; `… runs [FOLDER]` of seven real runs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.look.draw import for_docs, runs, screens, sheet

_FOLDER = Path("dist") / "screens"
"""The folder of the screenshots of runs, which are not committed."""


def main(what: str = "", folder: Path = _FOLDER) -> None:
    """Draw what is named."""
    if what == "pages":
        for_docs.draw()
    elif what == "runs":
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, runs.recorded(Path(name)) as places:
            screens.draw(places, folder)
        sheet.draw(folder, for_docs.IMAGES)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(Path, sys.argv[2:]))
