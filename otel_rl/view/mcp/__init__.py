"""Runs for coding agents, over the Model Context Protocol on standard input and output: `otel-rl mcp`.

The tools answer what the commands answer, and write nothing. Everything that a run recorded is marked as data.
"""
