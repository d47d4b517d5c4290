"""Names whose values are secrets, such as `api_key`, as opposed to `pad_token_id`."""

from __future__ import annotations

import re

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
KEYS = "api|access|secret|private|signing|encryption|subscription|ssh|deploy|webhook"
"""Words before "key" that make it a secret."""
TOKENS = (
    "access|auth|api|app|hf|hub|huggingface|refresh|bearer|session|user|bot|service|login|deploy|"
    "gh|github|gitlab|slack|wandb|swanlab|mlflow|comet|neptune|telegram|discord|jwt|oauth|csrf|sas"
)
"""Words before "token" that make it a secret; otherwise it is a piece of text, as in `pad_token`."""
ACCOUNTS = (
    "user|username|login|account|admin|root|db|database|sql|postgres|pg|mysql|mongo|redis|rabbitmq|amqp|kafka|smtp|imap|"
    "mail|email|ftp|sftp|ssh|ldap|proxy|http|https|registry|docker|vault|minio|wifi|vnc|sudo|key|keystore|cert|ssl|tls"
)
"""Words before "pass" that make it a password: alone it is a word of RL, as in `num_pass` and `forward_pass`."""
OTHER_WORDS = (
    "kennwort", "schlüssel", "contrase", "clave", "senha", "wachtwoord", "hasło", "lösenord", "şifre", "jelszó",
    "пароль", "ключ", "密码", "密碼", "密钥", "密鑰", "口令", "令牌", "パスワード", "秘密鍵", "비밀번호",
    "khẩu", "סיסמה", "المرور",
)  # fmt: skip
"""Words for a password or a key in other languages, or how these begin."""
_OTHER_NAMES = "geheim|zugangsdaten|haslo|parola|sifre|salasana|heslo|adgangskode|kata_sandi|passwort|secreto"
SECRET_NAMES = (
    rf"({'|'.join(OTHER_WORDS)}|{_OTHER_NAMES})\w{{0,6}}$|(^|_)de_passe$|palavra_passe$|cl[eé]_api$|token_de_acceso$",
    rf"(^|_)(({KEYS})_?)+keys?(_(id|pem|base|data|secret))?$|apikeys?$",
    r"secrets?(_(access_)?keys?(_base)?|_values?|_tokens?)?$",
    r"passw(or)?ds?(_hash)?$|(^|_)(pwd?|passphrases?|passcode)$|[a-z]passphrase$|(^|_)(seed|recovery)_phrase$|mnemonic$",
    rf"(^|_)({ACCOUNTS})_?pass$",
    r"credentials?(_json)?$|(^|_)creds$",
    r"(^|_)(auth(orization|entication)?(_headers?)?|(set_)?cookies?|cookie_jar|connection_strings?|dsn)$",
    r"^tokens?_secret$|^token$|(^|_)(id_token$|bearer_token_)",
    rf"(^|_)({TOKENS})_?tokens?$(?<!hf_tokens)(?<!user_tokens)(?<!session_tokens)(?<!api_tokens)",
    r"(^|_)x_amz_(signature|credential|security_token)$|(^|_)shared_access_signature$",
)
"""Patterns of names in lower case with `_` between words, each with an optional number at the end."""
DOUBTFUL_NAMES = (
    r"[a-z0-9]_?keys?$(?<!public_key)(?<!cache_key)(?<!hash_key)(?<!object_key)(?<!partition_key)",
    r"(^|_)((key|tokens?)_(data|id|values?)|secret_id|auth_config|webhooks?(_ur[il])?)$|tokens?$",
    r"(^|_)(signature|assertion|verifier|jwt|bearer|pass|pat|pem|psk|sas|session|session_cookie|csrf|xsrf|otp|id_rsa)$",
    r"(^|_)(sas_ur[il]|conn_?str|hook_ur[il]|sa_json|dockerconfigjson|salt|pepper|mfa_seed|sk)$",
    r"(^|_)(tokens|keys|secrets)_[a-z0-9]+$",
)
"""Patterns of names whose values are secrets only if they look like keys. A service need not be listed."""
_SECRET = re.compile("|".join(f"(?:{pattern})" for pattern in SECRET_NAMES))
_DOUBTFUL = re.compile("|".join(f"(?:{pattern})" for pattern in DOUBTFUL_NAMES))
_SESSION = re.compile(r"(^|_)session_?id$")
_LONGEST_IDENTITY = 36
"""The number of characters of a UUID: a longer id of a session is a cookie's."""
_WANDB = re.compile(r"(^|_)wandb(_|$)(?!.*(commit|sha|hash|rev|version))")
_WANDB_KEY = re.compile(r"[0-9a-f]{40}")
_NUMBER = re.compile(r"(?<=[a-z])_?[0-9]{1,2}$")
_LONGEST_NUMBER = 10
_LARGEST_NUMBER = int("9" * _LONGEST_NUMBER)
_HARMLESS = re.compile(
    r"\s*|<.*>|\[.*\]|\{[^\"':]{0,64}\}|\$.*|\W|(.)\1{2,}|<?\|.*\|>?|(?i:none|null|true|false|yes|no|on|off|auto|basic|bearer|oauth2?)"
    r"|(?i:digest|default)|(?i:empty|dummy[\w-]{0,20}|test|example|placeholder|unused|your[ _-][\w -]{1,40})"
    rf"|[+-]?(?=[0-9.]{{1,{_LONGEST_NUMBER}}}(?![0-9.]))(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{{1,3}})?",
    re.DOTALL,
)
_DIRECTORY = re.compile(r"(^|_)pwd$")
_PLACEHOLDER = re.compile(
    r"token-abc123|(?:sk-)?(?:x{2,}|ollama|vllm|sglang|local(?:host)?"
    r"|(?:no|not|none|any|fake|mock|demo)(?:[-_ ][a-z]{2,12}){0,4})"
    r"|sk(?:-[a-z]{2,12}){2,5}"
)
"""A key for a server that asks for none, as manuals have it."""
_OF_A_KEY = re.compile(r"keys?$|tokens?$")
_REFERENCE = re.compile(
    r"(?i:env|file|vault|secrets?|arn|projects)[:/].*|os\.(?:environ|getenv).*|.*\.(?:json|ya?ml|toml|pem|key|crt|txt)"
)
"""A text that says where a secret is."""
_PATH = re.compile(r"(?:(?:~|\.{1,2})?/|[a-z][a-z0-9+.-]{1,16}://)[^\s@?#:]*")
_KEY = re.compile(r"(?=.{0,128}[0-9])(?=.{0,128}[A-Za-z])[^\s()<>{}\[\]$|\"']{12,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WORD = re.compile(r"[A-Za-z](?=[a-z]{0,20}[aeiouy])[a-z]{3,20}")
_WORDY = re.compile(r"[-_./: ]|[a-z](?=[A-Z])")
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_LEAST_CHANGES = 0.2
"""The smallest part of a key that is changes: a random key of 24 characters has less once in 100 times."""
_LEAST_IN_WORDS = 3
"""The smallest number of digits and changes in a key that is found inside of a word."""
_MOST_DIGITS = 0.12
"""The largest part of words that is digits: a random key of lower-case letters and digits has less 3 in 100 times."""
_MOST_IN_WORDS = 0.62
"""The largest part of a key in runs that look like words: a random key of 24 characters has more once in 100 times."""


def words_of(name: str) -> str:
    """Return a name in lower case with `_` between its words: `openaiApiKey` becomes `openai_api_key`."""
    return _WORD_BOUNDARY.sub("_", name).strip("_").lower()


def names_a_secret(name: str) -> bool:
    """Return whether a name is that of a secret, such as `api_key` or `authToken`."""
    words = words_of(name)
    return _SECRET.search(_NUMBER.sub("", words)) is not None


def may_name_a_secret(name: str, value: str) -> bool:
    """Return whether a text is a secret because it looks like one and its name may be that of one, as `wandb_key`."""
    if not looks_like_a_key(value) or not is_random(value):  # most values: the names need not be searched
        return False
    words = _NUMBER.sub("", words_of(name))
    if _SESSION.search(words):
        return len(value) > _LONGEST_IDENTITY
    is_of_wandb = _WANDB.search(words) is not None and _WANDB_KEY.fullmatch(value) is not None
    return is_of_wandb or _DOUBTFUL.search(words) is not None


def looks_like_a_key(text: str) -> bool:
    """Return whether a text has at least 12 characters, letters and digits, and is not a UUID, a path or words."""
    return (
        _KEY.fullmatch(text) is not None
        and not text.startswith(("/", "./", "../", "~"))
        and not _UUID.fullmatch(text)
        and not is_made_of_words(text)
    )


def is_made_of_words(text: str) -> bool:
    """Return whether most of a text is words, as in `cuda-graph-kernel-fusion-v2`, which no random key is."""
    if _WORDY.search(text) is None:
        return False
    in_words: int = sum(map(len, _WORD.findall(text)))
    return in_words > _MOST_IN_WORDS * len(text) and sum(map(str.isdigit, text)) < _MOST_DIGITS * len(text)


def is_random(text: str) -> bool:
    """Return whether letters, cases and digits take turns as in a random text, and not as in `Qwen2.5-7B-Instruct`."""
    return len(_CHANGE.findall(text)) > _LEAST_CHANGES * len(text)


def has_changes(text: str) -> bool:
    """Return whether a text has several digits or turns, as a random one has, and a run of DNA or a word has not."""
    return len(_CHANGE.findall(text)) + sum(map(str.isdigit, text)) >= _LEAST_IN_WORDS


def is_harmless(value: object, name: str = "") -> bool:
    """Return whether a value cannot be a secret, whatever its name is.

    Booleans, numbers of at most 10 digits, nothing, and placeholders are harmless, also as texts. So are paths, and
    texts that say where a secret is.
    """
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, (list, tuple, dict)) and not value):
        return True
    if isinstance(value, int):
        return -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER
    if not isinstance(value, str):
        return False
    words = words_of(name)
    if value.startswith("/") and _DIRECTORY.search(words):
        return True
    return _HARMLESS.fullmatch(value) is not None or _is_a_place(value) or _is_placeholder(value, words)


def _is_placeholder(value: str, name: str) -> bool:
    """Return whether a value of a key is a placeholder; a password may be such words."""
    return _OF_A_KEY.search(_NUMBER.sub("", name)) is not None and _PLACEHOLDER.fullmatch(value) is not None


def _is_a_place(value: str) -> bool:
    """Return whether a value is the path, URL or name of where a secret is, without a part that looks like a key."""
    if _PATH.fullmatch(value) is None and _REFERENCE.fullmatch(value) is None:
        return False
    return not any(_KEY.fullmatch(part) and is_random(part) for part in value.split("/"))
