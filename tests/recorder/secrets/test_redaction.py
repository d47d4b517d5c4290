"""Redaction of texts: every kind of secret is found, wherever it stands, and nothing else."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator

import pytest

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import shown, text_of
from otel_rl.recorder.secrets import REDACTED, redact, without_secret, without_secret_options
from otel_rl.recorder.secrets.growth import slow_text
from otel_rl.recorder.secrets.rules import KEY_RULES, RULES, SHORTEST_KEY
from tests.recorder.secrets.samples import samples, texts_with_secrets

SAMPLES = samples()
FRAMES = ("{}", "it is {} or not", 'say "{}"', "{{'a': '{}', 'b': 1}}", "failed:\n  {}\n  at line 3", "ключ {} 鍵")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Begin with the built-in rules, and leave them."""
    redaction.begin()
    yield
    redaction.begin()


@pytest.mark.parametrize("frame", FRAMES)
def test_each_kind_is_found(frame: str) -> None:
    """A secret is found in prose, quotes, a mapping's text, several lines and other scripts; once is enough."""
    for sample in SAMPLES:
        found, count = redact(frame.format(sample.text))

        assert count >= 1, sample.kind
        assert sample.secret not in found, sample.kind
        assert redact(found) == (found, 0), sample.kind


UNKNOWN = {"Discord, bot", "Kaggle, file", "Mailchimp", "Mailgun", "Twilio, key"}
"""Kinds that stay, because nothing in them or before them is fixed; docs/reference/redaction.md lists them."""


@pytest.mark.parametrize("seed", range(3))
def test_kinds_of_services(seed: int) -> None:
    """Secrets of services, files and commands are found, in a line, prose and quotes."""
    for sample in texts_with_secrets(seed):
        for frame in FRAMES[:3]:
            is_found = sample.secret not in redact(frame.format(sample.text))[0]
            assert is_found != (sample.kind in UNKNOWN), sample.kind


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train.py", "--api-key", "hunter2", "--lr", "1"], ["train.py", "--api-key", REDACTED, "--lr", "1"]),
        (["--api-key=hunter2", "--api_key=x"], [f"--api-key={REDACTED}", f"--api_key={REDACTED}"]),
        (["--hf-token", "x", "--max-tokens", "512"], ["--hf-token", REDACTED, "--max-tokens", "512"]),
        (["--wandb.api_key", "x"], ["--wandb.api_key", REDACTED]),
        (["--password", "--verbose", "x"], ["--password", "--verbose", "x"]),
        (["--tokenizer", "gpt2", "--secret-length", "4"], ["--tokenizer", "gpt2", "--secret-length", "4"]),
        (["--password", None, "--token", True], ["--password", None, "--token", True]),
    ],
)
def test_command_lines(arguments: list[object], expected: list[object]) -> None:
    """In a command line the value of a secret's option is removed, however simple it is."""
    assert without_secret_options(arguments) == expected
    assert without_secret("argv", arguments) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python train.py --api-key a1b2c3 --lr 1e-6", f"python train.py --api-key {REDACTED} --lr 1e-6"),
        ("['--hf-token', 'a1b2c3']", f"['--hf-token', '{REDACTED}']"),
        ("train --max-tokens 4096 --tokenizer Qwen/Qwen3-8B", None),
        ("use --password to set the password", None),
        ("postgresql://me:p%40ss@db/runs", f"postgresql://me:{REDACTED}@db/runs"),
        ("http://localhost:4318/v1/traces and http://[::1]:80/@x", None),
        ("ssh://git@github.com:22/org/repo and user@example.com", None),
        ("https://x/blob?sv=2024&sig=aB3%2Fx9aB3x9%3D&se=1", f"https://x/blob?sv=2024&sig={REDACTED}&se=1"),
        ("https://x/?page=3&monkey=1234567890&key=temperature", None),
        ("Cookie: session=abcdef123; theme=dark", f"Cookie: {REDACTED}"),
        ("A cookie: it is made of 200 g of flour", None),
        ("authorization: required; basic instructions", None),
        ("{'Authorization': 'Basic dXNlcjpwYXNz='}", f"{{'Authorization': 'Basic {REDACTED}'}}"),
    ],
)
def test_surroundings(text: str, expected: str | None) -> None:
    """Passwords of URIs, options, signatures and headers go; what only resembles them stays."""
    assert redact(text)[0] == (text if expected is None else expected)


def test_own_patterns() -> None:
    """Patterns and names of the user are added to the rules."""
    redaction.begin(patterns=[r"ACME-\d{6}"], names=["*_badge", "pet"])

    assert redact("badge ACME-123456 of ACME-12") == (f"badge {REDACTED} of ACME-12", 1)
    assert without_secret("door_badge", "rex") == REDACTED
    assert without_secret("door.Pet", "rex") == REDACTED
    assert without_secret("carpet", "rex") == "rex"


def test_values_of_the_environment() -> None:
    """The value of a variable with a secret's name is redacted in every text, also encoded, whatever its format is."""
    value = "q7" + os.urandom(8).hex() + "/+"
    redaction.begin(environ={"ACME_API_KEY": value, "EDITOR": "/usr/bin/vi1234567890"})

    text = f"{value} https://x/{value.replace('/', '%2F').replace('+', '%2B')} /usr/bin/vi1234567890"
    assert redact(text)[0] == f"{REDACTED} https://x/{REDACTED} /usr/bin/vi1234567890"


def test_simple_values_are_not_learned() -> None:
    """A password that is a word, a short text or a path does not make that word disappear everywhere."""
    redaction.begin(environ={"PASSWORD": "default", "API_KEY": "true1", "SSH_AUTH": "/tmp/agent.1234567"})

    assert redact("default true1 /tmp/agent.1234567")[1] == 0


