"""Why a run hangs, died or cannot start: evidence, verdict, and the checks of `doctor`.

Only `cli` imports it.
"""
