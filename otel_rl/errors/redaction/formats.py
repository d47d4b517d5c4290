"""The formats of secrets, as data.

`docs/evidence/secret-formats.md` is generated from them. Sources: the documentation of the services, and the rule lists
of gitleaks and detect-secrets. Each pattern must take linear time: every repetition is bounded, or cannot overlap with
what follows it.
"""

from __future__ import annotations

from typing import NamedTuple

LETTERS = "A-Za-z0-9"
WORD = "A-Za-z0-9_-"
BASE64 = "A-Za-z0-9+/_-"
"""The characters around a key that has no separator: a base64 image can contain any word of letters and digits."""


class Key(NamedTuple):
    """A key that begins with a fixed text at the start of a word.

    Attributes:
        kind: The service, or the kind of secret.
        starts: The fixed texts, of which one begins the key.
        rest: The pattern of the rest of the key.
        example: A character sequence that is repeated after the start in an example, and the number of characters.
        inside: The characters that cannot come directly before a key.
        has_words: If true, words with hyphens or in camel case can begin like this too, and are not a key.
    """

    kind: str
    starts: tuple[str, ...]
    rest: str
    example: tuple[str, int]
    inside: str = LETTERS
    has_words: bool = False


class Assigned(NamedTuple):
    """A value that is recognized by what comes before it.

    Attributes:
        kind: The kind of secret.
        starts: The fixed texts, of which one is in every text that has such a secret.
        pattern: The pattern. Its first group stays in the text, the rest of the match is removed. A group called `name`
            must be the name of a secret; a group called `after` stays too.
        before: The text in front of the secret in an example.
        example: A character sequence that is repeated in the secret of the example, and the number of characters.
        after: The text behind the secret in the example.
    """

    kind: str
    starts: tuple[str, ...]
    pattern: str
    before: str
    example: tuple[str, int] = ("aB3xY9Q-", 40)
    after: str = ""


_MIXED = "(?=[A-Z_-]{0,64}[a-z0-9])(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])"
_END = f"(?![={BASE64}])"

