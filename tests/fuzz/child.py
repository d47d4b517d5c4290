"""The process of one campaign: `python -m tests.fuzz.child TARGET FOLDER [options of libFuzzer]`.

Atheris instruments the code while it is imported, and ends the process itself.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris

from tests.fuzz import oracle

_INSTRUMENTED = ["otel_rl", "otel_rl_exporters", "tornado", "prometheus_client", "yaml", "json", "gzip"]


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
    words = "".join('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word)) for word in subject.words)
    (folder / "words").write_text(words)
    fixed = [f"-max_len={subject.longest}", f"-artifact_prefix={folder / 'crashes'}/"]
    fixed += [f"-dict={folder / 'words'}"] if words else []
    atheris.Setup([sys.argv[0], *fixed, *options, str(folder / "corpus")], lambda data: oracle.check(subject, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
