"""Why a run hangs, died or cannot start: evidence, verdict, and the checks of `doctor`.

`cli` imports this room, and the agent starts it as a process of its own: `python -m otel_rl.autopsy`.
"""
