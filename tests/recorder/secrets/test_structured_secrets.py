"""Secrets in structures: URIs, keys of several lines, pairs, lists, and tuples with names."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from otel_rl.recorder.convert.params import flatten
from otel_rl.recorder.secrets import REDACTED, redact, without_secret_options

SECRET = "q7XbR2mK9vLw4TzP8"
LINES = ["MIIEowIBAAKCAQEAx5d8f0Q2hVZ3m1k9yqTt7cW4bNnL6rPzEoGsHuJvXiYaKdRl", "Zz9" * 20, "abcDEF123="]
PEM = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *LINES, "-----END RSA PRIVATE KEY-----", ""])
PGP = "\n".join(
    [
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "Version: GnuPG v2",
        "",
        *LINES,
        "=aB3x",
        "-----END PGP PRIVATE KEY BLOCK-----",
    ]
)


class Login(NamedTuple):
    """A tuple with names."""

    user: str
    password: str


def test_at_signs_in_a_password() -> None:
    """The last @ of a URI ends the password."""
    assert redact("https://user:pw@with@at@host/x") == (f"https://user:{REDACTED}@host/x", 1)


@pytest.mark.parametrize("pem", [PEM, PGP], ids=["PEM", "PGP"])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda pem: json.dumps({"a": pem}),
        lambda pem: json.dumps(json.dumps({"a": pem})),
        lambda pem: json.dumps(json.dumps(json.dumps({"a": pem}))),
        lambda pem: json.dumps(pem.split("\n")),
        lambda pem: json.dumps(pem.split("\n"), indent=2),
        lambda pem: repr(pem.split("\n")),
    ],
    ids=["lines", "JSON", "twice", "three times", "list", "indented", "repr"],
)
def test_private_keys(pem: str, spell: Any) -> None:
    """No line of a private key stays, however often the text was encoded, or if it is a list of lines."""
    found = redact(spell(pem))[0]

    assert not [line for line in (*LINES, "=aB3x") if line in found]
    assert "-----END" in found


def test_private_key_as_a_list() -> None:
    """Parameters that are the lines of a private key are removed; what follows them stays."""
    found = flatten({"lines": [*PEM.strip().split("\n"), "after"]})

    assert [found[f"lines.{n}"] for n in range(1, 4)] == [REDACTED] * 3
    assert found["lines.5"] == "after"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('password="two words"', f'password="{REDACTED}"'),
        ("{'db_password': 'three short words', 'n': 1}", f"{{'db_password': '{REDACTED}', 'n': 1}}"),
        ('[{"name": "DB_PASSWORD", "value": "hunter"}]', f'[{{"name": "DB_PASSWORD", "value": "{REDACTED}"}}]'),
        ('[{"name": "reward", "value": "hunter"}]', None),
        (f"secret={SECRET}", f"secret={REDACTED}"),
        (f"token={SECRET} x", f"token={REDACTED} x"),
        (f"Token: {SECRET}", f"Token: {REDACTED}"),
        ("token=batch.input_ids1 token=input_ids_2d_padded token: meta-llama/Llama-3.1-8B-Instruct", None),
        ("curl -s -u me:hunter https://host", f"curl -s -u me:{REDACTED} https://host"),
        ("curl https://host --user 'me:hunter'", f"curl https://host --user 'me:{REDACTED}'"),
        ("docker run -u 1000:1000 image", None),
        ('print("password:", x, "two words")', None),
    ],
)
def test_texts(text: str, expected: str | None) -> None:
    """Values with spaces, pairs, plain names with a key, and users of curl are found in texts."""
    assert redact(text)[0] == (text if expected is None else expected)


def test_pairs() -> None:
    """The value of a pair is removed, if the pair is a mapping or a list of two texts."""
    assert flatten({"env": [{"name": "DB_PASSWORD", "value": "hunter"}]})["env.0.value"] == REDACTED
    assert flatten({"env": [{"name": "reward", "value": "hunter"}]})["env.0.value"] == "hunter"
    assert without_secret_options(["X-Api-Key", SECRET]) == ["X-Api-Key", REDACTED]
    assert without_secret_options(["token", "sequence"]) == ["token", "sequence"]


def test_named_tuples() -> None:
    """Fields of a tuple with names are found by their names."""
    assert flatten({"login": Login("me", "hunter")}) == {"login.user": "me", "login.password": REDACTED}