KEYS = (
    Key(
        "OpenAI, Anthropic, OpenRouter, DeepSeek",
        ("sk-",),  # keys of OpenAI and Anthropic mix cases and digits; other keys are hexadecimal
        "(?=[a-z0-9_-]{0,64}[A-Z])(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,}"
        "|(?:or-v1-|lf-)?[0-9a-f-]{32,64}(?![A-Za-z0-9_-])",
        ("aB3x", 48),
        has_words=True,
    ),
    Key("Langfuse", ("pk-lf-",), "[0-9a-f-]{36}", ("0a1b-", 36)),
    Key("Hugging Face", ("hf_", "api_org_"), "[A-Za-z0-9]{30,}", ("aB3", 34)),
    Key("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "[A-Za-z0-9]{36,}", ("aB3", 36)),
    Key("GitHub, fine-grained", ("github_pat_",), "[A-Za-z0-9_]{22,}", ("1A_b", 60)),
    Key(
        "GitLab",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glft-", "glagent-"),
        r"(?=[A-Za-z_.-]{0,64}[0-9])[A-Za-z0-9_.-]{20,}",
        ("aB3x", 20),
    ),
    Key("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), f"[A-Z0-9]{{16}}{_END}", ("A2B7", 16), BASE64),
    Key("AWS Bedrock", ("ABSKQmVkcm9ja",), "[A-Za-z0-9+/]{40,}={0,2}", ("aB3x", 100), BASE64),
    Key("Slack", ("xox",), "[abeprs]-(?=[A-Za-z-]{0,20}[0-9])[A-Za-z0-9-]{10,}", ("b-12345678901-", 28)),
    Key(
        "Slack, of an app",
        ("xapp-",),
        "[0-9]-[A-Z0-9]{6,}-[0-9]{6,}-[a-z0-9]{16,}",
        ("1-A0B1C2D3E4-123456789-" + "0a1b" * 16, 87),
    ),
    Key("Google API", ("AIza",), f"[A-Za-z0-9_-]{{35}}{_END}", ("aB3_x", 35), BASE64),
    Key("Google OAuth", ("ya29.",), f"{_MIXED}[A-Za-z0-9_-]{{20,}}", ("aB3_x", 60)),
    Key("Google OAuth client", ("GOCSPX-",), "[A-Za-z0-9_-]{20,}", ("aB3_x", 28)),
    Key(
        "JSON Web Token",
        ("eyJ",),
        r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        ("hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN", 64),
        WORD,
    ),
    Key("1Password", ("ops_eyJ",), "[A-Za-z0-9+/=_-]{40,}", ("aB3x", 80)),
    Key("W&B", ("wandb_v1_",), "[A-Za-z0-9_]{20,}", ("aB3x_", 40)),
    Key("npm", ("npm_",), "[A-Za-z0-9]{36}(?![A-Za-z0-9_])", ("aB3", 36)),
    Key("PyPI", ("pypi-",), "AgE[A-Za-z0-9_-]{30,}", ("AgEIcHlwaS5vcmc" + "aB3x" * 10, 55)),
    Key(
        "Stripe",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        "[A-Za-z0-9]{16,}",
        ("aB3x", 24),
    ),
    Key("SendGrid", ("SG.",), r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", ("aB3x_" * 4 + "aB." + "aB3x" * 11, 66)),
    Key("Databricks", ("dapi",), f"[0-9a-f]{{32}}(?:-[0-9])?{_END}", ("0a1b", 32), BASE64),
    Key("DigitalOcean", ("dop_v1_", "doo_v1_", "dor_v1_"), "[0-9a-f]{64}", ("0a1b", 64)),
    Key("Docker", ("dckr_pat_", "dckr_oat_"), "[A-Za-z0-9_-]{20,}", ("aB3x", 27)),
    Key("HashiCorp Vault", ("hvs.", "hvb.", "hvr."), f"{_MIXED}[A-Za-z0-9_-]{{20,}}", ("aB3x", 90)),
    Key("NVIDIA", ("nvapi-",), "[A-Za-z0-9_-]{40,}", ("aB3x_", 64)),
    Key("Groq", ("gsk_",), "[A-Za-z0-9]{40,}", ("aB3x", 52)),
    Key("xAI", ("xai-",), "[A-Za-z0-9]{40,}", ("aB3x", 80)),
    Key("Perplexity", ("pplx-",), "[A-Za-z0-9]{40,}", ("aB3x", 48)),
    Key("Replicate", ("r8_",), "[A-Za-z0-9]{30,}", ("aB3x", 37)),
    Key("Fireworks", ("fw_",), f"{_MIXED}[A-Za-z0-9]{{22,}}", ("aB3x", 24), has_words=True),
    Key("LangSmith", ("lsv2_pt_", "lsv2_sk_"), "[0-9a-f]{32}_[0-9a-f]{10}", ("0a1b" * 8 + "_0a1b0a1b0a", 43)),
    Key("Pinecone", ("pcsk_",), "[A-Za-z0-9_]{20,}", ("aB3x_", 70)),
    Key("RunPod", ("rpa_",), "[A-Z0-9]{30,}[a-z0-9]{0,10}", ("A1B2", 40)),
    Key("Grafana", ("glsa_", "glc_"), r"(?=[A-Za-z_+/=]{0,64}[0-9])[A-Za-z0-9_+/=]{32,}", ("aB3x", 41)),
    Key("Honeycomb", ("hcaik_", "hcamk_", "hcxik_"), "[A-Za-z0-9]{20,}", ("0a1b", 58)),
    Key("New Relic", ("NRAK-", "NRII-", "NRJS-"), "[A-Za-z0-9-]{19,}", ("A1B2", 27)),
    Key("Sentry", ("sntrys_", "sntryu_"), "[A-Za-z0-9_+/=]{40,}", ("aB3x", 64)),
    Key("Tailscale", ("tskey-",), "[a-z]{3,12}-[A-Za-z0-9-]{16,}", ("auth-aB3xaB3xCNTRL-aB3xaB3xaB3x", 31)),
    Key("Doppler", ("dp.pt.", "dp.st.", "dp.sa.", "dp.ct."), r"[A-Za-z0-9._-]{24,}", ("aB3x", 43)),
    Key("Pulumi", ("pul-",), "[0-9a-f]{40}(?![A-Za-z0-9_-])", ("0a1b", 40)),
    Key("Postman", ("PMAK-",), "[0-9a-f]{24}-[0-9a-f]{34}", ("0a1b" * 6 + "-" + "0a1b" * 9, 59)),
    Key("Linear", ("lin_api_", "lin_oauth_"), "[A-Za-z0-9]{32,}", ("aB3x", 40)),
    Key("Notion", ("ntn_",), "[A-Za-z0-9]{40,}", ("1aB3", 46)),
    Key("Figma", ("figd_",), "[A-Za-z0-9_-]{30,}", ("aB3x", 40)),
    Key("Atlassian", ("ATATT3x", "ATCTT3x", "ATBB"), r"(?=[A-Za-z_=-]{0,64}[0-9])[A-Za-z0-9_=-]{28,}", ("aB3x", 60)),
    Key("Supabase", ("sbp_", "sb_secret_"), "[A-Za-z0-9_-]{22,}", ("0a1b", 40)),
    Key("PlanetScale", ("pscale_pw_", "pscale_tkn_", "pscale_oauth_"), r"[A-Za-z0-9_.=-]{30,}", ("aB3x", 43)),
    Key("Heroku", ("HRKU-",), "[A-Za-z0-9_-]{30,}", ("aB3x", 60)),
    Key("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), "[0-9a-fA-F]{32}", ("0a1b", 32)),
    Key("Kaggle", ("KGAT_",), "[0-9a-zA-Z]{30,}", ("0a1b", 32)),
    Key("Alibaba Cloud", ("LTAI",), f"[A-Za-z0-9]{{12,26}}{_END}", ("5tAb", 20), BASE64),
    Key("age", ("AGE-SECRET-KEY-1",), "[0-9A-Z]{58}", ("Q2W3", 58)),
)
"""Keys that begin with a fixed text."""

_BREAK = r"(?:[\s\"',]|\\{1,8}[rn\"'])"  # a key in JSON has its line breaks escaped, also twice, or is a list of lines
_BARE = r"""[^\s"'`<>(){}\[\],;&|\\"""
_NO_PLACEHOLDER = r"(?![<{$%*\[])"

ASSIGNED = (
    Assigned(
        "private key in PEM",
        ("-----BEGIN ",),
        r"(-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----)"
        rf"(?:{_BREAK}{{1,8}}[A-Z][A-Za-z-]{{2,20}}: [^\n\\\"']{{0,200}}(?=[\n\\\"'])){{0,4}}"
        rf"(?:{_BREAK}+[A-Za-z0-9+/=]{{16,}})+(?:{_BREAK}+[A-Za-z0-9+/=]{{1,15}})?(?:{_BREAK}+=[A-Za-z0-9+/]{{4}}(?![A-Za-z0-9+/]))?",
        "-----BEGIN PRIVATE KEY-----\n",
        ("aB3x", 64),
        "\n-----END PRIVATE KEY-----",
    ),
    Assigned(
        "header with a token",
        ("Bearer", "bearer", "BEARER"),
        r"((?i:bearer)\s{1,4})(?=[A-Za-z._~+/-]{0,128}[0-9])[A-Za-z0-9._~+/-]{16,}=*",
        "Bearer ",
    ),
    Assigned(
        "header with credentials",
        ("uthorization", "UTHORIZATION"),
        r"((?i:uthorization)\\?[\"']?\s{0,4}[:=,]\s{0,4}\\?[b\"']{0,2}"
        r"(?:(?i:basic|bearer|token|apikey|digest|negotiate|key)\s{1,4})?)"
        r"(?!\[|(?i:basic|bearer|token|none|null|true|false|required)\b)(?=[^\s\"'\\,;]{0,128}[0-9=])[^\s\"'\\,;]{8,}",
        "Authorization: Basic ",
    ),
    Assigned(
        "basic authentication",
        ("Basic ", "basic "),
        r"([Bb]asic )(?=[A-Za-z+/]{0,128}[0-9=])(?=[a-z0-9+/]{0,128}[A-Z])(?=[A-Z0-9+/]{0,128}[a-z])"
        r"[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9+/_-])",
        "Basic ",
        ("dXNlcjpwYXNzMTIzNDU2", 40),
    ),
    Assigned(
        "cookie",
        ("ookie", "OOKIE"),
        r"((?i:ookie)2?\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?)(?!\[)(?=[^\s\"'\\]{8})"
        r"[^\s\"'\\=;]{1,128}=[^\s\"'\\;]{4,}(?:;\s{0,2}[^\s\"'\\;]{1,4096})*",
        "Set-Cookie: session=",
    ),
    Assigned(
        "password in a URI",
        ("://",),
        r"(://[^\s/:@\"'<>\[\]{}]{0,128}:)(?![<{$%*\[])[^\s/\"'<>\[\]{}]{1,256}(?=@)",
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
        ("sig=", "ignature=", "redential=", "oken=", "secret=", "key=", "Key="),
        r"([?&;](?:[A-Za-z0-9_.%-]{0,32}(?i:signature|credential|secret|token)|sig|(?:[A-Za-z_-]{0,24}[_-])?(?i:api_?|access|)"
        r"(?i:key))=)(?![<{$%*\[])(?=[^\s&;#\"'<>\\]{0,256}[0-9A-Z%])[^\s&;#\"'<>\\]{8,}",
        "https://host/blob?sv=1&sig=",
    ),
    Assigned(
        "webhook",
        ("hooks.slack.com/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "webhook.office.com/"),
        r"((?:hooks\.slack\.com|discord(?:app)?\.com/api|webhook\.office\.com)/[a-z0-9]{1,20}/)"
        r"(?!\[)[A-Za-z0-9/@._-]{20,}",
        "https://hooks.slack.com/services/",
    ),
    Assigned(
        "Telegram bot",
        (":AA",),
        r"((?<![0-9])[0-9]{8,10}:)AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])",
        "123456789:",
        ("AAaB3xaB3x", 35),
    ),
    Assigned(
        "W&B",
        ("wandb", "WANDB"),
        r"((?:wandb|WANDB)(?:[\s_:=\"'(,-]{0,8}(?i:login|api|key|token|is)){0,4}[\s_:=\"'(,-]{1,8})"
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
        ("assword", "ASSWORD", "asswd", "ASSWD", "assphrase", "ASSPHRASE"),
        r"((?i:assw(?:or)?d|assphrase)\\?[\"']?\s{0,4}(?:=>|=|:)\s{0,4}\\?[\"'])(?![<{$%*\[\s,;:.)])"
        r"(?=[^\s\"'\\]{1,64} )[^\"'\\\n]{3,256}(?=\\?[\"'])",
        'password="',
        ("aB3x xY9Q ", 29),
        '"',
    ),
    Assigned(
        "pair of a name and a value",
        ('"name', "'name"),
        r"([\"']name\\?[\"']\s{0,4}:\s{0,4}\\?[\"'](?P<name>[A-Za-z][A-Za-z0-9_.-]{1,63})\\?[\"']\s{0,4},\s{0,4}"
        r"\\?[\"']value\\?[\"']\s{0,4}:\s{0,4}\\?[\"'])[^\"'\\]{1,1024}",
        '{"name": "DB_PASSWORD", "value": "',
        ("aB3x", 20),
        '"}',
    ),
    Assigned(
        "secret or token that looks like a key",
        ("secret", "Secret", "SECRET", "token", "Token", "TOKEN"),
        r"((?<![A-Za-z0-9])(?i:secret|token)\\?[\"']?\s{0,4}(?:=>|=|:)\s{0,4}\\?[\"']?)"
        rf"(?P<words>{_MIXED}[A-Za-z0-9_+/=-]{{16,256}}|[0-9a-f]{{32,64}})(?![A-Za-z0-9_.(\[])",
        "token=",
        ("aB3x", 24),
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

WORDS = {
    "password": "",
    "passwd": "",
    "passphrase": "",
    "pwd": "",
    "key": "api secret access private account signing encryption subscription auth license",
    "secret": "client app shared webhook jwt consumer",
    "token": "access auth refresh session bearer api hf wandb github gitlab slack bot service id",
}
"""Names to which texts assign secrets, and the words of which one must come before."""


def assigned_to(name: str, before: str) -> str:
    """Return the pattern of a quoted text that is more than a word, or of an unquoted value with a digit.

    Calls, indices and attributes do not match, because these are code.
    """
    whole = "|".join(f"(?<={word}[ _-]{name})|(?<={word}{name})" for word in before.split())
    return (
        rf"({name}(?i:{whole})\\?[\"']?\s{{0,8}}(?::=|=>|=|:)\s{{0,8}}"
        rf"(?:\\?[\"'](?![<{{$%*.\[(])(?=[A-Za-z_]{{0,128}}[^A-Za-z_\s\"'\\])(?=[^\s\"'\\]{{4}})"
        rf"|(?![<{{$%*.\[(=]|\w{{1,64}}[(\[]|[A-Za-z_]\w{{0,64}}\.[A-Za-z_])(?={_BARE}0-9]{{0,128}}[0-9])(?={_BARE}]{{6}})))"
        rf"(?:(?<=[\"'])[^\s\"'\\]+|{_BARE}]+)"
    )
