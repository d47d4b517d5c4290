"""Texts that may hold secrets, which are searched on the trainer's thread."""

from __future__ import annotations

from otel_rl.recorder.secrets import redact, without_secret
from otel_rl.recorder.secrets.rules import RULES
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target
from tests.recorder.secrets.samples import samples

_PLANTED = "hf_" + "aB3" * 11 + "x"
_REPEATED = 1 << 16
"""Characters of an input that is repeated: what is not linear becomes slow."""


class Secrets(Target):
    """A text, alone, around a secret, and repeated: a secret never survives, and the time is linear."""

    longest = 1 << 10

    def seeds(self) -> list[bytes]:
        found = [one.text for one in samples()]
        starts = dict.fromkeys(rule.start for rule in RULES)
        found += [start + rest for start in starts for rest in ("", "aB3x-", "=a1 ")]  # nearly a secret
        return [text.encode() for text in (*found, "--api-key x --lr 1e-6", "api_key=abcdefgh12345678", "loss: 0.5")]

    def check(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for around in (f"{text} {_PLANTED} {text}", f"{text}\n{_PLANTED}\n"):
            if _PLANTED in redact(around)[0]:
                raise Broken(f"a secret survives in {around!r}")
        without_secret("argv", [text, text, "--token", text])
        redact(text * (_REPEATED // max(1, len(text))))
