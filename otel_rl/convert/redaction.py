"""Redaction of secrets in free text, recognized by their format."""

from __future__ import annotations

import re

from otel_rl.convert.params import REDACTED

_WORD = "A-Za-z0-9_-"
_BASE64 = "A-Za-z0-9+/_-"  # a base64 image can contain any word of letters and digits
_BREAK = r"(?:\s|\\r|\\n)"  # a key in JSON has its line breaks escaped
_BARE = r"""[^\s"'`<>(){}\[\],;&|\\"""
_NAMES = {
    "password": "",
    "passwd": "",
    "passphrase": "",
    "pwd": "",
    "key": "api secret access private",
    "secret": "client app shared",
    "token": "access auth refresh session bearer api hf wandb github",
}


def _key(start: str, rest: str, inside: str = _WORD) -> tuple[str, str]:
    """Return the pattern of keys that begin with `start` at the start of a word."""
    return start, rf"(){start}(?<![{inside}]{start})(?:{rest})"


def _assigned(name: str, before: str) -> tuple[str, str]:
    """Return the pattern of a quoted text that is more than a word, or of an unquoted value with a digit.

    Calls, indices and attributes do not match, because these are code.
    """
    whole = "|".join(f"(?<={word}[ _-]{name})|(?<={word}{name})" for word in before.split())
    return name, (
        rf"({name}(?i:{whole})\\?[\"']?\s{{0,8}}(?::=|=>|=|:)\s{{0,8}}"
        rf"(?:\\?[\"'](?![<{{$%*.\[(])(?=[A-Za-z_]{{0,128}}[^A-Za-z_\s\"'\\])(?=[^\s\"'\\]{{4}})"
        rf"|(?![<{{$%*.\[(=]|\w{{1,64}}[(\[]|[A-Za-z_]\w{{0,64}}\.[A-Za-z_])(?={_BARE}0-9]{{0,128}}[0-9])(?={_BARE}]{{6}})))"
        rf"(?:(?<=[\"'])[^\s\"'\\]+|{_BARE}]+)"
    )


_SECRETS = tuple(
    (start, re.compile(pattern))
    for start, pattern in (
        (
            "-----BEGIN ",
            r"(-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----)"
            rf"(?:{_BREAK}{{1,4}}[A-Z][A-Za-z-]{{2,20}}: [^\n\\]{{0,200}}(?=[\n\\])){{0,4}}"
            rf"(?:{_BREAK}+[A-Za-z0-9+/=]{{16,}})+(?:{_BREAK}+[A-Za-z0-9+/=]{{1,15}})?",
        ),
        _key(  # keys of OpenAI and Anthropic mix cases and digits; other keys are hexadecimal
            "sk-",
            "(?=[a-z0-9_-]{0,64}[A-Z])(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,}"
            "|(?:or-v1-)?[0-9a-f]{32,64}(?![A-Za-z0-9_-])",
        ),
        _key("hf_", "[A-Za-z0-9]{30,}"),
        *(_key(f"gh{kind}_", "[A-Za-z0-9]{36,}") for kind in "pousr"),
        _key("github_pat_", "[A-Za-z0-9_]{22,}"),
        *(_key(start, "[A-Z0-9]{16}(?![A-Za-z0-9+/=_-])", _BASE64) for start in ("AKIA", "ASIA")),
        _key("xox", "[abeprs]-(?=[A-Za-z-]{0,20}[0-9])[A-Za-z0-9-]{10,}"),
        _key("AIza", "[A-Za-z0-9_-]{35}(?![A-Za-z0-9+/=_-])", _BASE64),
        _key("eyJ", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        *(
            (start, rf"({start}\s{{1,4}})(?=[A-Za-z._~+/-]{{0,128}}[0-9])[A-Za-z0-9._~+/-]{{16,}}=*")
            for start in ("Bearer", "bearer")
        ),
        *(
            (
                start,
                rf"({start}(?:[\s_:=\"'(,-]{{0,8}}(?i:login|api|key|token|is)){{0,4}}[\s_:=\"'(,-]{{1,8}})"
                r"[0-9a-f]{40}(?![0-9A-Za-z])",
            )
            for start in ("wandb", "WANDB")
        ),
        *(
            _assigned(spelled, before)
            for name, before in _NAMES.items()
            for spelled in (name, name.upper(), name.capitalize())
        ),
    )
)
"""Fixed text near the start of a secret, by which it is found quickly, and the pattern that begins with that text.

The first group of a pattern stays in the text. Each pattern runs in linear time.
"""


def redact(text: str) -> tuple[str, int]:
    """Replace secrets with "[redacted]"; return the text, and the number of secrets.

    It recognizes private keys in PEM, JSON Web Tokens, bearer tokens, the keys of OpenAI, Anthropic, Hugging Face,
    GitHub, AWS, Slack, Google and W&B, and values assigned to names such as `password`. The time is linear in the text.
    """
    total = 0
    for start, pattern in _SECRETS:
        if start in text:
            text, count = pattern.subn(rf"\g<1>{REDACTED}", text)
            total += count
    return text, total
