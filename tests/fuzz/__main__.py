"""`python -m tests.fuzz [TARGET …] --seconds N`: fuzz readers, print the figures; exits with 1 if an input failed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.fuzz import campaign, oracle
from tests.fuzz.targets import TARGETS, target


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--seconds", type=int, default=30, help="time for each target; by default %(default)s")
    parser.add_argument("--input", type=Path, help="feed the content of this file to one target, and nothing else")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"unknown target {', '.join(unknown)}: must be one of {', '.join(TARGETS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that files and the child are removed
    failed = False
    for name in arguments.targets or TARGETS:
        if arguments.input:
            with tempfile.TemporaryDirectory() as place:
                oracle.check(target(name, Path(place)), arguments.input.read_bytes())
            continue
        found = campaign.run(name, arguments.seconds)
        if found.failure:
            failed = True
            sys.stderr.write(f"{found.failure}\n{name} failed with the input\n{found.input!r}\n")
        figures = {key: value for key, value in found._asdict().items() if key not in ("failure", "input")}
        sys.stdout.write(f"{json.dumps(figures)}\n")
        sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()
