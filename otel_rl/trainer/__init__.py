"""What runs on the trainer's thread: `init`, the run, its spans, phases and trajectories.

Integrations and users import it, through `otel_rl`; it never imports the agent.
"""
