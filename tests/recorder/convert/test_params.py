"""Hyper-parameters: flat, plain, and without secrets."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import pathlib
import types

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.params import REDACTED, flatten


class Kind(enum.Enum):
    """A choice."""

    GRPO = "grpo"


@dataclasses.dataclass
class Optimizer:
    """A dataclass, as trainers have them."""

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)


class Model(msgspec.Struct):
    """A msgspec struct."""

    name: str = "gpt"
    layers: int = 2


class Config:
    """An object with `to_dict`, as Transformers' configurations are."""

    def to_dict(self) -> dict[str, object]:
        """Return the fields."""
        return {"hidden": 64, "optimizer": Optimizer()}


class Fields:
    """An object of a script's own."""

    def __init__(self) -> None:
        self.lr, self._cache = 0.1, 1


class Text:
    """An object with a text only."""

    def __str__(self) -> str:
        return "a text"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"lr": 1e-6, "n": 4, "on": True, "name": "x", "none": None}, None),
        ({"a": {"b": {"c": 1}}, "d": 2}, {"a.b.c": 1, "d": 2}),
        (
            {"layers": [1, [2, 3]], "pair": (4, 5)},
            {"layers.0": 1, "layers.1.0": 2, "layers.1.1": 3, "pair.0": 4, "pair.1": 5},
        ),
        ({1: {2: "x"}}, {"1.2": "x"}),
        (Optimizer(), {"lr": 1e-6, "betas.0": 0.9, "betas.1": 0.999}),
        ({"optimizer": Optimizer()}, {"optimizer.lr": 1e-6, "optimizer.betas.0": 0.9, "optimizer.betas.1": 0.999}),
        (argparse.Namespace(lr=0.1, model=Model()), {"lr": 0.1, "model.name": "gpt", "model.layers": 2}),
        (types.SimpleNamespace(lr=0.1, model=types.SimpleNamespace(layers=2)), {"lr": 0.1, "model.layers": 2}),
        (Fields(), {"lr": 0.1}),
        (Config(), {"hidden": 64, "optimizer.lr": 1e-6, "optimizer.betas.0": 0.9, "optimizer.betas.1": 0.999}),
        (types.MappingProxyType({"a": types.MappingProxyType({"b": 1})}), {"a.b": 1}),  # as OmegaConf's, no dicts
        ({"a": collections.deque([1]), "b": collections.UserList([2])}, {"a.0": 1, "b.0": 2}),
        (
            {"kind": Kind.GRPO, "path": pathlib.Path("/x"), "it": Text()},
            {"kind": "Kind.GRPO", "path": "/x", "it": "a text"},
        ),
        ({"class": Optimizer, "bytes": b"x", "range": range(3)}, None),
    ],
)
def test_flat(config: object, expected: dict[str, object] | None) -> None:
    """Whatever holds fields is looked into, and what is left is plain or a text."""
    if expected is None:
        assert isinstance(config, dict)
        plain = (bool, int, float, str, types.NoneType)
        expected = {name: value if type(value) in plain else str(value) for name, value in config.items()}

    assert expected == flatten(config)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.text("xyz", min_size=1)


@given(
    st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=20,
    )
)
def test_leaves(config: object) -> None:
    """Every plain value in a nest of lists and mappings is there once, in order, and nothing else."""

    def leaves(value: object) -> list[object]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        if isinstance(value, list):
            return [leaf for item in value for leaf in leaves(item)]
        return [value]

    assert leaves({"x": config}) == list(flatten({"x": config}).values())


SECRETS = (
    *("api_key", "apikey", "OPENAI_API_KEY", "wandb_api_key", "openaiApiKey", "x-api-key", "api_keys"),
    *("hf_token", "HF_TOKEN", "hub_token", "push_to_hub_token", "access_token", "accessToken", "auth_token", "token"),
    *("github_token", "wandb_token", "session_token", "refresh-token"),
    *("password", "db_password", "dbPassword", "passwd", "ssh_passphrase"),
    *("secret", "client_secret", "secrets", "aws_secret_access_key", "aws_access_key_id", "private_key"),
    *("credentials", "credential", "auth", "Authorization", "cookie"),
)
NO_SECRETS = (
    *("max_tokens", "num_tokens", "max_new_tokens", "tokens", "total_tokens", "tokens_per_second", "max_token_len"),
    *("pad_token_id", "eos_token_id", "eos_token", "pad_token", "bos_token", "mask_token", "image_token", "stop_token"),
    *("tokenizer", "tokenizer_path", "token_level_reward", "loss_per_token", "kl_per_token", "hf_tokens"),
    *("author", "authors", "key", "keys", "monkey", "passes", "pass_at_k", "compass", "api", "access", "private"),
)


@pytest.mark.parametrize("name", SECRETS)
def test_secret(name: str) -> None:
    """A value whose name says that it is a secret is not shown, on its own or in a nest."""
    secret = "hunter2"

    assert {name: REDACTED, f"a.0.{name}": REDACTED} == flatten({name: secret, "a": [{name: secret}]})


@pytest.mark.parametrize("name", NO_SECRETS)
def test_no_secret(name: str) -> None:
    """A name that only resembles a secret's is shown."""
    assert {name: "</s>"} == flatten({name: "</s>"})


def test_what_a_secret_holds() -> None:
    """Everything under a secret's name is hidden, its keys included."""
    config = {"credentials": {"user": "me", "word": "hunter2"}, "api_keys": ["hunter2"]}

    assert flatten(config) == {"credentials": REDACTED, "api_keys": REDACTED}


def test_long_text() -> None:
    """A long text is cut."""
    flat = flatten({"prompt": "x" * 10_000, "object": [b"x" * 10_000]})

    assert [len(str(text)) for text in flat.values()] == [2000, 2000]


def test_input_is_left_alone() -> None:
    """Flattening does not change its argument."""
    config = {"api_key": "hunter2", "a": {"b": [1]}}
    flatten(config)

    assert config == {"api_key": "hunter2", "a": {"b": [1]}}
