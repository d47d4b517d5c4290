"""The page of licenses."""

from __future__ import annotations

import sys
from importlib.metadata import version

import pytest

from tests.deploy.test_locks import locked
from tests.docs.licenses_page import PAGE, packages, page
from tests.docs.snippets import ROOT


def is_locked() -> bool:
    """Tell whether the installed versions are those of the lock, as far as they matter here."""
    lock = locked(ROOT / ".ci" / "constraints.txt", f"{sys.version_info[0]}.{sys.version_info[1]}")
    return all(version(name).partition("+")[0] == str(lock.get(name)) for name in packages() if name != "otel-rl")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not is_locked(), reason="not the locked versions, on Python 3.11"
)
def test_the_page_is_what_the_packages_say() -> None:
    """`docs/evidence/licenses.md` is what `python -m tests.docs.licenses_page` writes."""
    assert PAGE.read_text() == page(), "run: python -m tests.docs.licenses_page"


def test_the_page_has_every_package() -> None:
    """Whatever is needed to run is in the table; newer versions than the locked ones can need more packages."""
    listed = {
        line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines() if line.startswith("| ")
    }

    assert {"msgspec", "tornado", "wandb", "mlflow", "torch"} <= listed
    if sys.version_info[:2] == (3, 11) and is_locked():
        assert set(packages()) - listed == set()
