"""The facts that all screens say alike: pure functions over plain values, without an engine, a clock or files.

The agent and the readers call the same functions. The room imports names, statistics and contracts alone.
"""
