"""Redaction: the functions that every text and every named value passes before it leaves the trainer's memory.

The rules are data: `formats` and `kept.json` have what secrets look like, `names` has what they are called.

Every room but `interrupts` may import it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from fnmatch import translate
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote

from otel_rl.recorder.secrets.formats import WORDS
from otel_rl.recorder.secrets.last_word import REDACTED as REDACTED
from otel_rl.recorder.secrets.last_word import LastWord
from otel_rl.recorder.secrets.names import (
    is_harmless,
    is_made_of_words,
    is_random,
    looks_like_a_key,
    may_name_a_secret,
    names_a_secret,
    words_of,
)
from otel_rl.recorder.secrets.rules import LONGEST_BEFORE, SHORTEST_KEY, is_inside, patterns_for
from otel_rl.recorder.secrets.tables import without_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SHORTEST = 8
"""The smallest number of characters of a text that can hold a secret."""
LONGEST_SECRET = 4096
"""The number of characters beyond a limit in which a secret that crosses the limit is still recognized."""
_HASH = 6
_PAIR = 2
_CACHED_LENGTH = 256
_MOST_CACHED = 1 << 14
_LEARNABLE = re.compile(r"(?!/|\.\.?/|~)(?=.{0,4096}\d)(?=.{0,4096}[^\W\d_]).{12,16384}", re.DOTALL)
_PASSWORD = re.compile(r"://[^\s/:@]{0,128}:([^\s/]{1,256})@")
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY")
_LINE_END = re.compile(r"[\r\n]+|(?:\\[rn])+")
_BEFORE = re.compile(r"(?:[\w.-]+ )?[\w.-]*$")
"""The rest of a name, and the word before it, as in `api key`."""
_OF_KEYS = re.compile("[0-9A-Z]")
_LONE = re.compile(r"(?i)(?:^|[ .])(?:tokens?|secrets?|auth|credentials?)$")
_PERCENT = re.compile("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
_clean: set[str] = set()
"""Short texts that were found clean: names and labels come again and again."""
_clean_sets = [_clean]
_added: list[re.Pattern[str]] = []
_names: list[re.Pattern[str]] = []
_learned: list[str] = []
_learned_words: list[str] = []
"""Learned secrets without white space: texts of short words are not searched for them, however many there are."""
_last_words: list[LastWord] = []
_known_names: dict[str, bool] = {}


def redact(text: str, name: str = "") -> tuple[str, int]:
    """Replace secrets with "[redacted]"; return the text, and the number of secrets.

    Secrets are known by their format (see `formats`), by a pattern of the user, or because the same text was
    given elsewhere as a secret. The time is linear in the text. The function of the user has the last word.
    """
    found, total = _by_rules(text)
    for last_word in _last_words:
        before, found = found, last_word(found, name)
        total += found != before
    return found, total


def _by_rules(text: str) -> tuple[str, int]:
    if len(text) < _SHORTEST or text in _clean:
        return text, 0
    whole, total = text, 0
    long_words = " ".join([word for word in text.split() if len(word) >= SHORTEST_KEY])
    for known in _learned + _learned_words if long_words else _learned:
        if known in text:
            total += text.count(known)
            text = text.replace(known, REDACTED)
    for pattern in patterns_for(text, long_words):
        text, count = _substituted(pattern, text)
        total += count
    if "\n" in text or "</tr>" in text:
        text, count = without_columns(text, WORDS, _is_below)
        total += count
    for pattern in _added:
        text, count = pattern.subn(REDACTED, text)
        total += count
    if not total and len(text) <= _CACHED_LENGTH:
        if len(_clean) >= _MOST_CACHED:
            _clean.clear()
        _clean.add(whole)
    return text, total


def redacted(text: str, name: str = "") -> str:
    """Return a text without secrets; it is the value of a name, if that is known."""
    return text if text in _clean and not _last_words else redact(text, name)[0]


def redacted_start(text: str, longest: int, name: str = "") -> str:
    """Return the first `longest` characters of a text without secrets; what is far beyond them is not searched."""
    return redacted(text[: longest + LONGEST_SECRET], name)[:longest]


def redacted_name(name: str) -> str:
    """Return a name without secrets; if it had one, with a hash at the end, so that two names do not become one.

    The hash is short: it does not help to guess the secret.
    """
    if name in _clean and not _last_words:  # as `redacted` does: a call costs more
        return name
    clean = redacted(name)
    return clean if clean == name else f"{clean}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH]}"


def is_secret(name: str) -> bool:
    """Return whether a name is that of a secret, such as `api_key`, or one of the user's."""
    known = _known_names.get(name)
    if known is None:
        short = name[-_CACHED_LENGTH:]
        asked = any(pattern.match(short) or pattern.match(words_of(short)) for pattern in _names)
        known = asked or names_a_secret(short)
        if len(_known_names) >= _MOST_CACHED:
            _known_names.clear()
        if len(name) <= _CACHED_LENGTH:
            _known_names[name] = known
    return known


