"""The command line, `otel-rl`.

No room imports it. Each command calls one room.
"""

from __future__ import annotations

import click

from otel_rl.cli.agent import agent
from otel_rl.cli.autopsy import autopsy
from otel_rl.cli.bridge import bridge
from otel_rl.cli.compare import compare
from otel_rl.cli.doctor import doctor
from otel_rl.cli.export import export
from otel_rl.cli.ls import ls
from otel_rl.cli.mcp import mcp
from otel_rl.cli.owes import owes
from otel_rl.cli.replay import replay
from otel_rl.cli.report import report
from otel_rl.cli.run import run
from otel_rl.cli.samples import samples
from otel_rl.cli.stack import stack
from otel_rl.cli.terminal import Commands
from otel_rl.cli.token import token
from otel_rl.cli.top import top
from otel_rl.cli.watch import watch
from otel_rl.cli.why import why
from otel_rl.demo.command import demo
from otel_rl.setup.processes import hold_standard_descriptors


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="otel-rl")
def main() -> None:
    """The flight recorder for RL post-training."""
    hold_standard_descriptors()


for command in (
    agent,
    autopsy,
    bridge,
    compare,
    demo,
    doctor,
    export,
    ls,
    mcp,
    owes,
    replay,
    report,
    run,
    samples,
    stack,
    token,
    top,
    watch,
    why,
):
    main.add_command(command)
