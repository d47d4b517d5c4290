"""The formats of secrets, as data.

`kept.json` has the rules of other projects, which `.ci/secret_rules` renews; here are those that they lack. The page
`docs/reference/redaction.md` lists all of them. Each pattern must take linear time: every repetition is bounded, or
cannot overlap with what follows it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import ascii_letters
from typing import NamedTuple

from otel_rl.recorder.secrets.names import OTHER_WORDS

KEPT: list[tuple[str, list[str], str]] = json.loads(Path(__file__).with_name("kept.json").read_bytes())["rules"]
"""Kinds, the fixed texts of which one is in every such secret, and patterns. `words` is the group of the secret."""


class Key(NamedTuple):
    """A key that begins with a fixed text."""

    kind: str  # the service, or the kind of secret
    starts: tuple[str, ...]  # the fixed texts, of which one begins the key
    rest: str  # the pattern of the rest of the key


class Assigned(NamedTuple):
    """A value that is recognized by what comes before it."""

    kind: str  # the kind of secret
    starts: tuple[str, ...]
    """The fixed texts in lower case, of which one is in every text that has such a secret, in any case."""
    pattern: str
    """The pattern. Its first group stays in the text, the rest of the match is removed. A group called `name` must be
    the name of a secret.
    """
    before: str  # the text in front of the secret in an example
    example: tuple[str, int] = ("aB3xY9Q-", 40)
    """A character sequence that is repeated in the secret of the example, and the number of characters."""
    after: str = ""  # the text behind the secret in the example


PROGRAMS = (
    (
        (
            "sshpass",
            "mongosh",
            "docker login",
            "podman login",
            "nerdctl login",
            "skopeo login",
            "registry login",
            "az login",
        ),
        "-p ",
    ),
    (("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "7z"), "-p"),
    (("redis-cli",), "-a "),
    (("redis-cli",), "--pass "),
    (("swanlab login", "openssl enc"), "-k "),
    (("ssh-keygen",), "-N "),
    (("sqlcmd", "zip"), "-P "),
    (("ldapsearch",), "-w "),
    (("wandb login", "vault login", "authtoken", "add-authtoken", "rclone obscure"), ""),
)
"""Programs, and the option before a password: with a space behind it unless the password follows at once."""


def _of_program(programs: tuple[str, ...], option: str) -> Assigned:
    name = "|".join(map(re.escape, programs))
    between = rf" (?:[^\n|;&]{{0,200}}? )?{option.strip()}{'[ =]' if option.endswith(' ') else ''}" if option else " "
    digit = "" if option else r"(?=[^\s\"']{0,64}[0-9])"
    return Assigned(
        f"password of {' or '.join(programs)}",
        (f" {option.lower()}",) if option else programs,
        rf"((?<![\w-])(?:{name}){between}[\"']?)(?![<{{$%*\[\s\"'-]){digit}[^\s\"'|;&]{{4,256}}",
        f"{programs[0]} {option}",
        ("aB3x", 12),
    )


_MIXED = "(?=[A-Z_-]{0,64}[a-z0-9])(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])"
_END = "(?![A-Za-z0-9])"
ENDS_OF_WORDS = {
    **dict.fromkeys(("sk-", "sk_"), "aeiourn"),
    **dict.fromkeys(("key-", "key_", "api-", "api_", "token-", "token_", "secret-", "secret_", "pat"), ascii_letters),
    **dict.fromkeys(("as-", "ms-", "ion_", "dp.", "sl.", "SG.", "API-", "BSA"), ascii_letters),
    **dict.fromkeys(("rk_test_", "sk_test_", "pat.", "sat.", "pha_", "phs_", "NF-"), "aeilmnoxyIBM"),
    "ak-": "aeloruy",
    "pk_": "denopsz",
    "pa-": "aeo",
    "fc-": "rs",
    "tml-": "hH",
    "dapi": "irn",
    **dict.fromkeys(("AKIA", "ico-", "phx_", "pscale_", "sqp_", "e2b_"), "Afsulg"),
}
"""Starts of keys with which words end, such as `task-` and `params-`, and the letters before them in these words."""


KEYS = (
    Key(
        "OpenAI and services with its interface",  # keys mix cases and digits, or have 32 small letters and digits
        ("sk-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-ant-", "sk-or-v1-", "sk-lf-"),
        "(?:(?=[a-z0-9_-]{0,64}[A-Z])(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,}"
        f"|(?:or-v1-|lf-)?[0-9a-f-]{{32,64}}{_END}|(?=[a-z]{{0,31}}[0-9])[a-z0-9]{{32}}{_END})",
    ),
    Key(
        "key that begins with a word for a key",  # not with hexadecimal digits alone: that may be the key of a cache
        tuple(f"{word}{mark}" for word in ("sk", "api", "key", "secret", "token") for mark in "_-"),
        f"(?=[A-Za-z]{{0,64}}[0-9])(?=[0-9A-Fa-f]{{0,64}}[G-Zg-z])[A-Za-z0-9]{{24,}}{_END}",
    ),
    Key("Langfuse", ("pk-lf-",), "[0-9a-f-]{36}"),
    Key("Hugging Face, organization", ("api_org_",), "[A-Za-z0-9]{30,}"),
    Key("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), "[A-Z0-9]{16}(?![=A-Za-z0-9+])"),
    Key("AWS session token", ("IQoJb3JpZ2lu",), "[A-Za-z0-9+/]{64,}={0,2}"),
    Key("JSON Web Token", ("eyJ",), r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    Key("W&B", ("wandb_v1_",), "[A-Za-z0-9_]{20,}"),
    Key("NVIDIA", ("nvapi-",), "[A-Za-z0-9_-]{40,}"),
    Key("Replicate", ("r8_",), "[A-Za-z0-9]{30,}"),
    Key("Fireworks", ("fw_",), f"{_MIXED}[A-Za-z0-9]{{22,}}"),
    Key("LangSmith", ("lsv2_pt_", "lsv2_sk_"), "[0-9a-f]{32}_[0-9a-f]{10}"),
    Key("Pinecone", ("pcsk_",), "[A-Za-z0-9_]{20,}"),
    Key("RunPod", ("rpa_",), "[A-Z0-9]{30,}[a-z0-9]{0,10}"),
    Key("Honeycomb", ("hcaik_", "hcamk_", "hcxik_"), "[A-Za-z0-9]{20,}"),
    Key("Supabase, secret key", ("sb_secret_",), "[A-Za-z0-9_-]{22,}"),
    Key("Sentry", ("sntrys_",), "[A-Za-z0-9_+/=]{40,}"),
    Key("Kaggle", ("KGAT_",), "[0-9a-zA-Z]{30,}"),
    Key("Modal", ("ak-", "as-"), f"{_MIXED}[A-Za-z0-9]{{22}}{_END}"),
    Key("E2B", ("e2b_", "sk_e2b_"), f"[0-9a-f]{{40}}{_END}"),
    Key("Daytona", ("dtn_",), f"[0-9a-f]{{64}}{_END}"),
    Key("Tinker", ("tml-",), f"{_MIXED}[A-Za-z0-9]{{32,}}"),
    Key("Firecrawl", ("fc-",), f"[0-9a-f]{{32}}{_END}"),
    Key("Jina", ("jina_",), "[A-Za-z0-9_-]{60}"),
    Key("Voyage", ("pa-",), f"{_MIXED}[A-Za-z0-9_-]{{43}}{_END}"),
    Key("Cerebras", ("csk-",), f"[a-z0-9]{{48}}{_END}"),
    Key("Brave Search", ("BSA",), f"{_MIXED}[A-Za-z0-9_-]{{27,28}}{_END}"),
    Key("Prime Intellect", ("pit_",), f"[0-9a-f]{{64}}{_END}"),
    Key("Friendli", ("flp_",), "[A-Za-z0-9]{30,}"),
    Key("Anyscale", ("esecret_", "aph0_"), "[A-Za-z0-9]{20,}"),
    Key("Chutes", ("cpk_",), r"[0-9a-f]{32}\.[0-9a-f]{32}\.[A-Za-z0-9]{20,}"),
    Key("Browserbase", ("bb_live_", "bb_test_"), "[A-Za-z0-9_-]{20,}"),
    Key("CodeSandbox", ("csb_v1_",), "[A-Za-z0-9_-]{20,}"),
    Key("Vercel", ("vck_", "vcp_"), "[A-Za-z0-9]{24,}"),
    Key("LlamaCloud", ("llx-",), "[A-Za-z0-9]{40,}"),
    Key("Lambda", ("secret_",), f"[A-Za-z0-9-]{{1,40}}_[0-9a-f]{{32}}(?:\\.[A-Za-z0-9]{{32}})?{_END}"),
    Key("Cloudflare", ("cfut_", "cfat_", "cfk_"), "[A-Za-z0-9]{40,}"),
    Key("Tigris", ("tsec_",), "[A-Za-z0-9_+-]{30,}"),
    Key("Google, key of a service account", ("AQ.Ab8",), "[A-Za-z0-9_-]{30,}"),
    Key("Neptune", ("eyJhcGlfYWRkcmVzcyI6",), "[A-Za-z0-9+/]{40,}={0,2}"),
    Key("Baidu", ("bce-v3/ALTAK-",), "[A-Za-z0-9]{16,32}/[0-9a-f]{40}"),
    Key("ModelScope", ("ms-",), f"[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}{_END}"),
    Key("Tencent", ("AKID",), f"{_MIXED}[A-Za-z0-9]{{32}}{_END}"),
    Key(
        "private key in base64",
        ("LS0tLS1CRUdJTi",),
        "[A-Za-z0-9+/_-]{0,24}(?:UFJJVkFURSBLRVkt|QUklWQVRFIEtFWS0t|FBSSVZBVEUgS0VZ)[A-Za-z0-9+/_-]{8,}={0,2}",
    ),
)
"""Keys that begin with a fixed text."""

_QUOTE = r"(?:\\{0,7}[\"']|&(?:quot|apos|#x?[0-9]{2,3});)"
"""A quotation mark; each JSON text inside of another doubles its backslashes, and HTML spells it."""
_COLON = r"\s{0,4}:\s{0,4}"
_BREAK = r"(?:[\s\"',]|\\{1,8}[rn\"'])"  # a key in JSON has its line breaks escaped, also twice, or is a list of lines
_BARE = r"""[^\s"'`<>(){}\[\],;&|\\"""

ASSIGNED = (
    Assigned(
        "private key in PEM",
        ("-----begin ",),
        r"(-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----)"
        rf"(?:{_BREAK}{{1,8}}[A-Z][A-Za-z-]{{2,20}}: [^\n\\\"']{{0,200}}(?=[\n\\\"'])){{0,4}}"
        rf"(?:{_BREAK}+[A-Za-z0-9+/=]{{16,}})+(?:{_BREAK}+[A-Za-z0-9+/=]{{1,15}})?(?:{_BREAK}+=[A-Za-z0-9+/]{{4}}(?![A-Za-z0-9+/]))?",
        "-----BEGIN PRIVATE KEY-----\n",
        ("aB3x", 64),
        "\n-----END PRIVATE KEY-----",
    ),
    Assigned(
        "private key in PEM, with something before each line",
        ("-----begin ",),
        r"(-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----)(?:\r?\n(?![^\n]{0,100}-----END )[^\n]{0,200}){1,200}"
        r"(?=\r?\n[^\n]{0,100}-----END [A-Z ]{0,24}PRIVATE KEY)",
        "INFO -----BEGIN PRIVATE KEY-----\nINFO ",
        ("aB3x", 64),
        "\nINFO -----END PRIVATE KEY-----",
    ),
    Assigned(
        "header with a token",
        ("bearer ",),
        r"((?i:bearer)\s{1,4})(?=[A-Za-z._~+/-]{0,128}[0-9])[A-Za-z0-9._~+/-]{16,}=*",
        "Bearer ",
    ),
    Assigned(
        "header with credentials",
        ("authorization",),
        r"((?i:authorization)\\?[\"']?\s{0,4}[:=,]\s{0,4}\\?[b\"']{0,2}"
        r"(?:(?i:basic|bearer|token|apikey|digest|negotiate|key)\s{1,4})?)"
        r"(?!\[|(?i:basic|bearer|token|none|null|true|false|required)\b)(?=[^\s\"'\\,;]{0,128}[0-9=])[^\s\"'\\,;]{8,}",
        "Authorization: Basic ",
    ),
    Assigned(
        "basic authentication",
        ("basic ",),
        r"([Bb]asic )(?=[A-Za-z+/]{0,128}[0-9=])(?=[a-z0-9+/]{0,128}[A-Z])(?=[A-Z0-9+/]{0,128}[a-z])"
        r"[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9+/_-])",
        "Basic ",
        ("dXNlcjpwYXNzMTIzNDU2", 40),
    ),
    Assigned(
        "cookie",
        ("cookie",),
        r"((?i:ookie)2?\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?)(?!\[)(?=[^\s\"'\\]{8})"
        r"[^\s\"'\\=;]{1,128}=[^\s\"'\\;]{4,}(?:;\s{0,2}[^\s\"'\\;]{1,4096})*",
        "Set-Cookie: session=",
    ),
    Assigned(
        "password in a URI",
        ("://",),
        r"(://[^\s/:@\"'<>\[\]{}]{0,128}:)(?![<{$%*\[]|[0-9]{1,5}[/?#])"
        r"(?:[^\s/\"'<>\[\]{}]{1,256}(?=@)|[^\s\"'<>\[\]{}]{1,256}(?=@[\w.-]{1,253}(?::[0-9]{1,5})?(?![\w.@-])))",
        "postgresql://user:",
        ("aB3x", 12),
        "@host/base",
    ),
    Assigned(
        "key as user of a URI",
        ("://",),
        r"(://)(?=[^\s/:@\"'<>\[\]{}]{0,64}[0-9])[A-Za-z0-9_.~%-]{16,256}(?=@)",
        "https://",
        ("0a1b", 32),
        "@host/1",
    ),
    Assigned(
        "parameter of a URL",
        ("sig=", "signature=", "credential=", "token=", "secret=", "key="),
        r"((?:(?<![A-Za-z0-9_.-])(?=sig=[^&\s]{24})|[?&;])"
        r"(?:[A-Za-z0-9_.%-]{0,32}(?i:signature|credential|secret|token)|sig"
        r"|(?:[A-Za-z_-]{0,24}[_-])?(?i:api_?|access|)(?i:key))=)(?![<{$%*\[])(?=[^\s&;#\"'<>\\]{0,256}[0-9A-Z%])[^\s&;#\"'<>\\]{8,}",
        "https://host/blob?sv=1&sig=",
    ),
    Assigned(
        "webhook",
        ("webhook.office.com/", "/bot/v2/hook/"),
        r"((?:webhook\.office\.com/[a-z0-9]{1,20}|/bot/v2/hook)/)(?!\[)[A-Za-z0-9/@._-]{20,}",
        "https://x.webhook.office.com/webhookb2/",
    ),
    Assigned(
        "W&B",  # behind other words, 40 digits of a key may be those of a file or a commit
        ("wandb", "key"),
        r"((?:wandb|WANDB)(?:[\s_:=\"'(,.{-]{0,8}(?i:login|relogin|api|key|token|is)){0,4}[\s_:=\"'(,.{-]{1,8}"
        r"|wandb[ .]login\b[^\n|;&]{0,200}?[ =(][\"']?"
        r"|(?:^|\n)[\"']?(?i:key)[\"']?\s?[:=]\s?[\"']?)"
        r"(?:local-)?[0-9a-f]{40}(?![0-9A-Za-z])",
        "wandb login ",
        ("0a1b", 40),
    ),
    Assigned(
        "option of a command line",
        ("--",),
        r"(--(?P<name>[A-Za-z][A-Za-z0-9_.-]{1,63})(?:=|[\"']?,\s{0,4}|\s{1,4})[\"']?)"
        r"(?![\"'<{$%*\[]|--)(?=[^\s\"',;]{0,128}[^a-z\s\"',;])[^\s\"',;]{4,}",
        "--api-key ",
    ),
    Assigned(
        "password with spaces",
        ("passw", "passphrase"),
        r"((?i:passw(?:or)?d|passphrase)\\?[\"']?\s{0,4}(?:=>|=|:)\s{0,4}\\?[\"'])(?![<{$%*\[\s,;:.)])"
        r"(?=[^\s\"'\\]{1,64} )[^\"'\\\n]{3,256}(?=\\?[\"'])",
        'password="',
        ("aB3x xY9Q ", 29),
        '"',
    ),
    Assigned(
        "pair of a name and a value",
        ('"value', "'value"),
        rf"([\"'](?i:name|key|variable|var){_QUOTE}{_COLON}{_QUOTE}(?P<name>[A-Za-z][A-Za-z0-9_.-]{{1,63}}){_QUOTE}\s{{0,4}},\s{{0,16}}"
        rf"(?:{_QUOTE}[\w-]{{1,32}}{_QUOTE}{_COLON}(?:{_QUOTE}[^\"'\\\n]{{0,200}}{_QUOTE}|[\w.-]{{1,32}})\s{{0,4}},\s{{0,16}}){{0,3}}"
        rf"{_QUOTE}(?i:value){_QUOTE}{_COLON}{_QUOTE})(?!\[)[^\"'\\]{{1,1024}}",
        '{"name": "DB_PASSWORD", "value": "',
        ("aB3x", 20),
        '"}',
    ),
    Assigned(
        "pair of a value and its name",
        ("value",),
        rf"((?<![\w-])(?i:value)(?:{_QUOTE})?:\s{{1,4}}(?:{_QUOTE})?)(?![<{{$%*\[])(?P<value>[^\s\"'\\,&]{{4,1024}})"
        rf"(?=(?:{_QUOTE})?,?\s{{1,32}}(?:{_QUOTE})?(?i:name|key)(?:{_QUOTE})?:\s{{1,4}}(?:{_QUOTE})?(?P<name>[A-Za-z][A-Za-z0-9_.-]{{1,63}})(?![\w.-]))",
        "- value: ",
        ("aB3x", 12),
        "\n  name: DB_PASSWORD",
    ),
    Assigned(
        "pair of a name and a value in YAML",
        ("name: ",),
        r"(name: [\"']?(?P<name>[A-Za-z][A-Za-z0-9_.-]{1,63})[\"']?\s{1,32}value: [\"']?)"
        r"(?![<{$%*\[])[^\s\"']{4,1024}",
        "- name: DB_PASSWORD\n  value: ",
        ("aB3x", 12),
    ),
    Assigned(
        "value below its name in YAML",
        ("value: ", "default: "),
        r"((?<![\w.-])(?P<word>[A-Za-z][\w.-]{1,63}):[ \t]{0,8}\r?\n(?P<indent>[ \t]{1,64})"
        r"(?:(?!value|default)[\w-]{1,32}:[^\n]{0,100}\n(?P=indent)){0,3}(?:value|default): [\"']?)"
        r"(?![<{$%*\[\"'&])(?=[^\s\"']{0,128}[0-9])(?P<value>[^\s\"']{6,1024})",
        "\npassword:\n  value: ",
        ("aB3x", 12),
    ),
    Assigned(
        "value inside of its name",
        ('value"', "value'", 'value\\"'),
        rf"((?<![\w.-])(?P<word>[A-Za-z][\w.-]{{1,63}}){_QUOTE}{_COLON}\{{\s{{0,64}}"
        rf"(?:{_QUOTE}(?!value)[\w-]{{1,32}}{_QUOTE}{_COLON}(?:{_QUOTE}[^\"'\\\n]{{0,200}}{_QUOTE}|[\w.-]{{1,32}})\s{{0,4}},\s{{0,64}}){{0,3}}"
        rf"{_QUOTE}value{_QUOTE}{_COLON}{_QUOTE})(?![<{{$%*\[])(?=[^\s\"'\\]{{0,128}}[0-9])(?P<value>[^\s\"'\\]{{6,1024}})",
        '{"password": {"value": "',
        ("aB3x", 12),
        '"}}',
    ),
    Assigned(
        "block of YAML",
        (": |", ": >"),
        r"((?<![\w.-])(?P<word>[A-Za-z][\w.-]{1,63})[\"']?:[ \t]{1,4}[|>][0-9+-]{0,2}[ \t]{0,8}\r?\n[ \t]{1,64})"
        r"(?![<{$%*\[])(?=[^\s]{0,128}[0-9])(?P<value>[^\s]{6,1024})",
        "password: |\n  ",
        ("aB3x", 12),
    ),
    Assigned(
        "pair of attributes",
        ("value=",),
        r"((?<![\w-])(?i:name|key)=[\"'](?P<name>[A-Za-z][A-Za-z0-9_.-]{1,63})[\"'],?\s{0,8}(?i:value)=[\"'])(?![<{$%*\[])[^\"'\n]{4,1024}",
        'name="DB_PASSWORD" value="',
        ("aB3x", 12),
        '"',
    ),
    Assigned(
        "variable of a shell or an image",
        ("env ", "set"),
        r"((?<![\w-])(?:ENV|setenv|setx|set -[gxU]{1,3}|configure set) (?P<name>[A-Za-z][A-Za-z0-9_.]{1,63}) [\"']?)"
        r"(?![<{$%*\[=])[^\s\"']{4,1024}",
        "ENV HF_TOKEN ",
        ("aB3x", 20),
    ),
    Assigned(
        "element of XML",
        ("</",),
        r"(<(?P<name>[A-Za-z][A-Za-z0-9_.:-]{1,63})>)(?![\[{$%*])[^\s<>]{4,1024}(?=</)",
        "<password>",
        ("aB3x", 12),
        "</password>",
    ),
    Assigned(
        "row of a table",
        ("| ", "│", "┃", "<td>"),
        r"((?:[|│┃]\s{1,32}[`\"']?|<t[dh]>\s{0,8})(?P<word>[A-Za-z][\w.-]{1,63})[`\"']?\s{0,64}(?:[|│┃]|</t[dh]>\s{0,8}<td>)"
        r"\s{0,8}[`\"']?)(?![<{$%*\[])(?=[^\s|│┃<`\"']{0,128}[0-9])(?=[^\s|│┃<`\"']{6})(?P<value>[^\s|│┃<`\"']{6,1024})",
        "│ api_key │ ",
        ("aB3x", 20),
        " │",
    ),
    Assigned(
        "password in .netrc",
        ("login ",),
        r"(login \s{0,8}\S{1,64}\s{1,8}password\s{1,8})(?!\[)\S{4,256}",
        "machine host login me password ",
        ("aB3x", 12),
    ),
    Assigned(
        "password in .pgpass",
        (":5432:",),
        r"(:5432:[^\s:/]{1,64}:[^\s:/]{1,64}:)(?!\[)[^\s:]{4,256}",
        "host:5432:base:me:",
        ("aB3x", 12),
    ),
    Assigned(
        "password in SQL",
        ("identified by",),
        r"((?i:identified by)\s{1,8}['\"])(?!\[)[^'\"\n]{4,256}",
        "CREATE USER me IDENTIFIED BY '",
        ("aB3x", 12),
        "'",
    ),
    *(_of_program(*one) for one in PROGRAMS),
    Assigned(
        "password in a pipe",
        ("--password-stdin", "sudo -s"),
        r"((?:echo|printf) (?:-n )?[\"']?)(?![<{$%*\[\s\"'-])[^\s\"'|]{4,256}"
        r"(?=[\"']? {0,2}\|[^\n|]{0,100}(?:--password-stdin|sudo -S))",
        "echo ",
        ("aB3x", 12),
        " | docker login --password-stdin",
    ),
    Assigned(
        "user of curl",
        ("curl ",),
        r"(curl (?:(?!curl )[^\n]){0,256}?(?:(?<= )-u|(?<= )--user)[ =]{0,2}[\"']?[^\s:\"'=]{1,64}:)"
        r"(?![<{$%*\[])[^\s\"']{3,256}",
        "curl -s -u user:",
        ("aB3x", 12),
        " https://host",
    ),
)
"""Values that are recognized by what comes before them."""

WORDS = ("pass", "pw", "key", "secret", "token", "auth", "_pat", "jwt", *OTHER_WORDS)
"""Words of the names to which texts assign secrets."""
_IS = r"(?::=|=>|=|:|\uff1a|(?<=\s)(?i:is)\b:?|(?<=[\"';]),(?=\s?b?(?:\\{0,7}[\"']|&)))"


def assigned_to(word: str) -> str:
    """Return the pattern of a quoted text that is more than a word, or of an unquoted value with a digit.

    The word is in a name, which decides with the value. Calls, indices and attributes do not match: these are code.
    """
    return (
        rf"((?P<word>{word}[\w-]{{0,16}})(?:{_QUOTE}\]?|:\s?[A-Za-z_][\w.]{{0,24}}(?=\s?=))?\s{{0,8}}{_IS}\s{{0,8}}b?"
        rf"(?:{_QUOTE}(?![<{{$%*.\[(])(?=[A-Za-z_]{{0,128}}[^A-Za-z_\s\"'\\&])(?=[^\s\"'\\]{{4}})"
        rf"|(?![<{{$%*.\[(=&]|\w{{1,64}}[(\[]|[A-Za-z_]\w{{0,64}}\.[A-Za-z_])(?={_BARE}0-9]{{0,128}}[0-9])(?={_BARE}]{{6}})))"
        rf"(?P<value>(?<=[\"';])[^\s\"'\\&]+|{_BARE}]+)"
    )