def hides(path: str, value: object) -> bool:
    """Return whether a value is a secret because of its name, which is the end of a path such as `wandb.key`.

    An item of a list, such as `tokens.0`, has the name of the list.
    """
    if path[-1:].isdigit() and (above := path.rstrip("0123456789")).endswith("."):
        path = above[:-1]
    name = path.rpartition(".")[2]
    last_two = ".".join(path.rsplit(".", 2)[-2:])
    if is_secret(name) or (last_two != name and is_secret(last_two)):
        return not is_harmless(value, name)
    return isinstance(value, str) and any(may_name_a_secret(one[-_CACHED_LENGTH:], value) for one in (name, last_two))


def without_secret(name: str, value: Any) -> Any:
    """Return the value of a name: "[redacted]" if the name is that of a secret, otherwise without secrets in texts.

    Lists are searched as command lines too: the item after `--api-key` is a secret.
    """
    if hides(name, value):
        return REDACTED
    if isinstance(value, str):
        return redacted(value, name)
    if isinstance(value, (list, tuple)) and any(type(item) is str for item in value):
        return without_secret_options(value, name)
    return value


def without_secret_options(arguments: Iterable[Any], called: str = "") -> list[Any]:
    """Return the items of a list, such as a command line, without secrets in texts and after options such as `-p`.

    Args:
        arguments: The list.
        called: Name of the list.
    """
    found: list[Any] = []
    after, is_in_key = "", False
    for item in arguments:
        is_text = isinstance(item, str)
        if is_in_key and is_text:  # a private key as a list of its lines
            after, is_in_key = "", "-----END " not in item
            found.append(REDACTED if is_in_key else item)
            continue
        is_in_key = is_text and _KEY_BEGINS.match(item) is not None and "-----END " not in item
        is_option = is_text and item.startswith("-")
        name, equals, value = item.partition("=") if is_option else ("", "", "")
        if after and not is_option and hides(after, item):
            found.append(REDACTED)
        elif equals and hides(name.lstrip("-"), value):
            found.append(f"{name}={REDACTED}")
        else:
            found.append(redacted(item, called) if is_text else item)
        after = "" if equals else name.lstrip("-")
    if len(found) == _PAIR and all(type(item) is str for item in found) and _is_pair(*found):
        return [found[0], REDACTED]
    return found


def _is_pair(name: str, value: str) -> bool:
    """Return whether a list of two texts is a secret and its name, such as a header, and not two names."""
    return is_secret(name) and looks_like_a_key(value.rpartition(" ")[2])


def begin(
    patterns: Iterable[str] = (),
    names: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    function: Callable[[str, str], object] | None = None,
) -> None:
    """Begin with the rules of a run: the built-in ones, those of the user, and the secrets in the environment.

    Args:
        patterns: Regular expressions of secrets in texts.
        names: Names of values that are secrets, with `*` for any characters; case does not matter.
        environ: Variables; the values of those that are named like secrets are redacted wherever they are.
        function: Gets each text and the name of its value, and returns what is recorded.
    """
    _forget()
    _learned.clear()
    _learned_words.clear()
    _known_names.clear()
    _last_words[:] = [] if function is None else [LastWord(function)]
    _added[:] = [re.compile(pattern) for pattern in patterns]
    _names[:] = [re.compile(translate(name), re.IGNORECASE) for name in names]
    for name, value in (environ or {}).items():
        if is_secret(name) or hides(name, value.strip()):
            learn([value])
        elif name.upper().endswith("_HEADERS"):  # OTLP's: name=value, with commas between them
            learn(part.partition("=")[2].strip().rpartition(" ")[2] for part in unquote(value).split(","))
        elif "://" in value and (password := _PASSWORD.search(value)):
            learn([password[1]])


