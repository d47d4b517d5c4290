"""Secrets in the columns of tables, and values that are not next to their name."""

from __future__ import annotations

import pytest

from otel_rl.recorder.secrets import REDACTED, redact

SECRET, OTHER = "q7XbR2mK9vLw4TzP8", "Zk3vN8pQ1sW6yB4dH"
FOUND = {
    "psql": f" id |  token  \n----+---------\n  1 | {SECRET}\n  2 | {OTHER}\n(2 rows)\n",
    "mysql": f"+------+----+\n| user | password |\n+------+----+\n| ada | {SECRET} |\n| bob | {OTHER} |\n+---+",
    "markdown": f"| name | API key |\n|---|---|\n| ada | `{SECRET}` |\n| bob | `{OTHER}` |\n",
    "rich": f"┏━━━━━┳━━━━━┓\n┃ name ┃ api_key ┃\n┡━━━━━╇━━━━━┩\n│ ada │ {SECRET} │\n│ bob │ {OTHER} │\n└──┴──┘",
    "CSV": f'id,"api_key",role\n1,"{SECRET}",admin\n2,{OTHER},user\n',
    "semicolons": f"name;secret_key\nada;{SECRET}\nbob;{OTHER}\n",
    "tabs": f"name\tpassword\nada\t{SECRET}\nbob\t{OTHER}\n",
    "pandas": f"   name             api_key\n0   ada  {SECRET}\n1   bob  {OTHER}\n",
    "HTML": "<table><tr><th>name</th><th>token</th></tr>"
    f"<tr><td>a</td><td>{SECRET}</td></tr><tr><td>b</td><td>{OTHER}</td></tr></table>",
    "HTML of pandas": "<thead>\n  <tr style='x'>\n    <th></th>\n    <th>token</th>\n  </tr>\n</thead>\n"
    f"<tr>\n  <th>0</th>\n  <td>{SECRET}</td>\n</tr>\n  <tr>\n <th>1</th>\n <td>{OTHER}</td>\n</tr>\n",
    "YAML below a name": f"auth:\n  token:\n    value: {SECRET}\ndb:\n  password:\n    kind: s\n    value: {OTHER}\n",
    "YAML blocks": f"password: |\n  {SECRET}\napi_key: >-\n  {OTHER}\n",
    "Kubernetes": f"env:\n- name: API_KEY\n  value: {SECRET}\n- value: {OTHER}\n  name: DB_PASSWORD\n",
    "pairs": f'[{{"name": "API_KEY", "value": "{SECRET}"}}, {{"Name": "DB_PASSWORD", "a": "b", "Value": "{OTHER}"}}]',
    "pairs turned": f'[{{"value": "{SECRET}", "name": "API_KEY"}}, {{"variable": "HF_TOKEN", "value": "{OTHER}"}}]',
    "JSON inside of a name": f'{{"token": {{"value": "{SECRET}"}}, "password": {{"type": "x", "value": "{OTHER}"}}}}',
    "attributes": f"Variable(name='API_KEY', value='{SECRET}') <add key=\"ApiKey\" value=\"{OTHER}\"/>",
}
HARMLESS = {
    "tokens": "| token | logprob |\n|---|---|\n| the | -0.3 |\n| Qwen2.5 | -0.5 |\n",
    "counts": "step,max_tokens,reward\n1,2048,0.5\n2,4096,0.7\n",
    "English": "a password, as in the book\nwas typed, hunter2\n",
    "words": "name,token,key\nfirst,second2,third3-of-three\n",
    "placeholders": "| parameter | api_key |\n|---|---|\n| vllm | EMPTY |\n| judge | sk-no-key-required |\n",
    "metrics": "    name  pass@1\n0  gsm8k   0.71\n1  math500  0.43\n",
    "keys and values": "key\tvalue\nmodel\tQwen2.5-7B-Instruct\n",
    "another table": f"name,password\n\nname,run\nada,{SECRET}\n",
    "next to the name": "auth_token:\nvalue: sha256abc123\n",
    "a dictionary": '{"name": "model", "value": "Qwen2.5-7B"}, {"tokenizer": {"value": "Qwen2.5-7B"}}',
    "a default": "max_tokens:\n  default: 128000\ntokenizer:\n  default: Qwen/Qwen2.5-7B\n",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_found(text: str) -> None:
    """Both secrets are removed, and nothing else."""
    found, number = redact(text)

    assert number >= 2
    assert found == text.replace(SECRET, REDACTED).replace(OTHER, REDACTED)


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_harmless(text: str) -> None:
    """A column whose name is not that of a secret, words, and numbers stay."""
    assert redact(text) == (text, 0)


def test_many_headers() -> None:
    """A text of which each line could be a header is not searched again for each of them."""
    text = "name,password\n" * 100_000

    assert redact(text) == (text, 0)