def test_texts_of_objects() -> None:
    """The texts that messages are made of have no secrets, even if a cut goes through one."""
    sample = next(one for one in SAMPLES if "ghp_" in one.secret)

    assert text_of(ValueError(f"invalid {sample.secret}")) == f"invalid {REDACTED}"
    assert shown({"a": sample.secret}) == f"{{'a': '{REDACTED}'}}"
    assert sample.secret[:12] not in text_of("." * 4080 + " " + sample.secret)


def test_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Messages and tracebacks of otel-rl's loggers have no secrets."""
    sample = next(one for one in SAMPLES if "ghp_" in one.secret)
    logger = log_of("otel_rl.tests.errors")
    try:
        raise ValueError(sample.secret)
    except ValueError:
        with caplog.at_level(logging.INFO):
            logger.exception("it failed with %s", sample.secret)

    assert sample.secret not in caplog.text
    assert caplog.text.count(REDACTED) == 2


def test_each_pattern_begins_with_what_stays() -> None:
    """Each pattern compiles, and has a first group."""
    for rule in RULES:
        assert re.compile(rule.pattern).groups >= 1, rule.start


def test_keys_are_long_enough() -> None:
    """No key is shorter than the words of a text in which keys are looked for."""
    for rule in KEY_RULES:
        assert re._parser.parse(rule.pattern).getwidth()[0] >= SHORTEST_KEY, rule.start  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", dict.fromkeys(rule.pattern for rule in RULES))
def test_no_pattern_is_slow(pattern: str) -> None:
    """No pattern takes more than linear time for what it repeats, if the end of a secret is missing."""
    assert slow_text(pattern, longest=1 << 13, most_s=0.05) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\x1b[32m", "\x1b[0m"),
        ("\\x1b[1;31m", "\\x1b[0m"),
        ("x\\n", "\\n"),
        ("\\\\t", ""),
        ("a%3D", "&b"),
        ("\\u003d", "\\u0022"),
        ("密钥", "吗"),
        ("/v1/", "/x"),
        ("my_", ""),
    ],
)
def test_a_key_behind_an_escape(before: str, after: str) -> None:
    """Colors of terminals, escapes of JSON and URLs, and words of other languages end with letters before a key."""
    whole = [one for one in texts_with_secrets(5) if one.text == one.secret and one.kind != "Azure OpenAI"]
    keys = [one.text for one in whole if redact(one.text)[1]]

    assert len(keys) > 80
    assert [key for key in keys if key in redact(f"{before}{key}{after}")[0]] == []


IN_WORDS_UNKNOWN = {
    # Words end as these begin.
    *("Modal, secret of a token", "SendGrid", "Airtable", "Lambda", "ModelScope", "Brave Search", "Voyage"),
    *("Azure OpenAI", "Alibaba Cloud", "Bitbucket"),  # of a fixed length, with `_` as one of their characters
}


@pytest.mark.parametrize("frame", ["x{}", "7{}", "step12{}", "Q{}", "{}_x", "{}-0", "p{}_x"])
def test_a_key_in_a_word(frame: str) -> None:
    """A key with a distinctive form is found behind a letter or a digit, and with a suffix, as in an id."""
    whole = [one for one in texts_with_secrets(6) if one.text == one.secret and redact(one.text)[1]]
    left = {one.kind for one in whole if one.text in redact(frame.format(one.text))[0]}

    assert len(whole) > 80
    assert left <= IN_WORDS_UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        "task-6vQ2mX9pLr4TzKb8Wn3YcJ7d",
        "mask_0123456789abcdef0123456789abcdef0123456789abcdef",
        "params-6f1e0a52-7c1f-4d5e-9a0b-0123456789ab",
        "html-aB3xY9Q0zTaB3xY9Q0zTaB3xY9Q0zT12",
        "monkey_Zx81Qw90As12Df34Gh56Jk78",
        "rfc-0123456789abcdef0123456789abcdef",
        "GATTACACCAGGATCCTTAGGCAATCGA",
        "armhf_ThisIsALongNameOfSomeOrdinaryThing",
        "QmFzZTY0IGRhdGEgd2l0aCBzb21lIEFLSUFBQkNERTEyMzRGR0hJAKIAABCDEF1234567890",
        "cache key: 0123456789abcdef0123456789abcdef01234567",
        "blob:\n  key: 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_a_word_that_ends_like_a_key_begins(text: str) -> None:
    """Names with an identity, sequences and base64 stay, though a part of them begins like a key."""
    assert redact(text) == (text, 0)


@pytest.mark.parametrize(
    "text",
    [
        "wandb login --relogin {}",
        "wandb login --host https://w.example.org --relogin {}",
        "wandb.login(key='{}')",
        "wandb.login(host='https://w.example.org', key='{}')",
        "wandb: {{key: {}}}",
        "key: {}",
        "aws configure set aws_secret_access_key {}",
        "aws configure set default.aws_secret_access_key {} --profile rl",
    ],
)
def test_hexadecimal_digits_that_are_called_a_key(text: str) -> None:
    """40 hexadecimal digits are a key where the program, or a line with nothing else, says so."""
    digits = "0a1b2c3d4e" * 4

    assert digits not in redact(text.format(digits))[0]


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["OPENAI_API_KEY"] = "{}"',
        'judge_api_key: str = "{}"',
        "- name: HF_TOKEN\n  value: {}\n",
        "ENV HF_TOKEN {}",
        "set -gx HF_TOKEN {}",
        "SLURM_JWT={}",
    ],
)
def test_a_key_that_is_assigned(text: str) -> None:
    """In code, YAML, images and shells, the name says that it is a secret."""
    assert "q7XbR2mK9vLw4TzP8" not in redact(text.format("q7XbR2mK9vLw4TzP8"))[0]