def learn(values: Iterable[object]) -> None:
    """Redact these secrets wherever they are, also escaped, for URLs and in base64, and each line of a longer one.

    Values and lines with fewer than 12 characters, or without a letter and a digit, are not learned.
    """
    found = dict.fromkeys((*_learned, *_learned_words))
    for value in values:
        secret = value.strip() if isinstance(value, str) else ""
        if _LEARNABLE.fullmatch(secret):
            found.update(dict.fromkeys(_spellings(secret)))
            found.update(dict.fromkeys(line for line in _lines(secret) if _LEARNABLE.fullmatch(line)))
    longest_first = sorted(found, key=len, reverse=True)  # one secret may be the beginning of another
    _learned[:] = [one for one in longest_first if len(one.split()) > 1]
    _learned_words[:] = [one for one in longest_first if len(one.split()) == 1]
    _forget()


def clean_set() -> set[str]:
    """Return a set for texts that were found clean, which loses them when the rules change."""
    _clean_sets.append(set())
    return _clean_sets[-1]


def _forget() -> None:
    for texts in _clean_sets:
        texts.clear()


def count_with(refuse: Callable[[str, str], object]) -> None:
    """Count failures of the user's function with `refuse`, which gets a reason and a message."""
    for last_word in _last_words:
        last_word.count_with(refuse)


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret, as it is in URLs, JSON and Python's literals, and in base64 behind any other bytes."""
    yield secret
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield _PERCENT.sub(lambda escape: escape[0].lower(), quoted)
    yield html.escape(secret)
    once = json.dumps(secret)[1:-1]
    yield from (once, json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(once)[1:-1], repr(secret)[1:-1])
    yield once.replace("/", "\\/")  # of PHP and JavaScript
    raw = secret.encode("utf-8", "surrogatepass")
    yield base64.b64encode(raw).decode().rstrip("=")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode()
        whole = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]  # depends on the secret alone
        yield from (whole, whole.translate(_URL_SAFE))


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a secret of several ones; those of a JSON text have escaped line ends in it too."""
    lines = [line.strip() for line in _LINE_END.split(secret)]
    return iter(lines if len(lines) > 1 else ())


def _substituted(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    if not pattern.groupindex:
        return pattern.subn(rf"\g<1>{REDACTED}", text)
    count = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal count
        if not _is_confirmed(found):
            return found[0]
        count += 1
        return f"{found[1]}{REDACTED}"

    return pattern.sub(replace, text), count


def _is_confirmed(found: re.Match[str]) -> bool:
    """Return whether a match is a secret by what a pattern cannot express: its name, surroundings, and words."""
    groups = found.groupdict()
    if name := groups.get("name"):
        return hides(name, found[0][len(found[1]) :])
    if (indent := groups.get("indent")) and len(indent) <= _column_of(found):
        return False  # the value is next to the name, and not below it
    if word := groups.get("word"):
        before = _BEFORE.search(found.string[max(found.start() - LONGEST_BEFORE, 0) : found.start()])
        return _is_assigned(f"{before[0] if before else ''}{word}", found["value"], is_pair="," in found[1])
    if (key := groups.get("words")) and (is_made_of_words(key) or not _OF_KEYS.search(key)):
        return False
    return found[1] != "" or not is_inside(
        found.string[max(found.start() - LONGEST_BEFORE, 0) : found.start()], found[0]
    )


def _column_of(found: re.Match[str]) -> int:
    before = found.string[max(found.start() - LONGEST_BEFORE, 0) : found.start()]
    return len(before) - before.rfind("\n") - 1


def _is_below(name: str, value: str) -> bool:
    return _is_assigned(name, value, is_pair=False)


def _is_assigned(name: str, value: str, *, is_pair: bool) -> bool:
    """Return whether a text assigns a secret to a name; after a mere `token`, or as a pair, it must look like a key."""
    is_doubtful = is_pair or _LONE.search(name) is not None
    return hides(name, value) and (not is_doubtful or (looks_like_a_key(value) and is_random(value)))
