"""The server of the Model Context Protocol: it marks what the tools return, and says so to the agent."""

from __future__ import annotations

from functools import wraps
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

import duckdb
import msgspec
from mcp.server import MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from otel_rl.look.mcp.marked import NOTICE, marked
from otel_rl.look.mcp.tools import Tools
from otel_rl.recorder.archive.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp.server.mcpserver import Context
    from mcp_types import InputRequiredResult

_Arguments = ParamSpec("_Arguments")
_INSTRUCTIONS = f"""otel-rl records RL post-training runs. These tools read the records of runs, and change nothing.
Begin with `status` (is it well, what was found), then `why` (why it is slow, stuck or dead), `compare` (is it
better), and `find` (names). `rows`, `spans` and `sql` return the numbers. `left_out` says what did not fit.

{NOTICE}"""
_TABLES = "\n".join(f"- {table.name}: {', '.join(column.name for column in table.columns)}" for table in TABLES)


class CallRefused(msgspec.Struct, frozen=True):
    """Why a tool has no answer; it can quote recorded names."""

    error: str


class _Server(MCPServer[object]):
    """A server that refuses arguments that a tool does not have: the SDK ignores them."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[object, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool, also by an older name."""
        name = getattr(getattr(Tools, name, None), "__name__", name)
        known = [
            parameter for parameter in signature(getattr(Tools, name, Tools.runs)).parameters if parameter != "self"
        ]
        unknown = [argument for argument in arguments if argument not in known]
        if unknown and hasattr(Tools, name):
            error = f"{name} has no argument {', '.join(unknown)}; it has {', '.join(known)}"
            return CallToolResult(content=[TextContent(text=marked(CallRefused(error)))], is_error=True)
        return await super().call_tool(name, arguments, context)


def server_of(root: Path) -> MCPServer[object]:
    """Return the server for the runs below a directory."""
    server = _Server("otel-rl", version=version("otel-rl"), instructions=_INSTRUCTIONS, log_level="WARNING")
    tools = Tools(root)
    more = {"sql": f"Tables and columns:\n{_TABLES}\n"}
    for tool in (
        tools.runs,
        tools.status,
        tools.why,
        tools.compare,
        tools.find,
        tools.rows,
        tools.spans,
        tools.sql,
    ):
        name = tool.__name__
        description = "\n".join(filter(None, (tool.__doc__, more.get(name), NOTICE)))
        hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        server.add_tool(_marking(tool), name, description=description, annotations=hints, structured_output=False)
    return server


def _marking(
    tool: Callable[_Arguments, msgspec.Struct | msgspec.Raw],
) -> Callable[_Arguments, CallToolResult]:
    """Return a tool whose answers and errors are marked."""

    @wraps(tool)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> CallToolResult:
        try:
            text, is_error = marked(tool(*args, **kwargs)), False
        except (ValueError, OSError, duckdb.Error) as error:
            text, is_error = marked(CallRefused(str(error))), True
        return CallToolResult(content=[TextContent(text=text)], is_error=is_error)

    return call
