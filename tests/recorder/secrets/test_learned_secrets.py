"""Values of secret variables: every form and every line of them is found in texts."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

import pytest

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.secrets import REDACTED, redact

LINES = "first1line2of3secret\nl2secret9999zzz\nshort1\n"
ACCOUNT = json.dumps(
    {"type": "service_account", "private_key": "-----BEGIN X-----\nQ7bR2mK9vLw4TzP8\nz8PzT4wLv9Km2Rb7\n"}
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Leave the built-in rules."""
    yield
    redaction.begin()


@pytest.mark.parametrize(
    "text",
    [
        LINES,
        LINES.strip(),
        json.dumps({"a": LINES}),
        json.dumps(json.dumps({"a": LINES})),
        repr({"a": LINES}),
        "only l2secret9999zzz of them",
        "first1line2of3secret",
    ],
)
def test_lines(text: str) -> None:
    """A value of several lines is found as it is, in JSON, as Python prints it, and line by line."""
    redaction.begin(environ={"DEPLOY_SECRET": LINES})

    found = redact(text)[0]
    assert REDACTED in found
    assert "l2secret9999zzz" not in found
    assert "first1line2of3secret" not in found


def test_final_line_end() -> None:
    """A line end behind the value, as a file has it, does not hide the value."""
    redaction.begin(environ={"API_KEY": "aaaa1111bbbb2222\n"})

    assert redact("it is aaaa1111bbbb2222.") == (f"it is {REDACTED}.", 1)


def test_service_account() -> None:
    """The key in the JSON text of a service account is found without the rest, also decoded."""
    redaction.begin(environ={"GOOGLE_CREDENTIALS": ACCOUNT})

    for text in (ACCOUNT, json.loads(ACCOUNT)["private_key"], "Q7bR2mK9vLw4TzP8", f"x {'z8PzT4wLv9Km2Rb7'} y"):
        found = redact(text)[0]
        assert "Q7bR2mK9vLw4TzP8" not in found
        assert "z8PzT4wLv9Km2Rb7" not in found


@pytest.mark.parametrize("before", range(4))
def test_base64_at_each_alignment(before: int) -> None:
    """The value is found in base64 behind any number of other bytes, such as a user's name."""
    value = "q7XbR2mK9vLw4TzP8?~\xff"
    redaction.begin(environ={"API_KEY": value})

    encode = [base64.b64encode, base64.urlsafe_b64encode]
    for one in encode:
        encoded = one(b"u" * before + value.encode() + b":end").decode()
        assert len(redact(encoded)[0].replace(REDACTED, "")) <= before * 2 + 10


def test_the_longest_first() -> None:
    """Of two secrets, of which one begins like the other, both are removed whole."""
    redaction.begin(environ={"API_KEY": "aaaa1111bbbb", "OTHER_API_KEY": "aaaa1111bbbb2222"})

    assert redact("aaaa1111bbbb2222") == (REDACTED, 1)


def test_vendor_variables() -> None:
    """Variables of services that end in `_KEY` or `_CREDS` are secrets if they look like one."""
    redaction.begin(environ={"OPENAI_KEY": "q7XbR2mK9vLw4TzP8", "AWS_CREDS": "aaaa1111bbbb2222", "HF_KEY": "text"})

    assert redact("q7XbR2mK9vLw4TzP8 aaaa1111bbbb2222 text")[0] == f"{REDACTED} {REDACTED} text"


def test_many_variables() -> None:
    """Each of 1,000 secret variables is found: there is no limit."""
    values = [f"{n:04}q7XbR2mK9vL" for n in range(1000)]
    redaction.begin(environ={f"SERVICE{n}_API_KEY": value for n, value in enumerate(values)})

    assert all(redact(f"it is {value}")[1] == 1 for value in values)


@pytest.mark.parametrize(
    "encode",
    [
        quote_plus,
        lambda secret: quote(secret, safe="").lower(),
        html.escape,
        lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    ],
)
def test_a_value_as_other_programs_write_it(encode: Callable[[str], str]) -> None:
    """Forms of URLs, lower case in their escapes, HTML, and JSON with escaped slashes are found."""
    redaction.begin(environ={"DEPLOY_SECRET": "q7xb r2&m9/lw4+zp8"})

    assert redact(f"a {encode('q7xb r2&m9/lw4+zp8')} b")[0] == f"a {REDACTED} b"
