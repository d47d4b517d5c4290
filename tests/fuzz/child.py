"""The process of one campaign: `python -m tests.fuzz.child TARGET FOLDER [options of libFuzzer]`.

Atheris instruments the code while it is imported, and ends the process itself.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from pathlib import Path

import atheris

from tests.fuzz import oracle

_INSTRUMENTED = ["otel_rl", "otel_rl_exporters", "tornado", "prometheus_client", "yaml", "json", "gzip"]
_WORD = re.compile(rb"[!\w][\w.:/@+-]{2,40}=?")
_MOST_WORDS = 500


def main() -> None:
    """Write the corpus, then fuzz until libFuzzer has had enough."""
    name, place, *options = sys.argv[1:]
    folder = Path(place)
    for part in ("corpus", "crashes", "files"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=_INSTRUMENTED, enable_loader_override=False):
        from tests.fuzz.targets import target

        subject = target(name, folder / "files")
    logging.basicConfig(level=logging.DEBUG, handlers=[oracle.Formatting()], force=True)
    seeds = subject.seeds()
    for seed in seeds:
        subject.check(seed)  # imports that happen at the first use are not the doing of an input
    for number, seed in enumerate(seeds):
        oracle.check(subject, seed)
        (folder / "corpus" / f"seed-{number:04}").write_bytes(seed)
    (folder / "words").write_text("".join(f'"{word.decode()}"\n' for word in _words(seeds)))
    fixed = [f"-max_len={subject.longest}", f"-artifact_prefix={folder / 'crashes'}/", f"-dict={folder / 'words'}"]
    atheris.Setup([sys.argv[0], *fixed, *options, str(folder / "corpus")], lambda data: oracle.check(subject, data))
    atheris.Fuzz()


def _words(seeds: list[bytes]) -> list[bytes]:
    """Return the words that most seeds have, for the dictionary of the fuzzer."""
    found = Counter(word for seed in seeds for word in {*_WORD.findall(seed)})
    return [word for word, _ in found.most_common(_MOST_WORDS)]


if __name__ == "__main__":
    main()
