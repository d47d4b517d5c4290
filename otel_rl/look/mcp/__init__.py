"""Runs for coding agents, over the Model Context Protocol on standard input and output: `otel-rl mcp`.

The tools answer what the commands answer, and write nothing. Everything that a run recorded is marked as data.

In reading order: `server` lists the `tools`; `query` and `search` find what they return, as `lines` of tables,
`marked` as data.
"""
