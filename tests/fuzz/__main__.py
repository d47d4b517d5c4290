"""`python -m tests.fuzz TARGET [OPTION OF LIBFUZZER …]`: feed changed inputs to a reader until one fails.

`-max_total_time=30` ends it after 30 s, `-seed=1` repeats it, and `--input FILE` feeds one input instead.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzz import oracle
from tests.fuzz.targets import TARGETS, target

_INSTRUMENTED = ["otel_rl", "otel_rl_exporters", "tornado", "prometheus_client", "yaml", "json", "gzip"]
_LONGEST_INPUT_S = 120
"""Wall-clock seconds after which an input counts as a hang; the CPU limit of `oracle` is far lower."""
_WORD = re.compile(rb"[!\w][\w.:/@+-]{2,40}=?")
_MOST_WORDS = 500
_MEMORY = "/dev/shm"  # the files of a target are written a thousand times a second


def main() -> None:
    """Run what the command line names; exit with 0 if no input failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--input", type=Path, help="feed the content of this file, and nothing else")
    parser.add_argument("--folder", type=Path, help="keep all files in this directory")
    arguments, options = parser.parse_known_args()
    if arguments.folder:
        _fuzz(arguments.target, arguments.folder, options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that files and the child are removed
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="otel-rl-fuzz.", dir=parent) as place:
        folder = Path(place)
        if arguments.input:
            oracle.check(target(arguments.target, folder), arguments.input.read_bytes())
            return
        command = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:], "--folder", place]
        status = subprocess.run(command, check=False).returncode
        for crash in (folder / "crashes").glob("*"):
            sys.stderr.write(f"{arguments.target} failed with the input\n{crash.read_bytes()!r}\n")
    sys.exit(status)


def _fuzz(name: str, folder: Path, options: list[str]) -> None:
    """Write the corpus, and fuzz; Atheris instruments the code while it is imported, and ends the process itself."""
    import atheris

    for part in ("corpus", "crashes", "files"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=_INSTRUMENTED, enable_loader_override=False):
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
    fixed += [f"-timeout={_LONGEST_INPUT_S}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *fixed, *options, str(folder / "corpus")], lambda data: oracle.check(subject, data))
    atheris.Fuzz()


def _words(seeds: list[bytes]) -> list[bytes]:
    """Return the words that most seeds have, for the dictionary of the fuzzer."""
    found = Counter(word for seed in seeds for word in {*_WORD.findall(seed)})
    return [word for word, _ in found.most_common(_MOST_WORDS)]


if __name__ == "__main__":
    main()
