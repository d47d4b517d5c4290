"""The work of `init` before the first record: settings, launcher variables, the run directory, the start of the agent.

`trainer`, `agent` and `cli` import it. It imports `journal` and below.
"""
