"""`python -m otel_rl.autopsy RUN_DIR [--cause TEXT]`: what the agent starts when it suspects that a run hangs."""

from __future__ import annotations

import argparse
from pathlib import Path

from otel_rl.autopsy.conclude import autopsy


def main() -> None:
    """Make an autopsy, and print its verdict and where its text is, in one line each."""
    parser = argparse.ArgumentParser(prog="python -m otel_rl.autopsy")
    parser.add_argument("run", type=Path)
    parser.add_argument("--cause", default="")
    options = parser.parse_args()
    found = autopsy(options.run.absolute(), options.cause)
    print(found.verdict.sentence, found.file, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
