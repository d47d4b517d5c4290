"""The page about the clients of the bridge."""

from __future__ import annotations

from tests.clients.page import HEAD, PAGE
from tests.clients.programs import CLIENTS


def test_the_page_has_every_client() -> None:
    """A line for each client, protocol and compression, as `python -m tests.clients.page` wrote it; none is doubled."""
    lines = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("|")][2:]

    assert PAGE.read_text().startswith(HEAD)
    assert [tuple(line[:3]) for line in lines] == [(client.name, *way) for client in CLIENTS for way in client.ways]
    assert {tuple(line[-2:]) for line in lines} == {("0", "yes")}
