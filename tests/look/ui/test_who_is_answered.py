"""Whom the page answers, and what everybody gets."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, served

_SECRET = "a-run-that-nobody-may-see"


@pytest.fixture
def page(tmp_path: Path):  # type: ignore[no-untyped-def] # a generator of the page
    record(tmp_path / _SECRET, Shape(steps=2, project=_SECRET))
    with served(tmp_path) as one:
        yield one


def test_without_a_token(page: Served) -> None:
    """Everybody gets the page without a word of any run; whatever it asks for needs the token."""
    shell = page.get("/", token="")
    refused = [page.get(path, token=token) for path in ("/runs", "/runs?cursor=") for token in ("", "x" * 43)]

    assert shell.status == 200
    assert _SECRET.encode() not in shell.body
    assert page.token.encode() not in shell.body
    assert {reply.status for reply in refused} == {401}
    assert not [reply for reply in refused if _SECRET.encode() in reply.body]


@pytest.mark.parametrize("path", ["//", "/runs/", "/../runs", "/%2e%2e/etc/passwd", "/run", "/favicon.ico", "/runs\\"])
def test_no_other_path(page: Served, path: str) -> None:
    """There are no files below the server: another path is nothing, with the token too."""
    assert page.get(path).status == 404
    assert page.get(path, token="").status == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_no_other_method(page: Served, method: str) -> None:
    """The page only reads; a request of another site is one that asks first, and gets no leave."""
    reply = page.get("/runs", method=method, Origin="http://evil.example")

    assert reply.status == 405
    assert "access-control-allow-origin" not in reply.headers


def test_a_page_of_a_stranger(page: Served) -> None:
    """A name that leads to this machine, and another site, get the shell at most; who frames it is on this machine."""
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert page.get("/runs", token="", **headers).status == 401
    shell = page.get("/", token="", Host="evil.example")

    assert "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*" in shell.headers["content-security-policy"]
    assert shell.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in unescape(shell.body.decode())


def test_a_forwarded_port(page: Served) -> None:
    """With the token, the name of the host is anything: that of a proxy, of a tunnel, of a container."""
    assert page.get("/runs", Host="laptop.example:1234").status == 200


def test_a_long_query(page: Served) -> None:
    """It is refused with the reason, not read."""
    reply = page.get("/runs?cursor=" + "x" * 9000)

    assert reply.status == 400
    assert b"8,192" in reply.body
