"""The command line, `otel-rl`: the shell that verbs are written against.

Wings import it for their verbs, each of which is one file in its wing. It imports the recorder alone.
"""

from __future__ import annotations

import click

from otel_rl.cli.commands import Commands
from otel_rl.recorder.files.processes import hold_standard_descriptors


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="otel-rl")
def main() -> None:
    """The flight recorder for RL post-training. `otel-rl VERB --help` has examples of each verb."""
    hold_standard_descriptors()  # else a journal gets number 1, and what children print is in it (test_descriptors)
