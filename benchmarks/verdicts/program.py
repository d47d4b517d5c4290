"""`python -m benchmarks.verdicts.program NAME calls|plain`: one scenario's program, as a trainer of its own."""

from __future__ import annotations

import sys

from benchmarks.verdicts import catalogue
from benchmarks.verdicts.pieces.recording import Recording


def main() -> None:
    """Run the program that the command line names."""
    name, form = sys.argv[1:]
    catalogue.named(name).program(Recording(has_calls=form == "calls"))


if __name__ == "__main__":
    main()
