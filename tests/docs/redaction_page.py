"""The tables of what redaction recognizes; `python -m tests.docs.redaction_page` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.convert.params import flatten
from otel_rl.recorder.secrets import redact
from otel_rl.recorder.secrets.formats import ASSIGNED, KEPT, KEYS, WORDS
from tests.recorder.secrets.samples import names_of_secrets, texts_with_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "reference" / "redaction.md"
_BEGIN, _END = "<!-- recognized -->\n", "<!-- end of recognized -->\n"
_KEY = "q7XbR2mK9vLw4TzP8"
_CONFIGURATIONS = "../../tests/data/configurations.yaml"


def page(text: str) -> str:
    """Return the page with the tables, between its two comments."""
    redaction.begin()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    names, texts, ordinary = names_of_secrets(), texts_with_secrets(), dict(_ordinary())
    stays = [one.kind for one in texts if one.secret in redact(one.text)[0]]
    hidden = [name for name in names if _KEY not in flatten({name: _KEY}).values()]
    changed = [name for name, values in ordinary.items() if any(_is_changed(name, value) for value in values)]
    about = json.loads((_ROOT / "otel_rl/recorder/secrets/kept.json").read_text())["about"]
    own = sorted({rule.kind for rule in (*KEYS, *ASSIGNED)}, key=str.lower)
    own_rules = {"rules": len(own), "source": "otel-rl"}
    sources = "\n".join(f"- {one['rules']} rules of {one['source']}" for one in (*about, own_rules))
    words = "\n".join(WORDS)
    return (
        f"{before}{_BEGIN}\n| what was tried | number | redacted |\n| --- | ---: | ---: |\n"
        f"| [names of secrets](#names) | {len(names)} | {len(hidden)} |\n"
        f"| [kinds of secrets in texts](#kinds) | {len(texts)} | {len(texts) - len(stays)} |\n"
        f"| [ordinary parameters](#ordinary-parameters) | {len(ordinary)} | {len(changed)} |\n\n"
        f"{sources}\n\nTexts are searched for names that contain one of these:\n\n```text\n{words}\n```\n\n"
        f"### Names\n\n{_codes(names)}\n\n"
        f"### Kinds\n\nRedacted: {'; '.join(one.kind for one in texts if one.kind not in stays)}.\n\n"
        f"Not redacted, because nothing in them or before them is fixed: {'; '.join(stays)}.\n\n"
        f"### Rules\n\nOf other projects: {'; '.join(sorted((kind for kind, *_ in KEPT), key=str.lower))}.\n\n"
        f"otel-rl: {'; '.join(own)}.\n\n"
        "### Ordinary parameters\n\n"
        f"From the configurations of the frameworks, [with their values]({_CONFIGURATIONS}):\n\n"
        f"{_codes(sorted(ordinary))}\n\n{_END}{after}"
    )


def _ordinary() -> Iterator[tuple[str, list[Any]]]:
    frameworks = msgspec.yaml.decode((_ROOT / "tests/data/configurations.yaml").read_bytes())
    names = dict.fromkeys(name for one in frameworks.values() for name in one["values"])
    for name in names:
        yield name, [value for one in frameworks.values() for value in one["values"].get(name, [])]


def _is_changed(name: str, value: Any) -> bool:
    return redaction.REDACTED in map(str, flatten({name: value}).values())


def _codes(texts: Iterable[str]) -> str:
    """Return a block of code that shows words: a paragraph of them would be one sentence."""
    return f"```text\n{fill(' '.join(texts), 110, break_long_words=False, break_on_hyphens=False)}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
