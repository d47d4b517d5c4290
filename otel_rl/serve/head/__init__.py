"""The head of a run: it receives the records of the agents on other machines.

The agent finds it by the entry points `otel_rl_head`, when the settings name a head.
"""
