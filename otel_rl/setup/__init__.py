"""What `init` finds out and starts: settings, launcher, run directory, agent.

`trainer`, `agent` and `cli` may import it; it imports `journal` and below.
"""
