"""`otel-rl mcp`: runs for coding agents."""

from __future__ import annotations

from pathlib import Path

import click

from otel_rl.cli.runs import runs_directory


@click.command(short_help="Serve runs to a coding agent (MCP).")
@click.argument("directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def mcp(directory: Path | None) -> None:
    """Serve the runs below DIRECTORY to a coding agent, over the Model Context Protocol on standard input and output.

    The agent can list runs, ask how they stand, why steps were slow and how runs differ, and read their records. It can
    write nothing, and read nothing else. Without DIRECTORY, it is OTEL_RL_DIR (runs). Needs the extra `mcp`.
    """
    try:
        from otel_rl.view.mcp.server import server_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise click.ClickException("otel-rl mcp needs an extra: pip install 'otel-rl[mcp]'") from error
    server_of(directory or runs_directory()).run("stdio")
