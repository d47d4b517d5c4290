"""`otel-rl mcp`: runs for coding agents."""

from __future__ import annotations

from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.runs import runs_directory


@click.command(
    cls=Verb,
    section="look",
    extra="mcp",
    is_rare=True,
    short_help="Serve runs to a coding agent (MCP).",
    examples={"mcp runs": "the command to give to the coding agent"},
)
@click.argument("directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def mcp(directory: Path | None) -> None:
    """Serve the runs below DIRECTORY to a coding agent, over the Model Context Protocol on standard input and output.

    The agent can list runs, ask how they stand, why steps were slow and how runs differ, and read their records. It can
    write nothing, and read nothing else. Without DIRECTORY, it is OTEL_RL_DIR (runs). Needs the extra `mcp`.
    """
    from otel_rl.look.mcp.server import server_of

    server_of(directory or runs_directory()).run("stdio")
