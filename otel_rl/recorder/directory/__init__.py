"""The run directory: its files, its parts, which run and attempt a start is, and the start of the agent.

It imports `settings` and what is below.
"""
