"""Everything that runs on the trainer's thread: `init`, the run, its spans, phases and trajectories.

Users import it through `otel_rl`, integrations import it directly. It never imports the agent.
"""
