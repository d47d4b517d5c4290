"""Names of secrets: what they hide, alone and together with their value, and what they leave."""

from __future__ import annotations

from typing import Any

import pytest

from otel_rl.recorder.convert.params import flatten
from otel_rl.recorder.secrets import REDACTED, hides, redact, without_secret_options
from tests.recorder.secrets.samples import names_of_secrets

SECRET = "q7XbR2mK9vLw4TzP8"
HEXADECIMAL = "0a1b2c3d4e" * 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("pass", value) for value in (2, "2", 0.4, "0.4", True, "compiled", "first")),
        *((name, 3) for name in ("num_pass", "pass@1", "eval/pass", "password", "api_key", "token", "cookies")),
        *((name, "off") for name in ("security_token", "auth", "password")),
        *((name, "compiled") for name in ("forward_pass", "backward_pass", "single_pass", "first_pass")),
        ("env.PWD", "/lustre/run1/q7XbR2mK9vLw4TzP8"),
        ("pwd", "/workspace"),
        ("signature", "f(x)"),
        ("signature", "(input_ids: Tensor, attention_mask2: Tensor)"),
        ("master_key", "addr"),
        ("license_key", "license"),
        ("token", "512"),
        ("session.id", "6f1e0a52-7c1f-4d5e-9a0b-0123456789ab"),
        ("session_id", "6f1e0a527c1f4d5e9a0b0123456789ab"),
        ("s3_key", "checkpoints/step-100"),
        ("wandb.key", "loss-2024-validation"),
        ("token_value", 0.5),
        ("wandb_commit", HEXADECIMAL),
        ("tokens.prompt", 512),
        *(("api_key", one) for one in ("sk-no-key-required", "not-needed", "token-abc123", "ollama", "sk-xxxx")),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/.config/gcloud/account.json"),
        ("aws_credentials", "s3://runs/credentials"),
        ("ssh_key", "~/.ssh/id_ed25519"),
        ("wandb_secret", "projects/rl/secrets/wandb/versions/1"),
        ("password", "env:DB_PASSWORD"),
        ("run_name", "sk-learn-baseline-20260101-lr3e5"),
    ],
)
def test_harmless(name: str, value: Any) -> None:
    """Numbers, switches, words and directories stay, even if the name resembles that of a secret."""
    assert flatten({name: value}) == {name: value}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "user_pass",
            "db_pass",
            "SMTP_PASS",
            "mail_pass",
            "redisPass",
            "wandb_key",
            "WANDB_KEY",
            "OPENAI_KEY",
            "hf_key",
        ),
        *("github_pat", "jwt", "bearer", "token_value", "AWS_CREDS", "master_key", "signature", "security_token"),
        *("wandb.key", "trackers.wandb.key", "api.key", "tokens.hf", "db.pass", "--wandb-key"),
    ],
)
def test_hidden(name: str) -> None:
    """A key is hidden under the names that services and frameworks use, and under the last two parts of a path."""
    assert hides(name, SECRET)


@pytest.mark.parametrize("name", names_of_secrets())
def test_names_of_services(name: str) -> None:
    """A key is hidden under each name that services, clouds, frameworks and files use."""
    assert flatten({name: SECRET}) == {name: REDACTED}


def test_items_of_lists() -> None:
    """The texts in a list have the name of the list."""
    assert flatten({"tokens": [SECRET, "sequence", 7]}) == {
        "tokens.0": REDACTED,
        "tokens.1": "sequence",
        "tokens.2": 7,
    }


def test_paths() -> None:
    """The last two names of a path together are the name of a secret."""
    config = {"wandb": {"key": SECRET}, "api": {"key": "hunter"}, "tokens": {"hf": SECRET, "prompt": 5}}

    assert flatten(config) == {"wandb.key": REDACTED, "api.key": REDACTED, "tokens.hf": REDACTED, "tokens.prompt": 5}


def test_wandb() -> None:
    """40 hexadecimal digits under any name with "wandb" are its key."""
    assert flatten({"use_wandb": HEXADECIMAL, "sha": HEXADECIMAL}) == {"use_wandb": REDACTED, "sha": HEXADECIMAL}


def test_long_session() -> None:
    """An id of a session that is longer than a UUID is that of a cookie."""
    assert flatten({"session_id": SECRET * 3}) == {"session_id": REDACTED}


def test_pass_beside_a_user() -> None:
    """The name `pass` next to the name of a user is a password, however simple it is."""
    assert flatten({"db": {"user": "me", "pass": "hunter"}})["db.pass"] == REDACTED
    assert flatten({"mail": {"username": "me", "pass": "hunter"}})["mail.pass"] == REDACTED
    assert flatten({"mode": "x", "pass": "hunter"})["pass"] == "hunter"


def test_command_line() -> None:
    """A number after `--token` is a count of tokens; a key after `--wandb-key` is a secret."""
    assert without_secret_options(["--token", "512", "--wandb-key", SECRET]) == [
        "--token",
        "512",
        "--wandb-key",
        REDACTED,
    ]
    assert without_secret_options([f"--wandb-key={SECRET}"]) == [f"--wandb-key={REDACTED}"]
    assert redact("train --token 4096") == ("train --token 4096", 0)


@pytest.mark.parametrize(
    "text",
    [
        "fw_LlamaV3p1Turbo8bInstructXyz",
        "sk-cuda-graph-kernel-fusion-enabled-v2-Fast",
        "sk-Llama-3-Instruct-Turbo-Model",
    ],
)
def test_words_are_no_key(text: str) -> None:
    """Words that begin like a key stay."""
    assert redact(text) == (text, 0)


@pytest.mark.parametrize(
    "value", ["hunter", "correct-horse-battery", "/q7XbR2mK9vLw4TzP8/x", "https://x/q7XbR2mK9vLw4TzP8"]
)
def test_a_password_like_a_word_or_a_path(value: str) -> None:
    """A password may be words; a path with a part that looks like a key is not harmless."""
    assert flatten({"db_password": value}) == {"db_password": REDACTED}


def test_texts_with_columns_and_addresses() -> None:
    """Tables of metrics, tags of chats, and ports of addresses stay."""
    for text in (
        "| token | logprob |\n|---|---|\n| hello | -0.25 |",
        "│ key │ value │\n│ loss │ 0.1234567 │",
        "<|im_start|>user\nIs 8 | 4 a pass?<|im_end|>",
        "http://engine:8000/v1/models sent by me@example.com",
        "mysql -h db -P 3306 -u me runs",
        "docker run -p 8000:8000 image",
    ):
        assert redact(text) == (text, 0)
